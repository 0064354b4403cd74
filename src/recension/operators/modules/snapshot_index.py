"""Snapshots: windows between neighbouring end points, split where an event begins or ends anew, and merged
where an end point goes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Index, Mask
from recension.core.ticks import BEGINNING, Ticks
from recension.operators.base import new_end, old_end
from recension.operators.modules.window_index import (
    Affected,
    Ends,
    Settled,
    View,
    WindowIndex,
    WindowList,
    in_view,
    nothing_affected,
)
from recension.operators.snapshot.events import Place
from recension.operators.snapshot.steps import Contributions, steps_of
from recension.operators.snapshot.working_set import Side, WorkingSet, merge, state_columns
from recension.operators.state.end_points import EndPoints

_NOTHING = Contributions([], [])


class SnapshotIndex(WindowIndex):
    """Snapshot windows."""

    def __init__(self, key_schema: pa.Schema, view: View, ends: Ends) -> None:
        super().__init__(EndPoints(state_columns(0, 0), key_schema), view, ends)

    @property
    def place(self) -> Place | None:
        return None

    def affected(self, batch: EventBatch, group: Index, watermark: int) -> Affected:
        look = self._upcoming.pop_until(watermark)
        # All of an event lies in a snapshot or none of it: cut to the window, its end says nothing more.
        since = batch.vs if self._ends == "seen" else None
        is_plain = bool((batch.kind == INSERT).all())
        ends = (batch.vs, batch.ve) if is_plain else (old_end(batch), new_end(batch))
        if not len(batch) and not len(look[0]):
            self.watermark = watermark
            return nothing_affected()
        steps = steps_of(group, batch.vs, *ends, _NOTHING, look=look, since=since)
        extract = self._points.extract(*steps.segments())
        work = merge(extract, steps, 0, 0)

        def keep() -> None:
            stays = work.new.is_point & ~work.is_context
            gone, born = work.old.is_point & ~work.new.is_point, work.born
            points = (work.group[born], work.time[born])
            self._points.replace(extract.blocks, work.columns(stays), points, work.group[gone])
            if self._view != "all":
                later = born & (work.time > watermark)
                self._upcoming.push(work.time[later], work.group[later])
            self.watermark = watermark

        return Affected(*self._listed(work, watermark), keep)

    def _listed(self, work: WorkingSet, watermark: int) -> tuple[WindowList, WindowList]:
        was, now = self._shown(work, work.old, self.watermark), self._shown(work, work.new, watermark)
        same = was & now & (work.old.following == work.new.following) & ~work.is_changed
        rows = [np.flatnonzero(shown & ~same) for shown in (was, now)]
        old, new = (
            _windows(work.group[at], work.time[at], side.following[at])
            for at, side in zip(rows, (work.old, work.new), strict=True)
        )
        return old, new

    def _shown(self, work: WorkingSet, side: Side, watermark: int) -> Mask:
        there = side.is_point & (side.n > 0) & ~work.is_context
        return there & in_view(self._view, watermark, work.time, side.following)

    def settle(self, t: int, earliest: int) -> Settled:
        until = min(t, earliest)
        self._points.forget_before(until)
        # An end at t itself may still move: a window is closed once it has ended before.
        before = max(until - 1, BEGINNING)
        return Settled(min(until, self._points.earliest_held()), before, before)


def _windows(group: Index, start: Ticks, end: Ticks) -> WindowList:
    return WindowList(group, start, end, start, end)
