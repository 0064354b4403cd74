"""A grid of windows whose boundaries are those of a calendar: days, weeks or months of a time zone.

Boundaries come from a table, which is made of the zone's rules as times ask for it and kept for the whole
process; events are placed by binary search. Boundary ``i`` is the first instant at which the clock of the
zone shows the beginning of the hop ``i``, or a later time. So boundaries never fall. Where a day is left out
two coincide, and the first of them begins no window: windows have the numbers of what remains, counted from
the hop that holds 1 January 1970, so that a number does not depend on how far the table reaches.

    hops        28 Dec     29 Dec     30 Dec = 31 Dec     1 Jan          Samoa, 2011
    windows     |--- 0 ----|--- 1 ----|--- 2 -------------|
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from recension.core.batch import Index
from recension.core.calendar import DAY, find_zone
from recension.core.errors import RecensionError
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.time_kind import AWARE, describe_time
from recension.operators.base import Chunks
from recension.operators.windowed.grid import AT_BEGINNING

_EPOCH: Final = dt.datetime(1970, 1, 1)
_TICK: Final = dt.timedelta(microseconds=1)
_MONDAY: Final = -3 * DAY
"""The week that holds 1 January 1970 begins on 29 December."""
_FIRST, _LAST = -719_162 * DAY, 2_932_896 * DAY
"""The days on which the years 1 and 9999 begin and end: zones have rules for what lies between."""
_GAP: Final = 26 * DAY // 24
"""The longest time that a clock skips is a day, and none changes again so soon after."""
_MARGIN: Final = 64
"""The table grows by so many hops at least, so that it does not grow with every batch."""
_PAGE: Final = 1 << 14
_LEFT_OUT: Final = 16
"""A zone has left out no more days than that: one or two, in places that moved over the date line."""
_EVER: Final = 10_000_000
"""No calendar has so many days."""


@dataclass(frozen=True)
class CalendarHops:
    """The hops of a calendar: ``hop`` units each, moved by months and then by ticks of the clock."""

    unit: Literal["day", "week", "month"]
    hop: int
    tz: str
    offset: int = 0
    offset_months: int = 0

    def clock(self, numbers: Index) -> Ticks:
        """What the clock shows where hops begin, as ticks since the clock showed 1 January 1970."""
        if self.unit == "month":
            months = numbers * self.hop + self.offset_months
            begin: Ticks = months.astype("datetime64[M]").astype("datetime64[us]").astype(np.int64)
            return begin + self.offset
        return numbers * self._length + (self._origin + self.offset)

    def number_near(self, t: int) -> int:
        """A hop that begins at most two hops from ``t``."""
        if self.unit == "month":
            month = int(np.datetime64(t, "us").astype("datetime64[M]").astype(np.int64))
            return (month - self.offset_months) // self.hop
        return (t - self._origin - self.offset) // self._length

    @property
    def _origin(self) -> int:
        return _MONDAY if self.unit == "week" else 0

    @property
    def _length(self) -> int:
        return self.hop * (7 if self.unit == "week" else 1) * DAY


class Boundaries:
    """Where hops begin, from hop ``first`` on: a table that grows at both ends.

    What it holds is replaced as a whole, so that threads may share it.
    """

    def __init__(self, hops: CalendarHops) -> None:
        self._hops, self._zone = hops, find_zone(hops.tz)
        self._least, self._most = hops.number_near(_FIRST) + 3, hops.number_near(_LAST) - 3
        self.table: tuple[int, Ticks] = (0, self._compute(0, 1))

    def cover(self, least: int, most: int) -> tuple[int, Ticks]:
        """The first hop of the table and where each begins; hops ``least`` to ``most`` are in it if they
        are in the calendar."""
        first, at = self.table
        stop = first + len(at)
        least, most = max(least, self._least), min(most + 1, self._most)
        if least < first or most > stop:
            # It always has the hop 0.
            least = first if least >= first else max(self._least, least - _MARGIN)
            most = stop if most <= stop else min(self._most, most + _MARGIN)
            at = np.concatenate([self._compute(least, first), at, self._compute(stop, most)])
            self.table = first, at = least, at
        return first, at

    def number_near(self, t: int) -> int:
        """A hop that begins at most two hops from ``t``, or the last on that side of the calendar."""
        return min(max(self._hops.number_near(t), self._least), self._most)

    def _compute(self, first: int, stop: int) -> Ticks:
        """The first instants at which the zone's clock shows the beginning of hops, or a later time.

        The table takes 8 bytes a hop, 23 MB for all days. What it is made of takes fifty times that, and
        so is there for some hops at a time.
        """
        pages = [self._page(at, min(at + _PAGE, stop)) for at in range(first, stop, _PAGE)]
        return np.concatenate([*pages, np.zeros(0, np.int64)])

    def _page(self, first: int, stop: int) -> Ticks:
        clock = self._hops.clock(np.arange(first, stop))
        shown, offset = _datetimes(clock), self._zone.utcoffset
        before = _ticks([offset(at) for at in shown])
        # Of a time that is shown twice this is the earlier; one that is skipped lies past the gap.
        instants = clock - before
        later = _ticks([offset(at) for at in _datetimes(clock + _GAP)])
        for row in np.flatnonzero(later > before).tolist():
            after = offset(shown[row].replace(fold=1))
            if after is not None and (early := shown[row] - after) < (
                late := _EPOCH + int(instants[row]) * _TICK
            ):
                instants[row] = (self._end_of_gap(shown[row], early, late) - _EPOCH) // _TICK
        return instants

    def _end_of_gap(self, clock: dt.datetime, early: dt.datetime, late: dt.datetime) -> dt.datetime:
        """The instant between these two from which on the clock shows later times."""
        while late - early > _TICK:
            middle = early + (late - early) // 2
            shown = self._zone.fromutc(middle.replace(tzinfo=self._zone)).replace(tzinfo=None)
            early, late = (early, middle) if shown >= clock else (middle, late)
        return late


def _datetimes(clock: Ticks) -> list[dt.datetime]:
    found: list[dt.datetime] = clock.astype("datetime64[us]").tolist()
    return found


def _ticks(offsets: list[dt.timedelta | None]) -> Ticks:
    """Offsets as ticks; a zone has few, each of which is one object."""
    known = {offset: 0 if offset is None else offset // _TICK for offset in set(offsets)}
    return np.fromiter((known[offset] for offset in offsets), np.int64, len(offsets))


@lru_cache(maxsize=256)
def boundaries_of(hops: CalendarHops) -> Boundaries:
    """The table of these hops; there is one in a process."""
    return Boundaries(hops)


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows from the number ``first`` on. Both starts and ends are in order; starts differ."""

    first: int
    starts: Ticks
    ends: Ticks


class CalendarGrid:
    """Windows of ``per_window`` hops each; ``until`` leaves only windows that start before it."""

    def __init__(self, hops: CalendarHops, per_window: int, until: int | None = None) -> None:
        self._hops, self._per_window, self._until = hops, per_window, until
        self._boundaries = boundaries_of(hops)
        self._known: tuple[Ticks, _Windows] | None = None
        self._used = FOREVER, BEGINNING
        """The first and the last window that was asked for."""

    @property
    def overlap(self) -> int:
        """In how many windows an instant lies, at most."""
        return self._per_window

    def place(self, vs: Ticks, ve: Ticks) -> tuple[Index, Index]:
        """Lifetimes on the axis of window numbers; one that meets no window is empty."""
        if bool((vs == BEGINNING).any()):
            raise RecensionError(AT_BEGINNING)
        starts, ends = vs, ve
        if self._until is not None:
            # What starts before `until` may end after it; what starts after its end meets no window.
            starts, ends = np.minimum(vs, self._last_end), np.minimum(ve, self._until)
        windows = self._windows_within(starts, ends)
        first = _number_times(windows, windows.ends, starts, "right")
        stop = _number_times(windows, windows.starts, ends, "left")
        first = first if self._until is None else np.minimum(first, self._stop)
        stop = np.where(ve == vs, first, np.maximum(first, stop))
        self._note_used(first)
        self._note_used(stop)
        return first, stop

    def start(self, window: Index) -> Ticks:
        """Where each window starts."""
        return self._times_of(window, lambda windows: windows.starts)

    def end(self, window: Index) -> Ticks:
        """Where each window ends."""
        return self._times_of(window, lambda windows: windows.ends)

    def first_ending_after(self, t: int) -> int:
        """The first window that ends after ``t``: what happens from ``t`` on changes no earlier one."""
        windows = self._windows_around(t, t)
        return int(_number_times(windows, windows.ends, np.array([t]), "right")[0])

    def first_starting_after(self, t: int) -> int:
        """The first window that starts after ``t``."""
        windows = self._windows_around(t, t)
        return int(_number_times(windows, windows.starts, np.array([t]), "right")[0])

    def open_start(self, window: int, t: int) -> int:
        """Up to where a CTI at ``t`` passes if ``window`` is the first that can still change.

        If ``until`` has cut that window away, the CTI passes as it is.
        """
        if self._until is not None and window >= self._stop:
            return t
        return min(t, int(self.start(np.array([window]))[0]))

    def panes(self) -> CalendarPanes:
        """The stretches of time that overlapping windows have in common."""
        return CalendarPanes(self._boundaries, self._per_window)

    def snapshot(self, closed: int) -> Chunks:
        """What the boundaries are of the windows from ``closed`` on that were used.

        The rules of a zone may change before the state is used again.
        """
        low, high = max(self._used[0], closed), self._used[1]
        return {
            "calendar": pa.table({"low": [low], "high": [high], "boundaries": [self._fingerprint(low, high)]})
        }

    def restore(self, chunks: Chunks) -> None:
        """Refuse a state whose windows would have other boundaries now."""
        (kept,) = chunks["calendar"].to_pylist()
        low, high = kept["low"], kept["high"]
        if kept["boundaries"] != self._fingerprint(low, high):
            starts = self.start(np.array([low, high]))
            raise RecensionError(
                f"the state has windows in {self._hops.tz} from {describe_time(int(starts[0]), AWARE)} to "
                f"{describe_time(int(starts[1]), AWARE)} whose boundaries are different now: the rules of "
                "the zone have changed; use the time zone database that it was made with, or begin without "
                "this state"
            )
        self._used = low, high

    def _fingerprint(self, low: int, high: int) -> str:
        found = b""
        if low <= high:
            windows = self._windows_numbered(low, high)
            used = slice(low - windows.first, high - windows.first + 1)
            found = windows.starts[used].tobytes() + windows.ends[used].tobytes()
        return hashlib.blake2b(found, digest_size=16).hexdigest()

    @property
    def _stop(self) -> int:
        """The first window that ``until`` cuts away."""
        assert self._until is not None
        windows = self._windows_around(self._until, self._until)
        return int(_number_times(windows, windows.starts, np.array([self._until]), "left")[0])

    @property
    def _last_end(self) -> int:
        """Where the last window ends that starts before ``until``."""
        assert self._until is not None
        windows = self._windows_around(self._until, self._until)
        return int(windows.ends[np.searchsorted(windows.starts, self._until) - 1])

    def _windows_within(self, starts: Ticks, ends: Ticks) -> _Windows:
        """The windows that lifetimes meet; refuses those that leave the calendar."""
        finite = [times[times < FOREVER] for times in (starts, ends)]
        low = min(int(times.min(initial=0)) for times in finite)
        high = max(int(times.max(initial=0)) for times in finite)
        windows = self._windows_around(low, high)
        for t in (low, high):
            if not (len(windows.starts) and windows.ends[0] <= t <= windows.starts[-1]):
                raise RecensionError(
                    f"an event that starts or ends at {describe_time(t, AWARE)} lies beyond the calendar of "
                    "windows, which has the years 1 to 9999; shorten it, or name a last start with until="
                )
        return windows

    def _windows_around(self, low: int, high: int) -> _Windows:
        """All windows of the table, after it has been made to hold those near two times."""
        if low in (BEGINNING, FOREVER):
            low = high = 0
        near = self._boundaries.number_near
        return self._windows(near(low) - self._per_window - 3, near(high) + self._per_window + 3)

    def _windows_numbered(self, low: int, high: int) -> _Windows:
        """The same for windows by number: the number of a hop, but for the few days that are left out."""
        low, high = (min(max(number, -_EVER), _EVER) for number in (low, high))
        return self._windows(low - _LEFT_OUT, high + self._per_window + _LEFT_OUT)

    def _windows(self, least: int, most: int) -> _Windows:
        # With the window of the hop 0, from which they are counted.
        first, at = self._boundaries.cover(least, max(most, self._per_window + 1))
        if self._known is None or self._known[0] is not at:
            starts, ends = at[: -self._per_window], at[self._per_window :]
            is_window = (at[:-1] < at[1:])[: len(starts)]
            number = -int(np.count_nonzero(is_window[:-first])) if first else 0
            self._known = at, _Windows(number, starts[is_window], ends[is_window])
        return self._known[1]

    def _times_of(self, window: Index, read: Callable[[_Windows], Ticks]) -> Ticks:
        finite = window[(window > BEGINNING) & (window < FOREVER)]
        if len(finite):
            windows = self._windows_numbered(int(finite.min()), int(finite.max()))
            self._note_used(finite)
        else:
            windows = self._windows_around(0, 0)
        at = read(windows)
        # A CTI beyond the calendar has the number after the last.
        found = at[np.clip(window, windows.first, windows.first + len(at) - 1) - windows.first]
        found = np.where(window == BEGINNING, np.int64(BEGINNING), found)
        return np.where(window == FOREVER, np.int64(FOREVER), found)

    def _note_used(self, window: Index) -> None:
        finite = window[window < FOREVER]
        if len(finite):
            self._used = min(self._used[0], int(finite.min())), max(self._used[1], int(finite.max()))


def _number_times(windows: _Windows, at: Ticks, times: Ticks, side: Literal["left", "right"]) -> Index:
    """The first window whose start or end, given in ``at``, is after each time (``left``: or at it)."""
    found = windows.first + np.searchsorted(at, times, side)
    found = np.where(times == BEGINNING, np.int64(BEGINNING), found)
    return np.where(times == FOREVER, np.int64(FOREVER), found)


class CalendarPanes:
    """Hops as panes: every window consists of ``per_window``; a day that is left out is an empty one."""

    def __init__(self, boundaries: Boundaries, per_window: int) -> None:
        self._boundaries, self.per_window = boundaries, per_window

    def number(self, time: Ticks) -> Index:
        """The pane each time lies in."""
        near = [self._boundaries.number_near(int(t)) for t in (time.min(initial=0), time.max(initial=0))]
        first, at = self._boundaries.cover(near[0] - 3, near[1] + 3)
        return first + np.searchsorted(at, time, "right") - 1

    def start(self, pane: int) -> int:
        """Where a pane starts."""
        first, at = self._boundaries.cover(pane, pane)
        return int(at[pane - first])

    def end(self, pane: int) -> int:
        """Where it ends."""
        return self.start(pane + 1)
