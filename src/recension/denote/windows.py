"""Windows: a division of time into intervals, each with the events that belong to it; and snapshots.

Source: [SI] III.B; rulings G1, G2. An event belongs to every window it overlaps; to a count window if
its start (end) lies in it; to one session. Windows that hold no event do not exist. Grouped, every group
has its own.
Snapshots: [GH] 3.1; ruling B13. Neighbouring snapshots with equal answers stay two. Grouped, only the
group's own end points cut: ``grouped(h, keys, snapshot...)``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from recension.core.errors import RecensionError
from recension.core.events import Event
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.aggregates import RowFunction
from recension.denote.intervals import saturate
from recension.denote.order import History


def snapshot(history: History, rows: RowFunction) -> History:
    """The rows of every snapshot's events, alive during the snapshot.

    >>> from recension.denote.aggregates import agg, count
    >>> h = [Event({"p": "P1"}, 1, 5), Event({"p": "P2"}, 4, 9)]
    >>> print(*snapshot(h, agg(n=count())), sep="; ")
    [1, 4) {'n': 1}; [4, 5) {'n': 2}; [5, 9) {'n': 1}
    """
    result = []
    for start, end in pairwise(end_points(history)):
        alive = [event for event in history if event.vs <= start and end <= event.ve]
        if alive:
            result += [Event(row, start, end) for row in rows(alive)]
    return result


def end_points(history: History) -> list[int]:
    """Every time at which an event starts or ends, in order, each once."""
    return sorted({event.vs for event in history} | {event.ve for event in history})


class Window(NamedTuple):
    """The interval ``[start, end)``."""

    start: int
    end: int


Windows: TypeAlias = Callable[[History], list[tuple[Window, History]]]


def tumbling(size: int, offset: int = 0, until: int | None = None) -> Windows:
    """Windows that follow each other without gap or overlap."""
    return hopping(size, size, offset, until)


def hopping(size: int, hop: int, offset: int = 0, until: int | None = None) -> Windows:
    """Windows of one size at every ``offset + k*hop``; with ``until``, those that start before it.

    >>> windows = hopping(size=6, hop=3)
    >>> [(tuple(window), len(members)) for window, members in windows([Event({}, 1, 2), Event({}, 3, 4)])]
    [((-3, 3), 1), ((0, 6), 2), ((3, 9), 1)]
    """
    if size <= 0 or hop <= 0:
        raise RecensionError(f"windows of size {size} and hop {hop}: both must be positive")

    def divide(history: History) -> list[tuple[Window, History]]:
        starts = sorted({start for event in history for start in starts_over(event)})
        return with_members([Window(saturate(start), saturate(start + size)) for start in starts], history)

    def starts_over(event: Event) -> range:
        end = event.ve if until is None else min(event.ve, until)
        if end == FOREVER:
            raise RecensionError(f"{event} never ends, nor do the windows over it: give them until=")
        if event.vs == BEGINNING:
            raise RecensionError(f"{event} has no beginning, nor do the windows over it")
        over_none = event.vs - size  # a window that starts here, or earlier, ends too early
        return range(over_none - (over_none - offset) % hop + hop, end, hop)

    return divide


def snapshot_windows() -> Windows:
    """One window between every two neighbouring end points of events."""
    return lambda history: with_members([Window(*ends) for ends in pairwise(end_points(history))], history)


def count_window(n: int, by: Literal["start", "end"] = "start") -> Windows:
    """A window from each distinct start (end) to the ``n``-th from there, one tick beyond it.

    Where fewer follow there is no window; ends at the end of time do not count.

    >>> windows = count_window(2, by="end")
    >>> [tuple(w) for w, members in windows([Event({}, 1, 2), Event({}, 3, 8), Event({}, 8, 9)])]
    [(2, 9), (8, 10)]
    """
    if n <= 0:
        raise RecensionError(f"a window of {n} events; count at least one")

    def moment(event: Event) -> int:
        return event.vs if by == "start" else event.ve

    def divide(history: History) -> list[tuple[Window, History]]:
        moments = sorted({moment(event) for event in history} - {FOREVER})
        windows = [Window(moments[i], moments[i + n - 1] + 1) for i in range(len(moments) - n + 1)]
        return [(w, [event for event in history if w.start <= moment(event) < w.end]) for w in windows]

    return divide


def sessions(gap: int) -> Windows:
    """A window for all events each of which begins before an end of those before it, plus the gap.

    >>> windows = sessions(gap=3)
    >>> events = [Event({}, 1, 2), Event({}, 4, 9), Event({}, 5, 6), Event({}, 12, 13)]
    >>> [(tuple(window), len(members)) for window, members in windows(events)]
    [((1, 9), 3), ((12, 13), 1)]
    """
    if gap <= 0:
        raise RecensionError(f"sessions with a gap of {gap}; it must be at least a tick")

    def divide(history: History) -> list[tuple[Window, History]]:
        found: list[tuple[Window, History]] = []
        for event in sorted(history, key=lambda event: event.vs):
            if found and event.vs < found[-1][0].end + gap:
                window, members = found.pop()
                found.append((Window(window.start, max(window.end, event.ve)), [*members, event]))
            else:
                found.append((Window(event.vs, event.ve), [event]))
        return found

    return divide


def with_members(windows: list[Window], history: History) -> list[tuple[Window, History]]:
    """Every window with the events it overlaps, where there are any."""
    pairs = [(w, [event for event in history if event.vs < w.end and w.start < event.ve]) for w in windows]
    return [(window, members) for window, members in pairs if members]
