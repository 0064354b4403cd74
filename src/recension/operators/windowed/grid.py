"""A grid of windows: window ``i`` is ``[offset + i·hop, offset + i·hop + size)``.

An event belongs to every window it overlaps (ruling G1). Those are consecutive, so that on the axis of
window numbers an event is again an interval, and an aggregate over windows is one over snapshots there.

Windows that reach beyond an end of time begin or end there (ruling A7), but are numbered as if time went on.
So times are divided by the hop before anything is taken from them: differences may not fit, quotients do.
Nothing else knows of size and hop: the index asks for numbers and lifetimes.

With a hop of one tick there are more windows than numbers. Below `GAP`, a time that nobody uses, windows are
then numbered by their ends instead of their starts; those around it have no number, and no event may be in
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Final

import numpy as np

from recension.core.batch import Index
from recension.core.errors import RecensionError
from recension.core.ticks import BEGINNING, FOREVER, Ticks, add
from recension.operators.base import Chunks

GAP: Final = -(2**62)
AT_BEGINNING: Final = (
    "an event that starts at the beginning of time starts too early: windows there cannot be numbered"
)
NEAR_GAP: Final = f"an event within a window of {GAP} starts too early: windows there cannot be numbered"


@dataclass(frozen=True, slots=True)
class Grid:
    """``until`` leaves only windows that start before it."""

    size: int
    hop: int
    offset: int = 0
    until: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "offset", self.offset % self.hop)

    @property
    def overlap(self) -> int:
        """In how many windows an instant lies, at most."""
        return -(-self.size // self.hop)

    def place(self, vs: Ticks, ve: Ticks) -> tuple[Index, Index]:
        """Lifetimes on the axis of window numbers; one that meets no window is empty."""
        if self.hop == 1 and bool(
            ((vs < self._start_of_high_numbers) & (ve > self._end_of_low_numbers)).any()
        ):
            raise RecensionError(NEAR_GAP)
        first = self._first_overlapping(vs)
        stop = np.maximum(first, self._first_starting_from(ve))
        is_empty = ve == vs
        return first, np.where(is_empty, first, stop) if bool(is_empty.any()) else stop

    def _first_overlapping(self, vs: Ticks) -> Index:
        """The first window that an event starting at ``vs`` overlaps."""
        if bool((vs == BEGINNING).any()):
            raise RecensionError(AT_BEGINNING)
        hops, past = divmod(self.size + self.offset, self.hop)
        if self.hop == 1:
            return self._cut_at_until(np.where(vs < self._start_of_high_numbers, vs, add(vs, -hops)) + 1)
        whole, rest = self._divide(vs)
        whole -= hops
        whole += rest >= past
        return self._cut_at_until(whole)

    def _first_starting_from(self, ve: Ticks) -> Index:
        """The first window that starts at or after ``ve``; FOREVER for an event that never ends."""
        if self.hop == 1:
            window = np.where(ve <= self._end_of_low_numbers, add(ve, self.size), ve)
        else:
            whole, rest = self._divide(ve)
            window = whole
            window += rest > self.offset
        is_endless = ve == FOREVER
        if bool(is_endless.any()):
            window = np.where(is_endless, np.int64(FOREVER), window)
        return self._cut_at_until(window)

    def _divide(self, times: Ticks) -> tuple[Index, Index]:
        """Quotient and remainder by the hop; the remainder takes a product, not another division."""
        whole = times // self.hop
        rest = whole * -self.hop
        rest += times
        return whole, rest

    @property
    def _end_of_low_numbers(self) -> int:
        """Events that end by then are in windows numbered by their ends."""
        return _saturate(GAP - self.size)

    @property
    def _start_of_high_numbers(self) -> int:
        """Events that start from then on are in windows numbered by their starts."""
        return _saturate(GAP + self.size - 1)

    def _cut_at_until(self, window: Index) -> Index:
        return window if self.until is None else np.minimum(window, self._stop_of(self.until))

    def _stop_of(self, until: int) -> int:
        """The first window that ``until`` cuts away."""
        return -((self.offset - until) // self.hop)

    def open_start(self, window: int, t: int) -> int:
        """Up to where a CTI at ``t`` passes if ``window`` is the first that can still change.

        If ``until`` has cut that window away, the CTI passes as it is.
        """
        if self.until is not None and self.hop > 1 and window >= self._stop_of(self.until):
            return t
        return min(t, int(self.start(np.array([window]))[0]))

    def start(self, window: Index) -> Ticks:
        """Where each window starts."""
        if self.hop == 1:
            return np.where(window < GAP, add(window, -self.size), window)
        return self._time_at(window, self.offset)

    def end(self, window: Index) -> Ticks:
        """Where each window ends."""
        if self.hop == 1:
            return np.where(window < GAP, window, add(window, self.size))
        return self._time_at(window, self.offset + self.size)

    def _time_at(self, window: Index, shift: int) -> Ticks:
        """``shift + window * hop``, saturated."""
        low, high = _saturate(-((shift - BEGINNING) // self.hop)), _saturate((FOREVER - shift) // self.hop)
        if low <= int(window.min(initial=high)) and int(window.max(initial=low)) <= high:
            return window * self.hop + _wrap(shift)
        within = np.clip(window, low, high)
        # A product that wraps comes back with the shift: the sum fits.
        at = within * self.hop + _wrap(shift)
        at = np.where(window < low, np.int64(BEGINNING), at)
        return np.where(window > high, np.int64(FOREVER), at)

    def first_ending_after(self, t: int) -> int:
        """The first window that ends after ``t``: what happens from ``t`` on changes no earlier one."""
        return self._first_after(t, t - self.size)

    def first_starting_after(self, t: int) -> int:
        """The first window that starts after ``t``."""
        return self._first_after(t, t)

    def snapshot(self, closed: int) -> Chunks:
        """Nothing: size and hop say where windows are."""
        return {}

    def restore(self, chunks: Chunks) -> None:
        """Nothing was kept."""

    def panes(self) -> GridPanes:
        """The stretches of time that overlapping windows have in common."""
        width = gcd(self.size, self.hop)
        return GridPanes(width, self.offset % width, self.size // width)

    def _first_after(self, t: int, start: int) -> int:
        """The first window that starts after ``start``; at the ends of time, before or after all windows."""
        if t in (BEGINNING, FOREVER):
            return t
        window = (start - self.offset) // self.hop + 1
        if self.hop == 1 and window < GAP:
            return min(window + self.size, GAP)
        return _saturate(window)


def _wrap(shift: int) -> int:
    """A number as sums of 64 bits have it."""
    return (shift + 2**63) % 2**64 - 2**63


def _saturate(window: int) -> int:
    return max(BEGINNING, min(FOREVER, window))


@dataclass(frozen=True, slots=True)
class GridPanes:
    """Time cut evenly so that every window consists of ``per_window`` panes, each ``width`` long."""

    width: int
    offset: int
    per_window: int

    def number(self, time: Ticks) -> Index:
        """The pane each time lies in."""
        return (time - self.offset) // self.width

    def start(self, pane: int) -> int:
        """Where a pane starts."""
        return pane * self.width + self.offset

    def end(self, pane: int) -> int:
        """Where it ends."""
        return self.start(pane) + self.width
