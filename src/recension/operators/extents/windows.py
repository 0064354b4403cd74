"""Sliding windows over readings: which slides a batch concerns, what they look at, and what they show.

Time-based: at every multiple ``y`` of the slide the readings of ``[y - span, y]``, shown once the watermark
has passed ``y``. Tuple-based: after every slide-th reading the latest ``size`` of them, those that the
watermark has passed being counted; an answer lasts until the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.netting import expand
from recension.core.ticks import BEGINNING, FOREVER, Ticks, add
from recension.core.window_limit import USUAL, WindowLimit
from recension.operators.extents.extent import Extent, Stretch
from recension.operators.extents.query import ReadingRuns, Region


@dataclass(frozen=True, slots=True)
class Marks:
    """The watermark before and after a batch, and between which times readings come or go, if any do."""

    old: int
    new: int
    first: int = FOREVER
    last: int = BEGINNING
    come: int = 0
    """How many more readings there are that the watermark had passed."""
    passed: int = 0
    """How many more there are of those that it passes now."""

    @property
    def is_quiet(self) -> bool:
        """Does no reading come or go?"""
        return self.first > self.last


@dataclass(frozen=True, slots=True)
class SlideAnswers:
    """Rows of answers: the reading that leads each run, up to where it is valid, and when that is shown."""

    at: Index
    end: Ticks
    vs: Ticks
    ve: Ticks


class SlidingWindow(Protocol):
    """What the two kinds of windows have in common."""

    @property
    def has_order_in_ties(self) -> bool:
        """Does it matter which of the readings of one time comes first?"""

    def find_stretch(self, extent: Extent, marks: Marks, *, links: bool) -> tuple[Stretch, bool] | None:
        """The readings to look at and whether there is anything to show; None if nothing is to be done.

        ``links``: also read the neighbours that may be linked with a change.
        """

    def has_all_neighbours(self, stretch: Stretch, marks: Marks) -> tuple[bool, bool]:
        """Does a stretch have all that may be linked with what comes and goes, before it and after it?"""

    def answers(self, region: Region, before: int, marks: Marks) -> tuple[SlideAnswers, SlideAnswers]:
        """What was shown and what is to be shown, where they may differ; ``before``: readings before it."""

    def count_forgettable(self, extent: Extent, t: int) -> int:
        """How many of the first readings no change after ``t`` can make matter again."""


@dataclass(frozen=True)
class RangeWindow:
    """Time-based; both ends belong to the window (coalescing ruling 1)."""

    span: int
    slide: int
    limit: WindowLimit = USUAL
    has_order_in_ties = False

    def find_stretch(self, extent: Extent, marks: Marks, *, links: bool) -> tuple[Stretch, bool] | None:
        is_due = self._first_from(marks.old) < marks.new
        last = min(marks.last + self.span, marks.old - 1)
        shows = is_due or (not marks.is_quiet and self._first_from(marks.first) <= last)
        if not shows and marks.is_quiet:
            return None
        low, high = marks.first, marks.last
        if shows:
            low, high = low - self.span, high + self.span
        if is_due:
            low, high = min(low, marks.old - self.span), max(high, marks.new)
        return extent.read_between(max(low, BEGINNING), min(high, FOREVER)), shows

    def find_due_slides(self, marks: Marks, most: int) -> Sequence[int]:
        """The slides that are passed now, if no other is concerned and they are not too many."""
        first = self._first_from(marks.old)
        if marks.first <= min(marks.last + self.span, marks.old - 1) or marks.new - first > most * self.slide:
            return ()
        return range(first, marks.new, self.slide)

    def has_all_neighbours(self, stretch: Stretch, marks: Marks) -> tuple[bool, bool]:
        if not len(time := stretch.columns["time"]):
            return False, False
        return int(time[0]) < marks.first - self.span, int(time[-1]) > marks.last + self.span

    def _first_from(self, t: int) -> int:
        return -(-t // self.slide) * self.slide

    def answers(self, region: Region, before: int, marks: Marks) -> tuple[SlideAnswers, SlideAnswers]:
        new = region.runs(region.is_new, region.begins, region.time)
        due = self._find_answers(new, np.arange(len(new)), marks.old, marks.new - 1)
        last = min(marks.last + self.span, marks.old - 1)
        if last < marks.first:  # no slide that was shown is concerned
            return _no_answers(), due
        old = region.runs(region.is_old, region.began, region.time)
        was = self._find_answers(old, _find_touched(region, old), marks.first, last)
        now = self._find_answers(new, _find_touched(region, new), marks.first, last)
        return was, SlideAnswers(
            *(np.concatenate([getattr(p, n) for p in (now, due)]) for n in SlideAnswers.__slots__)
        )

    def _find_answers(self, runs: ReadingRuns, of: Index, low: int, high: int) -> SlideAnswers:
        """What some readings show at the slides of ``[low, high]``."""
        if high < low:
            return _no_answers()
        first, last = (places[of] for places in runs.windows(self.span))
        first, last = np.maximum(first, low), np.minimum(last, min(high, FOREVER - 1))
        slides = _multiples(first, last, self.slide)
        self.limit.check(*slides, lambda number: number * self.slide)
        owner, number = expand(*slides)
        i, y = of[owner], number * self.slide
        return SlideAnswers(runs.at[i], runs.ends(i, y), y, add(y, self.slide))

    def count_forgettable(self, extent: Extent, t: int) -> int:
        """What is not before ``t`` may still be taken back, though no window may hold it."""
        return extent.count_before(max(min(self._first_from(t) - self.span, t), BEGINNING))


@dataclass(frozen=True)
class RowsWindow:
    """Tuple-based; readings of one time count in the order of their groups."""

    size: int
    slide: int
    has_order_in_ties = True

    @property
    def _margin(self) -> int:
        """So many readings before a change decide what is shown of it, and what the last answer was."""
        return self.size + self.slide

    def find_stretch(self, extent: Extent, marks: Marks, *, links: bool) -> tuple[Stretch, bool] | None:
        if marks.is_quiet and marks.old == marks.new:
            return None
        if not self._is_concerned(extent, marks):
            return None if marks.is_quiet else (extent.read_between(marks.first, marks.last), False)
        low = min(marks.first, marks.old) if marks.new > marks.old else marks.first
        high = FOREVER if self._shifts(marks) else marks.last
        return extent.read_around(low, high, self._margin, self._margin), True

    def _is_concerned(self, extent: Extent, marks: Marks) -> bool:
        """Does a changed reading affect an answer, before or after?"""
        times = (min(marks.first, marks.old), marks.old, marks.new)
        first, old, new = (extent.forgotten + extent.count_before(t) for t in times)
        return first // self.slide != max(old, new + marks.come + marks.passed) // self.slide

    def has_all_neighbours(self, stretch: Stretch, marks: Marks) -> tuple[bool, bool]:
        """A window may hold readings of any time."""
        return False, False

    def _shifts(self, marks: Marks) -> bool:
        """Do all later readings count otherwise than before, or are there new ones to count?"""
        return marks.new > marks.old or marks.come % self.slide != 0

    def answers(self, region: Region, before: int, marks: Marks) -> tuple[SlideAnswers, SlideAnswers]:
        was, now = region.is_old & (region.time < marks.old), region.is_new & (region.time < marks.new)
        changed = np.flatnonzero(was != now)
        if not len(changed):
            return _no_answers(), _no_answers()
        first = before + int(was[: changed[0]].sum())
        low, until = first // self.slide * self.slide, None if self._shifts(marks) else int(changed[-1]) + 1
        old = self._find_answers(region, was, region.began, before, low, until)
        return old, self._find_answers(region, now, region.begins, before, low, until)

    def _find_answers(
        self, region: Region, side: Mask, begins: Mask, before: int, low: int, until: int | None
    ) -> SlideAnswers:
        """The answers from number ``low`` on, to the last that holds what stands before ``until``."""
        number, times = before + np.cumsum(side), region.time[side]
        runs = region.runs(side, begins, number)
        high = before + (len(times) if until is None else int(side[:until].sum()) + self.size)
        first, last = runs.windows(self.size - 1)
        first, last = np.maximum(first, max(low, 1)), np.minimum(last, min(high, before + len(times)))
        owner, count = expand(*_multiples(first, last, self.slide))
        y = count * self.slide
        vs, following = times[y - before - 1], np.minimum(y + self.slide - before - 1, len(times))
        ve = np.append(times, FOREVER)[following]
        lasts = vs < ve
        i, y = owner[lasts], y[lasts]
        return SlideAnswers(runs.at[i], runs.ends(i, y), vs[lasts], ve[lasts])

    def count_forgettable(self, extent: Extent, t: int) -> int:
        return extent.count_before(t) - self._margin


def _no_answers() -> SlideAnswers:
    none = np.zeros(0, np.int64)
    return SlideAnswers(none, none, none, none)


def _multiples(first: Index, last: Index, step: int) -> tuple[Index, Index]:
    """The multiples of a step in ``[first, last]`` as a range of numbers ``[from, to)``."""
    quotient, rest = np.divmod(first, step)
    return quotient + (rest > 0), last // step + 1


def _find_touched(region: Region, runs: ReadingRuns) -> Index:
    """The readings of a side between whose neighbours, or in whose run, a reading comes or goes."""
    order = np.argsort(region.group, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    changes = np.append(0, np.cumsum(region.is_changed[order]))
    ends = np.append(np.flatnonzero(np.diff(region.group[order]) != 0) + 1, len(order))
    own = place[runs.at]
    group_end = ends[np.searchsorted(ends, own, "right")] if len(own) else own
    group_start = np.append(0, ends)[np.searchsorted(ends, own, "right")] if len(own) else own
    low = np.where(runs.has_previous, np.append(0, own[:-1])[: len(own)], group_start)
    inside = np.minimum(runs.following, max(len(own) - 1, 0))
    is_same = (runs.following < len(own)) & (runs.group[inside] == runs.group)
    high = np.where(is_same, own[inside] + 1, group_end)
    return np.flatnonzero(changes[high] > changes[low])
