"""What merging is for: queries that survive failures, answer as fast as their fastest copy, start with what
is known already, or are replaced while they run.

Source      Physically Independent Stream Merging, §II.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from recension.api.base import plan_of
from recension.api.merge import merge
from recension.api.stream import Stream
from recension.core.ticks import BEGINNING, TimeLike, instant
from recension.plan.merge import Merge
from recension.runners.local import Session


def high_availability(query: Callable[[Stream], Stream], feeds: Iterable[Stream], **options: Any) -> Stream:
    """As many replicas of a query as there are feeds: all but one may fail.

    >>> import recension as rc
    >>> feeds = [rc.source(name, {"x": "int64"}) for name in ("east", "west")]
    >>> live = rc.session(rc.scenarios.high_availability(lambda s: s.where(rc.col("x") > 0), feeds))
    >>> live.push("east", [rc.Insert({"x": 1}, 1, 5)])  # and then it dies
    >>> live.push("west", [rc.Insert({"x": 1}, 1, 5), rc.Insert({"x": 2}, 6, 7), rc.Cti(9)])
    >>> [str(element) for element in live.read().elements()]
    ["insert [1, 5) {'x': 1}", "insert [6, 7) {'x': 2}", 'cti 9']
    """
    return merge(*(query(feed) for feed in feeds), **options)


def fast_availability(*plans: Stream, **options: Any) -> Stream:
    """Different plans of one query: the answer of whichever is ahead at the moment.

    Plans that fall behind are spared what is settled already (`fast_forward`).
    """
    return fast_forward(*plans, **options)


def fast_forward(*plans: Stream, **options: Any) -> Stream:
    """Plans that are told how far the answer has come, and skip what nobody wants any more."""
    return merge(*plans, feedback=True, **options)


def jump_start(
    query: Callable[[Stream], Stream], seed: Stream, live: Stream, from_time: TimeLike, **options: Any
) -> Stream:
    """A query over a live feed that knows from the start what happened before it was there.

    Push a history table or a checkpoint to ``seed`` and advance it to the time up to which it is complete,
    ``from_time`` or later. The live feed has everything that starts from ``from_time`` on, and may repeat
    what the seed has; what it says counts once the seed is there, whichever of them comes first.

    >>> import recension as rc
    >>> table, feed = (rc.source(name, {"job": "string"}) for name in ("table", "feed"))
    >>> query = lambda jobs: jobs.agg(n=rc.count(), speculate="eager")
    >>> session = rc.session(rc.scenarios.jump_start(query, table, feed, from_time=50))
    >>> session.push("feed", [rc.Insert({"job": "new"}, 60, 70), rc.Cti(80)])
    >>> session.push("table", [rc.Insert({"job": "old"}, 1, 90), rc.Cti(50)])
    >>> session.read().show()
    _vs  _ve  n
    1    60   1
    60   70   2
    70   90   1
    """
    both = plan_of(merge(seed, live, **options), "jump start")
    assert isinstance(both, Merge)
    return query(Stream(replace(both, since=(BEGINNING, int(instant(from_time))))))


class CutOver:
    """One plan of a query takes the place of another, without its readers noticing.

    The new plan joins; once the answer has come to the time from which it is complete, the old one can go.

    >>> import recension as rc
    >>> s = rc.source("s", {"x": "int64"})
    >>> old, new = s.where(rc.col("x") > 0), s.where(rc.col("x") >= 1)
    >>> live = rc.session(rc.merge(old))
    >>> change = rc.scenarios.CutOver(live, old, new, from_time=10)
    >>> change.finish()
    False
    >>> live.push("s", [rc.Insert({"x": 1}, 9, 15), rc.Cti(12)])
    >>> change.finish()
    True
    """

    def __init__(self, session: Session, old: Stream, new: Stream, from_time: TimeLike) -> None:
        self._session, self._old, self._new = session, plan_of(old, "cut over"), plan_of(new, "cut over")
        session.attach(self._new, from_time)

    def finish(self) -> bool:
        """Let the old plan go if the new one has joined; whether it has."""
        if self._session.state_of(self._new) != "joined":
            return False
        self._session.detach(self._old)
        return True
