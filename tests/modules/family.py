"""A family of modules, each with what it means on Python values; and windows, likewise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import recension as rc
from recension import denote
from recension.core.events import Event, Payload
from recension.denote.windows import Window

LATE = 40
"""Stands for the end of time where modules compute with ends."""


UNTIL = 30
"""Windows need an end of the grid, for events may never end."""


class Listed(rc.Aggregate):
    """The values in the order in which they come."""

    inputs = {"v": "int64"}
    result = "string"

    def compute(self, payloads: Any) -> str:
        return str([p["v"] for p in payloads])


class Spans(rc.TimeSensitiveAggregate):
    """All that can be seen: lifetimes and values, in order."""

    result = "string"

    def compute(self, events: Any, window: rc.Window) -> str:
        return str([(e.vs, e.ve, e.payload["v"]) for e in events])


class Sum(rc.IncrementalAggregate):
    """The sum and the number of values."""

    inputs = {"v": "int64"}
    result = "string"
    is_order_sensitive = False

    def initial(self) -> Any:
        return [0, 0]

    def add(self, state: Any, payloads: Any) -> Any:
        values = [p["v"] for p in payloads if p["v"] is not None]
        return [state[0] + sum(values), state[1] + len(payloads)]

    def remove(self, state: Any, payloads: Any) -> Any:
        values = [p["v"] for p in payloads if p["v"] is not None]
        return [state[0] - sum(values), state[1] - len(payloads)]

    def compute(self, state: Any) -> str:
        return str(state)


class MergedSum(Sum):
    """The same by panes."""

    def merge(self, a: Any, b: Any) -> Any:
        return [a[0] + b[0], a[1] + b[1]]


class Weighted(rc.IncrementalTimeSensitiveAggregate):
    """How long values live, taken together; told in place."""

    inputs = {"v": "int64"}
    result = "int64"

    def initial(self, window: rc.Window) -> Any:
        return {"sum": 0}

    def _weight(self, events: Any) -> int:
        return sum((min(e.ve, LATE) - max(e.vs, -LATE)) * (e.payload["v"] or 7) for e in events)

    def add(self, state: Any, events: Any, window: rc.Window) -> Any:
        state["sum"] += self._weight(events)
        return state

    def remove(self, state: Any, events: Any, window: rc.Window) -> Any:
        state["sum"] -= self._weight(events)
        return state

    def compute(self, state: Any, window: rc.Window) -> int:
        return int(state["sum"])


class Top(rc.Operator):
    """The greatest values with their ranks; nothing if they are all negative."""

    inputs = {"v": "int64"}
    result = {"v": "int64", "rank": "int64"}
    k: int = 2

    def compute(self, payloads: Any) -> Iterable[Payload]:
        values = sorted((p["v"] for p in payloads if (p["v"] or 0) > 0), reverse=True)[: self.k]
        return [{"v": v, "rank": i} for i, v in enumerate(values, 1)]


class Echo(rc.TimeSensitiveOperator):
    """The events as they are seen, but nothing before the window."""

    result = {"v": "int64"}

    def compute(self, events: Any, window: rc.Window) -> Iterable[Event]:
        for e in events:
            vs = max(e.vs, window.start)
            if vs < e.ve:
                yield Event({"v": e.payload["v"]}, vs, e.ve)


class Last(rc.TimeSensitiveOperator):
    """The events that start last, from then to the end of the window: bound in time over any windows."""

    result = {"v": "int64"}

    def compute(self, events: Any, window: rc.Window) -> Iterable[Event]:
        last = max(e.vs for e in events)
        return [
            Event({"v": e.payload["v"]}, max(last, window.start), window.end) for e in events if e.vs == last
        ]


class KeptEcho(rc.IncrementalTimeSensitiveOperator):
    """`Echo`, told what comes and goes."""

    result = {"v": "int64"}

    def initial(self, window: rc.Window) -> Any:
        return []

    def add(self, state: Any, events: Any, window: rc.Window) -> Any:
        return [*state, *((e.payload["v"], e.vs, e.ve) for e in events)]

    def remove(self, state: Any, events: Any, window: rc.Window) -> Any:
        left = list(state)
        for e in events:
            left.remove((e.payload["v"], e.vs, e.ve))
        return left

    def compute(self, state: Any, window: rc.Window) -> Iterable[Event]:
        spans = [(v, max(vs, window.start), ve) for v, vs, ve in state]
        return [Event({"v": v}, vs, ve) for v, vs, ve in spans if vs < ve]


Meaning = Callable[[list[Event], Window], Iterable[Any]]


def whole(module: Any) -> Meaning:
    """What the module says when it is given everything at once, on plain Python values."""

    def operator(events: list[Event], window: Window) -> Iterable[Any]:
        members: Any = events if module.is_time_sensitive else [e.payload for e in events]
        timed = (rc.Window(*window),) if module.is_time_sensitive else ()
        if module.is_incremental:
            state = module.add(module.initial(*timed), members, *timed)
            answer = module.compute(state, *timed)
        else:
            answer = module.compute(members, *timed)
        return answer if module.yields_rows else [{"a": answer}]

    return operator


@dataclass(frozen=True)
class Cut:
    """A kind of windows: as the query says it and as it is meant."""

    name: str
    build: Callable[[Any], Any]
    meaning: denote.Windows
    size: int = 0
    hop: int = 0
    n: int = 0
    by: str = ""
    gap: int = 0

    def __repr__(self) -> str:
        return self.name


def _grid(size: int, hop: int, offset: int = 0) -> Cut:
    return Cut(
        f"{size} every {hop}",
        lambda s: s.hopping(size, hop, offset=offset, until=UNTIL),
        denote.hopping(size, hop, offset, UNTIL),
        size=size,
        hop=hop,
    )


def _counted(n: int, by: Any) -> Cut:
    return Cut(f"{n} {by}s", lambda s: s.count_window(n, by), denote.count_window(n, by), n=n, by=by)


def _sessions(gap: int) -> Cut:
    return Cut(f"sessions, gap {gap}", lambda s: s.sessions(gap), denote.sessions(gap), gap=gap)


CUTS = [
    _grid(5, 5),
    _grid(6, 3),
    _grid(7, 2),
    _grid(2, 5),
    Cut("snapshots", lambda s: s.snapshot(), denote.snapshot_windows()),
    _counted(1, "start"),
    _counted(2, "start"),
    _counted(3, "start"),
    _counted(2, "end"),
    _counted(3, "end"),
    _sessions(1),
    _sessions(4),
]
MODULES = [Listed, Spans, Sum, MergedSum, Weighted, Top, Echo, Last, KeptEcho]
