"""Merging: `rc.merge`, and the scenarios that it is for.

A query survives failures, answers as fast as its fastest replica, starts with a known history, or is replaced
while it runs.

Source      Physically Independent Stream Merging, §II.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recension.api.base import plan_of
from recension.api.stream import Stream
from recension.core.ticks import BEGINNING, DurationLike, TimeLike, duration, instant
from recension.plan.merge import Leader, Merge, MergeCase, MergePolicy, OnAnomaly, OnMismatch

if TYPE_CHECKING:
    from recension.runners.local import Session


def merge(
    *streams: Stream,
    case: MergeCase = "auto",
    policy: MergePolicy = "first",
    lag: DurationLike = 0,
    feedback: bool = False,
    on_mismatch: OnMismatch = "raise",
    leader: Leader = "stable",
    quorum: float = 0.5,
    on_anomaly: OnAnomaly = "warn",
) -> Stream:
    """Merge streams with the same history into one stream.

    Inputs may differ in order, in their revisions, and in how far they have come. They may stop, and may join
    or leave while the query runs (`Session.attach`, `Session.detach`). The output neither repeats nor loses
    an event.

    Parameters
    ----------
    streams
        Streams of equal payload: replicas of a query, or different plans of one.
    case
        What the algorithm may rely on, from ``R0`` (insert-only, starts strictly increase) to ``R4``
        (nothing); ``auto`` takes the cheapest that the inputs' properties allow. ``R3-`` is the paper's
        baseline.
    policy
        For R3, when a change of an input is shown: ``first`` (inserts at once, corrections when they are
        final), ``eager`` (every change at once), ``hf`` (when a CTI has passed the start), ``ff`` (when the
        event is final), ``lead`` (follow one input), ``quorum`` (when enough inputs have the event).
    lag
        For R3: how far the output's CTI stays behind that of the leading input, which saves corrections.
    feedback
        Send feedback to slower inputs, so that they can skip what is no longer needed.
    on_mismatch
        What happens if the case does not allow an element: ``raise``, or ``fallback`` to R4. For that, events
        that may still change are kept; a repeated insert then counts as a second event.
    leader
        For ``lead``: ``stable``, the input whose CTI last advanced the output; or, for inserts only, the
        input with the latest ``starts`` or with the most ``unfrozen`` events.
    quorum
        For ``quorum``: the fraction of the inputs that must have an event.
    on_anomaly
        What happens if an input contradicts what is final: ``warn``, once, with the event, in the log and in
        the metrics, which also count by input; or ``raise``. One of the inputs is wrong; the merge cannot
        know which.

    >>> import recension as rc
    >>> a, b = (rc.source(name, {"job": "string"}) for name in ("a", "b"))
    >>> live = rc.session(rc.merge(a, b))
    >>> live.push("a", [rc.Insert({"job": "x"}, 1, 5)])
    >>> live.push("b", [rc.Insert({"job": "x"}, 1, 7), rc.Cti(9)])
    >>> [str(element) for element in live.read().elements()]
    ["insert [1, 5) {'job': 'x'}", "retract [1, 5) -> 7 {'job': 'x'}", 'cti 9']
    """
    plans = tuple(plan_of(stream, "merge") for stream in _in_column_order(streams))
    how = (case, policy, duration(lag), feedback, on_mismatch, leader, quorum)
    return Stream(Merge(plans, *how, on_anomaly=on_anomaly))


def _in_column_order(streams: tuple[Stream, ...]) -> list[Stream]:
    """The streams with their columns in the order of the first stream, if they have the same columns."""
    for stream in streams:
        plan_of(stream, "merge")
    names = streams[0].schema.names if streams else []
    turned = [stream.schema.names != names and set(stream.schema.names) == set(names) for stream in streams]
    return [s.select(*names) if is_turned else s for s, is_turned in zip(streams, turned, strict=True)]


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
    """Different plans of one query: the answer comes from the plan that is ahead.

    Plans that fall behind skip what is final already (`fast_forward`).
    """
    return fast_forward(*plans, **options)


def fast_forward(*plans: Stream, **options: Any) -> Stream:
    """Plans that learn how far the answer has come, and skip what is no longer needed."""
    return merge(*plans, feedback=True, **options)


def jump_start(
    query: Callable[[Stream], Stream], seed: Stream, live: Stream, from_time: TimeLike, **options: Any
) -> Stream:
    """A query over a live feed that starts with a known history.

    Push a history table or a checkpoint to ``seed`` and advance it to the time up to which it is complete,
    ``from_time`` or later. The live feed has everything that starts from ``from_time`` on, and may repeat
    what the seed has. Its elements count once the seed is complete, whichever of the two arrives first.

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
    """Replace one plan of a query by another, without a gap for its readers.

    The new plan joins. When the answer has reached the time from which the new plan is complete, the old plan
    can leave.

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
        """Detach the old plan if the new one has joined; returns whether it has."""
        if self._session.state_of(self._new) != "joined":
            return False
        self._session.detach(self._old)
        return True
