"""Numbered windows: an event is an interval of window numbers, and so is what a batch changes.

Windows have numbers in the order of their starts and of their ends, whatever events there are: those of a
grid, or any others with boundaries that are known beforehand.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, new_end, old_end
from recension.core.errors import RecensionError
from recension.core.netting import expand
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.time_kind import describe_time_in_message
from recension.core.values import rows_of
from recension.core.window_limit import USUAL, TooManyWindowsError, WindowLimit
from recension.operators.base import Chunks
from recension.operators.state.end_points import EndPoints
from recension.operators.windowed.events import Placement
from recension.operators.windowed.index import (
    Closing,
    ExpandedWindows,
    IndexSpec,
    WindowChange,
    WindowIndex,
    changed_stretches,
)
from recension.operators.windowed.steps import AxisSteps, Contributions, PointChanges, axis_steps, sum_points
from recension.operators.windowed.working_set import (
    AxisSide,
    WorkingSet,
    merge_steps,
    next_in_group,
    state_columns,
)

ENDLESS: Final = "windows over an event that never ends go on for ever: name a last start with until="


_NONE: Final = np.zeros(0, np.int64)


def _is_all(limit: Index | np.int64) -> bool:
    """Is it known that nothing is beyond the limit?"""
    return not isinstance(limit, np.ndarray) and limit == FOREVER


class Numbering(Protocol):
    """Windows by their numbers. BEGINNING and FOREVER are before and after all of them."""

    def place(self, vs: Ticks, ve: Ticks) -> tuple[Index, Index]:
        """The windows ``[first, stop)`` that lifetimes overlap; none of an empty one."""

    def start(self, window: Index) -> Ticks:
        """Where each window starts."""

    def end(self, window: Index) -> Ticks:
        """Where each window ends."""

    def first_ending_after(self, t: int) -> int:
        """The first window that ends after ``t``."""

    def first_starting_after(self, t: int) -> int:
        """The first window that starts after ``t``."""

    def open_start(self, window: int, t: int) -> int:
        """Up to where a CTI at ``t`` passes if ``window`` is the first that can still change."""

    def snapshot(self, closed: int) -> Chunks:
        """What to keep of the boundaries from the window ``closed`` on, if others may be found later."""

    def restore(self, chunks: Chunks) -> None:
        """Refuse a state whose boundaries were others."""


class NumberedIndex(WindowIndex):
    """Numbered windows; a stretch stands for all the windows in it."""

    is_fixed = True

    def __init__(self, spec: IndexSpec, numbering: Numbering, limit: WindowLimit = USUAL) -> None:
        super().__init__(EndPoints(state_columns(spec.ints, spec.pairs), spec.key_schema), spec)
        self._numbering, self._limit_of_windows = numbering, limit
        self._closed = BEGINNING

    @property
    def place(self) -> Placement | None:
        return self._numbering.place

    def change(self, batch: EventBatch, group: Index, amounts: Contributions, watermark: int) -> WindowChange:
        coming = self._find_newly_visible(watermark)
        if not len(batch) and not len(coming[0]):
            return self._move_to(watermark)
        work = merge_steps(self._points, self._steps(batch, group, amounts, coming))
        low, had, has = self._compare(work, watermark)
        high = np.maximum(had, has)
        at = ((high > low) & ~work.is_context).nonzero()[0]
        self._refuse_many(low.take(at), high.take(at))

        def write_back() -> None:
            work.write_back(self._points)
            self.watermark = watermark

        return changed_stretches(work, at, low, (had, has), write_back)

    def _refuse_many(self, low: Index, high: Index) -> None:
        """Refuse stretches ``[low, high)`` of more windows than the limit allows, before they are made."""
        if bool((high == FOREVER).any()):
            raise RecensionError(ENDLESS)
        self._limit_of_windows.check(low, high, self._numbering.start)

    def name_event(self, why: TooManyWindowsError, batch: EventBatch) -> TooManyWindowsError:
        end = new_end(batch)
        first, stop = self._numbering.place(batch.vs, end)
        for row in np.flatnonzero((first <= why.low) & (stop >= why.high))[:1].tolist():
            payload = (rows_of(batch.payload.slice(row, 1)) or [{}])[0]
            lifetime = (
                f"[{describe_time_in_message(int(batch.vs[row]))}, {describe_time_in_message(int(end[row]))})"
            )
            return why.with_event(f"the event {lifetime} {payload or ''}".rstrip())
        return why

    def check_end(self) -> None:
        if self._points.is_endless():
            raise RecensionError(ENDLESS)

    def refuse_endless(self) -> None:
        _, stop = self._numbering.place(np.zeros(1, np.int64), np.full(1, FOREVER))
        if int(stop[0]) == FOREVER:
            raise RecensionError(ENDLESS)

    def check_last(self, batch: EventBatch) -> None:
        place = self._numbering.place
        old, new = (place(batch.vs, ends)[1] == FOREVER for ends in (old_end(batch), new_end(batch)))
        gained, lost = int((new & ~old).sum()), int((old & ~new).sum())
        # Endless events are not counted, only whether there are any: once some end, nothing is certain.
        if lost == 0 if self._points.is_endless() else gained > lost:
            raise RecensionError(ENDLESS)

    def _steps(
        self, batch: EventBatch, group: Index, amounts: Contributions, coming: tuple[Index, Index, Index]
    ) -> AxisSteps:
        if isinstance(amounts, PointChanges):
            return sum_points(group, amounts, spans=coming)
        first, new = self._numbering.place(batch.vs, new_end(batch))
        old = first if batch.has_only_inserts() else self._numbering.place(batch.vs, old_end(batch))[1]
        since = self._first_changed_window(batch, first, np.maximum(old, new))
        return axis_steps(group, first, old, new, amounts, since=since, spans=coming)

    def _first_changed_window(self, batch: EventBatch, first: Index, stop: Index) -> Index | None:
        """From which window on each element changes answers; None if only where events come and go."""
        if self._ends == "unseen" or not len(batch):
            return None
        if self._ends == "clipped":
            # An end that moves within a window changes nothing on the axis, yet the module sees it.
            moved = np.minimum(old_end(batch), new_end(batch))
            first = np.maximum(first, self._numbering.place(moved, moved)[0])
        # A closed window stays as it is, whatever becomes of the events in it.
        return np.minimum(np.maximum(first, self._closed), stop)

    def _first_hidden_window(self, watermark: int) -> int:
        """The first window that is not in view by the watermark alone."""
        if self._view == "ended":
            return self._numbering.first_ending_after(watermark)
        return self._numbering.first_starting_after(watermark)

    def _find_newly_visible(self, watermark: int) -> tuple[Index, Index, Index]:
        """The stretch of windows that come into view as the watermark moves, for every group they matter to.

        Where all windows are shown, only those over endless events still come.
        """
        low, high = self._first_hidden_window(self.watermark), self._first_hidden_window(watermark)
        if high <= low:
            return _NONE, _NONE, _NONE
        find = self._points.endless_groups if self._view == "all" else self._points.groups_in_use
        groups = find()
        return groups, np.full(len(groups), low), np.full(len(groups), high)

    def _limit(self, side: AxisSide, watermark: int) -> Index | np.int64:
        """Up to which window each stretch is shown: the edge; or all of it, if all is shown and it ends."""
        if self._view != "all":
            return np.int64(self._first_hidden_window(watermark))
        is_endless = side.following == FOREVER
        if not bool(is_endless.any()):
            return np.int64(FOREVER)
        return np.where(is_endless, np.int64(self._first_hidden_window(watermark)), np.int64(FOREVER))

    def _compare(self, work: WorkingSet, watermark: int) -> tuple[Index, Index, Index]:
        """From which window on each stretch may have changed, and up to which it was and is shown."""
        limits = self._limit(work.old, self.watermark), self._limit(work.new, watermark)
        end = next_in_group(work.group, work.time)
        had, has = (
            np.where(side.n > 0, end if _is_all(limit) else np.minimum(end, limit), work.time)
            for side, limit in zip((work.old, work.new), limits, strict=True)
        )
        # Where nothing changed, only windows come that are in view now, or go that no longer are: less is
        # shown of a stretch once the end point after it goes to the end of time.
        low = np.where(work.is_changed, work.time, np.maximum(work.time, np.minimum(had, has)))
        return low, had, has

    def expand(self, low: Index, high: Index) -> ExpandedWindows:
        stretch, window = expand(low, high)
        return ExpandedWindows(
            stretch, window, window + 1, self._numbering.start(window), self._numbering.end(window)
        )

    def close(self, t: int, earliest: int) -> Closing:
        closed = self._numbering.first_ending_after(t)
        if earliest < t:
            first = np.array([earliest])
            closed = min(closed, int(self._numbering.place(first, first)[0][0]))
        self._closed = max(self._closed, closed)
        self._points.forget_some_before(closed)
        first_open = self._numbering.open_start(closed, t)
        return Closing(first_open, first_open, closed, closed)

    def trace(self) -> tuple[int, ...]:
        # Endless events are shown up to the watermark, whatever is shown of others.
        return (self.watermark,)

    def snapshot(self) -> Chunks:
        closed = {"closed": pa.table({"window": [self._closed]})}
        return {**super().snapshot(), **closed, **self._numbering.snapshot(self._closed)}

    def restore(self, chunks: Chunks) -> None:
        super().restore(chunks)
        self._closed = chunks["closed"]["window"][0].as_py()
        self._numbering.restore(chunks)
