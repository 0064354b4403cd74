"""Runs of readings that go on with each other, and what a window shows of them.

    readings of a group    a1  a3  a5      b9         runs a{1,3,5}, b{9}
    a window over [2, 7]      |a3  a5|                a from 3, its first in the window, to 5, its last
    a window over [4, 9]          |a5      b9|        a from 5 to 9, where the next run begins; b at 9

A reading shows in the windows in which it is the first of its run: that begins with it, or whose earlier
readings have left. So each reading has one range of windows, and an answer costs what it shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.ticks import Ticks, add


@dataclass(frozen=True, slots=True)
class Runs:
    """Readings of one side, before or after a batch, by group and place.

    ``at`` is where each stands among the readings of both sides. ``x`` is its place in the sense of the
    window, a time or a number; ``previous`` that of the one before it in its group, if ``has_previous``.
    ``following`` is the position of the next run's first reading, or of the next group's.
    """

    at: Index
    group: Index
    time: Ticks
    x: Index
    begins: Mask
    has_previous: Mask
    following: Index

    def __len__(self) -> int:
        return len(self.at)

    def windows(self, width: int) -> tuple[Index, Index]:
        """The first and the last place of a window, ``width`` wide, in which each reading leads its run."""
        last = add(self.x, width)
        left = add(np.append(0, self.x[:-1])[: len(self.x)], width)
        after = np.maximum(self.x, np.where(left == np.iinfo(np.int64).max, left, left + 1))
        return np.where(self.begins, self.x, after), last

    def ends(self, i: Index, y: Index) -> Ticks:
        """Up to where the run that reading ``i`` leads is valid in the window at ``y``."""
        following = self.following[i]
        inside = np.minimum(following, len(self) - 1)
        is_over = (following < len(self)) & (self.group[inside] == self.group[i]) & (self.x[inside] <= y)
        ends = self.time[inside]
        open_ = np.flatnonzero(~is_over)
        ends[open_] = self.time[self._last_until(i[open_], following[open_], y[open_])]
        return ends

    def _last_until(self, low: Index, high: Index, y: Index) -> Index:
        """The last of the readings ``[low, high)`` whose place is at most ``y``; that of the first is."""
        low, high = low.copy(), high.copy()
        while bool((high - low > 1).any()):
            middle = (low + high) >> 1
            is_inside = self.x[np.minimum(middle, len(self) - 1)] <= y
            narrower = high - low > 1
            low = np.where(narrower & is_inside, middle, low)
            high = np.where(narrower & ~is_inside, middle, high)
        return low


def runs_of(at: Index, group: Index, time: Ticks, x: Index, begins: Mask) -> Runs:
    """The runs of readings sorted by (group, place); the first of a group always begins one."""
    is_first = np.append(True, group[1:] != group[:-1])[: len(group)]
    starts = begins | is_first
    places = np.append(np.flatnonzero(starts), len(group))
    following = places[np.cumsum(starts)]
    return Runs(at, group, time, x, starts, ~is_first, following)
