"""Steps that read the times of events, and those that give events other lifetimes, with what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.properties.step import History, StepKind, plus

import recension as rc
from recension import col, denote
from recension.core.events import Event
from recension.core.ticks import FOREVER


def _end(event: Event) -> int | None:
    return None if event.ve == FOREVER else event.ve


def _lasted(event: Event) -> int | None:
    return None if event.ve == FOREVER else event.ve - event.vs


def _first(*times: int | None) -> int | None:
    return min((t for t in times if t is not None), default=None)


def _last(*times: int | None) -> int | None:
    return max((t for t in times if t is not None), default=None)


def _read(name: str, of: Any, value: Callable[[Event], Any]) -> StepKind:
    """A value of the times beside that of the payload."""
    return StepKind(
        f"v = {name}",
        lambda s, t: s.with_columns(v=of),
        lambda s, t: denote.with_event_columns(s, v=value),
    )


def _kept(condition: Any, holds: Callable[[Event], Any]) -> StepKind:
    return StepKind(
        f"where {condition}", lambda s, t: s.where(condition), lambda s, t: denote.where_event(s, holds)
    )


def _lived(start: Any, end: Any, begins: Any, ends: Any, **given: Any) -> StepKind:
    return StepKind(
        f"live from {start} to {end}",
        lambda s, t: s.with_lifetime(start, end, **given),
        lambda s, t: denote.with_lifetime(s, begins, ends),
    )


def _fused(start: Any, end: Any, begins: Any, ends: Any) -> StepKind:
    """Of a payload that holds the end."""

    def means(s: History, t: History) -> History:
        # The new lifetime is computed from the old one, which the payload's end is taken from.
        found = denote.with_event_columns(s, begins=begins, ends=ends, v=_end)
        moved = denote.with_lifetime(found, lambda e: e.payload["begins"], lambda e: e.payload["ends"])
        return denote.select(moved, "k", "v")

    return StepKind(
        f"v = end, live from {start} to {end}",
        lambda s, t: s.with_columns(v=rc.end()).with_lifetime(start, end),
        means,
    )


def _total(speculate: str) -> StepKind:
    def means(s: History, t: History) -> History:
        lasted = denote.with_event_columns(s, lasted=_lasted)
        rows = denote.agg(v=denote.sum("lasted"))
        return denote.grouped(lasted, "k", lambda group: denote.snapshot(group, rows))

    return StepKind(
        f"sum of lifetimes {speculate}",
        lambda s, t: s.group_by("k").agg(v=rc.sum(rc.lifetime()), speculate=speculate),
        means,
        is_immediate=speculate == "eager",
    )


def _by_start(s: Any, t: Any) -> Any:
    counts = s.group_by("k", half=rc.start() // 2).agg(n=rc.count(), speculate="eager")
    return counts.select("k", v=col("half") + col("n"))


def _meant_by_start(s: History, t: History) -> History:
    def counted(group: History) -> History:
        return denote.snapshot(group, denote.agg(n=denote.count()))

    halves = denote.with_event_columns(s, half=lambda e: e.vs // 2)
    counts = denote.grouped(halves, ("k", "half"), counted)
    return denote.select(counts, "k", v=lambda p: p["half"] + p["n"])


_earlier = rc.min_horizontal(rc.end(), rc.start() + 2)
_later = rc.max_horizontal(rc.end(), rc.start() + 5)
_known = rc.coalesce(rc.end(), rc.start() + 4)

TIMED: list[StepKind] = [
    _read("start", rc.start() + col("v"), lambda e: plus(e.payload["v"], e.vs)),
    _read("end", rc.end(), _end),
    _read("lifetime", rc.lifetime() * 2, lambda e: plus(_lasted(e), _lasted(e))),
    _kept(rc.start() > 3, lambda e: e.vs > 3),
    _kept(rc.end().is_null(), lambda e: _end(e) is None),
    _kept(rc.lifetime() > 3, lambda e: _lasted(e) is not None and e.ve - e.vs > 3),
    _kept(
        (col("v") > 0) & (rc.lifetime() < 4),
        lambda e: e.payload["v"] is not None and e.payload["v"] > 0 and (_lasted(e) or 9) < 4,
    ),
    _lived(rc.start(), _earlier, lambda e: e.vs, lambda e: _first(_end(e), e.vs + 2)),
    _lived(rc.start(), _known, lambda e: e.vs, lambda e: e.vs + 4 if _end(e) is None else _end(e)),
    _lived(rc.start() - 1, rc.end() + 1, lambda e: e.vs - 1, lambda e: plus(_end(e), 1)),
    _lived(rc.start() + 2, rc.end() - 1, lambda e: e.vs + 2, lambda e: plus(_end(e), -1)),
    _lived(rc.end(), rc.end() + 3, _end, lambda e: plus(_end(e), 3)),
    _lived(rc.end() - 2, None, lambda e: plus(_end(e), -2), lambda e: None),
    _lived(_earlier, None, lambda e: _first(_end(e), e.vs + 2), lambda e: None),
    _lived(_later, _later + 2, lambda e: _last(_end(e), e.vs + 5), lambda e: _last(_end(e), e.vs + 5) + 2),  # type: ignore[operator]
    _lived(
        rc.start() + col("v") % 3,
        rc.end(),
        lambda e: None if e.payload["v"] is None else e.vs + e.payload["v"] % 3,
        _end,
        bound=0,
    ),
    _fused(rc.end(), rc.end() + 3, _end, lambda e: plus(_end(e), 3)),
    _fused(rc.start() + 1, None, lambda e: e.vs + 1, lambda e: None),
    StepKind(
        "long ones when they have ended",
        lambda s, t: (
            s.with_columns(d=rc.lifetime())
            .where(col("d") > 2)
            .select("k", v=col("d") + rc.start())
            .with_lifetime(rc.end(), rc.end() + col("v") % 4)
        ),
        lambda s, t: denote.with_lifetime(
            denote.with_event_columns(denote.where_event(s, lambda e: (_lasted(e) or 0) > 2), v=_end),
            _end,
            lambda e: e.ve + e.payload["v"] % 4,
        ),
    ),
    StepKind(
        "apply lifetime",
        lambda s, t: s.group_by("k").apply(lambda g: g.with_columns(v=rc.lifetime())).select("k", "v"),
        lambda s, t: denote.with_event_columns(s, v=_lasted),
    ),
    StepKind(
        "apply lifetime and wait",
        lambda s, t: (
            s.group_by("k").apply(lambda g: g.with_columns(v=rc.lifetime()).cleanse()).select("k", "v")
        ),
        lambda s, t: denote.with_event_columns(s, v=_lasted),
        is_immediate=False,
    ),
    StepKind("count by start", _by_start, _meant_by_start),
    _total("eager"),
    _total("perfect"),
]
