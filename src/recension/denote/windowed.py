"""Window operators: a module run on the events of every window, and what becomes of their lifetimes.

Source: [SI] III.C (input clipping, output timestamping) and IV; ruling G10; the guide. Modules that know
no time see the events as they are, and their results live as long as the window. Time-sensitive ones
see events clipped to the window. Members come in (vs, payload, ve) order: the end is the last to tell two
of them apart, so that the order says nothing of an end that was clipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from recension.core.errors import RecensionError
from recension.core.events import Event, Payload
from recension.core.ticks import BEGINNING
from recension.denote.aggregates import Aggregate, RowFunction
from recension.denote.lineage import Bases, Basis, Lineage, Region, Seen, Words, region_of
from recension.denote.order import History, Key, key_of, payload_order
from recension.denote.windows import Window, Windows

Clipping: TypeAlias = Literal["none", "left", "right", "full"]
Stamping: TypeAlias = Literal["align", "keep", "clip", "time_bound", "unrestricted"]
Operator: TypeAlias = Callable[[History, Window], Iterable[Payload | Event]]


@dataclass(frozen=True)
class TimeSensitive:
    """An aggregate that reads lifetimes: a value of the clipped events and their window."""

    compute: Callable[[History, Window], Any]


def window_aggregate(history: History, windows: Windows, rows: RowFunction) -> History:
    """The rows of every window's events, alive during the window.

    >>> from recension.denote import agg, sum, tumbling
    >>> print(*window_aggregate([Event({"x": 4}, 3, 7)], tumbling(5), agg(total=sum("x"))), sep="; ")
    [0, 5) {'total': 4}; [5, 10) {'total': 4}
    """
    return window_apply(history, windows, lambda events, window: rows(events), clip="none")


def window_apply(
    history: History,
    windows: Windows,
    operator: Operator,
    clip: Clipping = "full",
    stamp: Stamping = "align",
) -> History:
    """What the operator yields for every window: payloads, or events that say when they are valid.

    >>> from recension.denote import tumbling
    >>> echo = lambda events, window: events
    >>> print(*window_apply([Event({}, 3, 7)], tumbling(5), echo, clip="left", stamp="keep"), sep="; ")
    [3, 7) {}; [5, 7) {}
    """
    result: History = []
    for window, members in windows(history):
        events = [clip_event(event, window, clip) for event in sorted(members, key=_by_start)]
        for output in operator(events, window):
            result += stamp_event(output, window, stamp)
    return result


def window_measure(
    history: History,
    windows: Windows,
    named: Mapping[str, Aggregate | TimeSensitive],
    clip: Clipping = "full",
) -> History:
    """One row a window from aggregates of both kinds; only the time-sensitive ones see clipped events.

    >>> from recension.denote import count, tumbling
    >>> busy = TimeSensitive(lambda events, window: sum(e.ve - e.vs for e in events))
    >>> print(*window_measure([Event({}, 3, 6)], tumbling(5), {"busy": busy, "n": count()}), sep="; ")
    [0, 5) {'busy': 2, 'n': 1}; [5, 10) {'busy': 1, 'n': 1}
    """

    def row(events: History, window: Window) -> list[Payload]:
        inside = [clip_event(event, window, clip) for event in events]
        return [
            {
                name: one.compute(inside, window) if isinstance(one, TimeSensitive) else one(events)
                for name, one in named.items()
            }
        ]

    return window_apply(history, windows, row, clip="none")


def time_weighted_mean(column: str) -> TimeSensitive:
    """The mean of the values that are not null, each weighted by how long its event lives in the window.

    >>> from recension.denote import tumbling
    >>> events = [Event({"x": 1}, 0, 9), Event({"x": 5}, 9, 20)]
    >>> print(window_measure(events, tumbling(10), {"mean": time_weighted_mean("x")})[0])
    [0, 10) {'mean': 1.4}
    """

    def compute(events: History, window: Window) -> float | None:
        known = [event for event in events if event.payload[column] is not None]
        parts = [(event.payload[column], event.ve - event.vs) for event in known if event.ve > event.vs]
        weight = sum(length for _, length in parts)
        if not weight:
            return None
        if not all(math.isfinite(value) for value, _ in parts):
            return sum(float(value) for value, length in parts)
        return float(sum(Fraction(value) * length for value, length in parts) / weight)

    return TimeSensitive(compute)


def _by_start(event: Event) -> Key:
    return (event.vs, payload_order(event.payload), event.ve)


def clip_event(event: Event, window: Window, clip: Clipping) -> Event:
    """The event with its start, its end, both or neither cut to the window.

    A count window by end holds events that end where it starts: cut on the left, those are empty.
    """
    vs = max(event.vs, window.start) if clip in ("left", "full") else event.vs
    ve = min(event.ve, window.end) if clip in ("right", "full") else event.ve
    return Event(event.payload, vs, ve)


def stamp_event(output: Payload | Event, window: Window, stamp: Stamping) -> History:
    """The output with the lifetime that the policy gives it, or nothing if clipping leaves it empty.

    A bare payload gets the window. ``keep`` refuses a start before the window. ``time_bound`` is a
    statement about revisions; in the history left at the end it is the same as ``keep``.
    """
    if not isinstance(output, Event):
        return [Event(output, *window)]
    if stamp == "align":
        return [Event(output.payload, *window)]
    if stamp == "clip":
        cut = clip_event(output, window, "full")
        return [cut] if cut.vs < cut.ve else []
    if output.vs < window.start and stamp != "unrestricted":
        raise RecensionError(f"a module put {output} before its window {tuple(window)}")
    if output.ve <= output.vs:
        raise RecensionError(f"a module gave {output} an empty lifetime")
    return [output]


Relevant: TypeAlias = Callable[[Event, History], History]
"""Of an answer and the events of its window, those on which it rests."""
GroupOf: TypeAlias = Callable[[History], Sequence[Key]]
"""The group of each event."""


class GroupLineage(Lineage):
    """What the answer of a group's window rests on.

    ``keys`` are the columns of an answer that name its group, ``columns`` those of them that the input has.
    """

    def __init__(
        self, keys: Sequence[str], columns: Mapping[str, str], group_of: GroupOf, relevant: Relevant
    ) -> None:
        super().__init__([columns])
        self._keys, self._group_of, self._relevant = keys, group_of, relevant

    def members(self, event: Event, there: Region, inputs: Sequence[Seen]) -> History:
        """The events of the answer's group in a region."""
        found = inputs[0].touching(there)
        wanted = key_of(event.payload, self._keys)
        return [e for e, group in zip(found, self._group_of(found), strict=True) if group == wanted]

    def absence(self, region: Region, inputs: Sequence[Seen], output: Seen) -> Bases:
        """The events in the windows there, and none that is new in them."""
        around = self.around(region, output)
        return [Basis(inputs[0].touching(around.below(self.columns[0])), self.reach(around))]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        counted = words.count(0, bases[0].kept)
        return f"{counted} in the window {words.lifetime(event)}: {words.names(bases[0].kept)}"


class SnapshotLineage(GroupLineage):
    """What the answer of a snapshot rests on: events alive then and those that bound it, none within."""

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        there = region_of(event).below(self.columns[0])
        near = self.members(event, there, inputs)
        kept = self._relevant(event, [e for e in near if e.vs <= event.vs and event.ve <= e.ve])
        for end in (event.vs, event.ve):
            if not any(end in (e.vs, e.ve) for e in kept):
                kept = kept + [e for e in near if end in (e.vs, e.ve)]
        return [Basis(kept, [there])]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        alive = [e for e in bases[0].kept if e.vs <= event.vs and event.ve <= e.ve]
        bounds = [e for e in bases[0].kept if not (e.vs <= event.vs and event.ve <= e.ve)]
        bounded = f"; bounded by {words.names(bounds)}" if bounds else ""
        return f"{words.count(0, alive)} alive in {words.lifetime(event)}: {words.names(alive)}{bounded}"


class GridLineage(GroupLineage):
    """What a window on a grid rests on: events that overlap it. ``length``: no window is longer."""

    def __init__(self, *of: Any, length: int) -> None:
        super().__init__(*of)
        self._length = length

    def reach(self, region: Region) -> list[Region]:
        return [super().reach(region)[0].stretch(self._length, self._length)]

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        there = region_of(event).below(self.columns[0])
        inside = [e for e in self.members(event, there, inputs) if e.vs < event.ve and event.vs < e.ve]
        return [Basis(self._relevant(event, inside), [there])]


class SessionLineage(GroupLineage):
    """What the answer of a session rests on: all its events, and that none is nearer than the gap."""

    def __init__(self, *of: Any, gap: int) -> None:
        super().__init__(*of)
        self._gap = gap

    def reach(self, region: Region) -> list[Region]:
        return [super().reach(region)[0].stretch(self._gap, self._gap)]

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        (there,) = self.reach(region_of(event))
        inside = [e for e in self.members(event, there, inputs) if e.vs < event.ve and event.vs < e.ve]
        return [Basis(inside, [there])]


class CountLineage(GroupLineage):
    """What the answer of a count window rests on: all events that it counts, and that there are no others."""

    def __init__(self, *of: Any, n: int, by: Literal["start", "end"]) -> None:
        super().__init__(*of)
        self._n, self._by = n, by

    def reach(self, region: Region) -> list[Region]:
        return [super().reach(region)[0].for_ever()]

    def _moment(self, event: Event) -> int:
        return event.vs if self._by == "start" else event.ve

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        there = region_of(event).below(self.columns[0])
        near = self.members(event, there, inputs)
        return [Basis([e for e in near if event.vs <= self._moment(e) < event.ve], [there])]

    def absence(self, region: Region, inputs: Sequence[Seen], output: Seen) -> Bases:
        """The moments in the windows there, and for each group as many before as keep other windows away."""
        around = self.around(region, output)
        there = super().reach(region)[0].for_ever()
        found = inputs[0].touching(there)
        kept: History = []
        for group in dict.fromkeys(groups := self._group_of(found)):
            own = [e for e, mine in zip(found, groups, strict=True) if mine == group]
            before = sorted({self._moment(e) for e in own if self._moment(e) < around.start})
            since = before[-self._n] if len(before) >= self._n else BEGINNING
            kept += [e for e in own if since <= self._moment(e) <= around.end]
        return [Basis(kept, [there])]
