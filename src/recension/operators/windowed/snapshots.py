"""Snapshots: windows between neighbouring end points, split where an event begins or ends anew, and merged
where an end point goes.

How much is shown, given the watermark ``m`` (the latest CTI or start of an insert, never moved back and never
moved by retractions: ruling B9):

    end points     |------ a ------|---- b ----|----- c -----|
                                        m
    ended          [------ a ------)                              what has ended by m
    begun          [------ a ------)[--- b ----)                  … and the present
    present        [------ a ------)[--- b -------------------->  … as if it never ended
    all            [------ a ------)[--- b ----)[---- c -----)    everything

Source      Operator Algorithm Design for Speculative Stream Processing, §3.3–3.5; rulings B9, B10, B17.
"""

from __future__ import annotations

import numpy as np

from recension.core.batch import INSERT, EventBatch, Index, new_end, old_end
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.state.end_points import EndPoints
from recension.operators.windowed.events import Placement
from recension.operators.windowed.index import (
    Closing,
    IndexSpec,
    WindowChange,
    WindowIndex,
    changed_stretches,
    is_in_view,
)
from recension.operators.windowed.steps import AxisSteps, Contributions, PointChanges, axis_steps, sum_points
from recension.operators.windowed.working_set import AxisSide, WorkingSet, merge_steps, state_columns


class SnapshotIndex(WindowIndex):
    """Snapshot windows."""

    def __init__(self, spec: IndexSpec) -> None:
        super().__init__(EndPoints(state_columns(spec.ints, spec.pairs), spec.key_schema), spec)
        # `ended` keeps to shortening and holds its CTI instead (ruling B10, HOLD against LENGTHEN).
        self.moves = "both" if spec.view in ("present", "all") else "shorten"
        self.emits_in_order = spec.view == "present"

    @property
    def place(self) -> Placement | None:
        return None

    def change(self, batch: EventBatch, group: Index, amounts: Contributions, watermark: int) -> WindowChange:
        look = self._upcoming.pop_until(watermark)
        if not len(batch) and not len(look[0]):
            return self._move_to(watermark)
        work = merge_steps(self._points, self._steps(batch, group, amounts, look))

        def write_back() -> None:
            work.write_back(self._points)
            if self._view != "all":
                later = work.is_born & (work.time > watermark)
                self._upcoming.push(work.time[later], work.group[later])
            self.watermark = watermark

        had, has = self._limit(work, work.old, self.watermark), self._limit(work, work.new, watermark)
        is_other = work.is_changed | (had != has)
        at = (is_other & (np.maximum(had, has) > work.time)).nonzero()[0]
        return changed_stretches(work, at, work.time, (had, has), write_back)

    def _steps(
        self, batch: EventBatch, group: Index, amounts: Contributions, look: tuple[Ticks, Index]
    ) -> AxisSteps:
        if isinstance(amounts, PointChanges):
            return sum_points(group, amounts, look=look)
        # All of an event lies in a snapshot or none of it: cut to the window, its end says nothing more.
        since = batch.vs if self._ends == "seen" else None
        is_plain = bool((batch.kind == INSERT).all())
        ends = (batch.vs, batch.ve) if is_plain else (old_end(batch), new_end(batch))
        return axis_steps(group, batch.vs, *ends, amounts, look=look, since=since)

    def _limit(self, work: WorkingSet, side: AxisSide, watermark: int) -> Ticks:
        """Up to when each snapshot is shown; its own start if it is not."""
        there = side.is_point & (side.n > 0) & ~work.is_context
        shown = there & is_in_view(self._view, watermark, work.time, side.following)
        end = side.following
        if self._view == "present":
            end = np.where(end <= watermark, end, np.int64(FOREVER))
        return np.where(shown, end, work.time)

    def is_endless(self) -> bool:
        return self._points.is_endless()

    def close(self, t: int, earliest: int) -> Closing:
        until = min(t, earliest)
        self._points.forget_before(until)
        # An end at t itself may still move: a window is closed once it has ended before.
        before = max(until - 1, BEGINNING)
        return Closing(min(until, self._points.earliest_held()), until, before, before)
