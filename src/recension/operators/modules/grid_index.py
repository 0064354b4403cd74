"""Windows on a grid: an event is an interval of window numbers, and so is what a batch affects.

Windows between two end points on that axis hold the same events, but a module may tell them apart: each is
written out and called by itself.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Index
from recension.core.errors import RecensionError
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import new_end, old_end
from recension.operators.modules.window_index import (
    Affected,
    Ends,
    Settled,
    View,
    WindowIndex,
    WindowList,
    nothing_affected,
)
from recension.operators.snapshot.events import Place
from recension.operators.snapshot.steps import Contributions, Steps, steps_of
from recension.operators.snapshot.working_set import Side, WorkingSet, merge, next_in_group, state_columns
from recension.operators.state.end_points import EndPoints
from recension.operators.state.ranges import expand
from recension.operators.windows.grid import Grid

_NOTHING = Contributions([], [])


class GridIndex(WindowIndex):
    """Tumbling and hopping windows."""

    is_fixed = True

    def __init__(self, grid: Grid, key_schema: pa.Schema, view: View, ends: Ends) -> None:
        super().__init__(EndPoints(state_columns(0, 0), key_schema), view, ends)
        self._grid = grid

    @property
    def place(self) -> Place | None:
        return self._grid.place

    def affected(self, batch: EventBatch, group: Index, watermark: int) -> Affected:
        coming = self._coming(watermark)
        if not len(batch) and not len(coming[0]):
            self.watermark = watermark
            return nothing_affected()
        steps = self._steps(batch, group, coming)
        extract = self._points.extract(*steps.segments())
        work = merge(extract, steps, 0, 0)
        limits = self._limit(work.old, self.watermark), self._limit(work.new, watermark)
        old, new = self._listed(work, limits)

        def keep() -> None:
            stays = work.new.is_point & ~work.is_context
            gone, born = work.old.is_point & ~work.new.is_point, work.born
            points = (work.group[born], work.time[born])
            self._points.replace(extract.blocks, work.columns(stays), points, work.group[gone])
            self.watermark = watermark

        return Affected(old, new, keep)

    def _steps(self, batch: EventBatch, group: Index, coming: tuple[Index, Index, Index]) -> Steps:
        before, after = old_end(batch), new_end(batch)
        first, new = self._grid.place(batch.vs, after)
        old = first if bool((batch.kind == INSERT).all()) else self._grid.place(batch.vs, before)[1]
        since = None
        if self._ends == "seen":
            since = first
        elif self._ends == "clipped" and len(batch):
            # An end that moves within a window changes nothing on the axis, yet the module sees it.
            moved = np.minimum(before, after)
            since = np.minimum(np.maximum(first, self._grid.place(moved, moved)[0]), np.maximum(old, new))
        return steps_of(group, first, old, new, _NOTHING, since=since, spans=coming)

    def _edge(self, watermark: int) -> int:
        """The first window that is not in view by the watermark alone."""
        return self._grid.settled(watermark) if self._view == "ended" else self._grid.begun(watermark)

    def _coming(self, watermark: int) -> tuple[Index, Index, Index]:
        """For every group the stretch of windows that come into view."""
        low, high = self._edge(self.watermark), self._edge(watermark)
        groups = self._points.in_use() if high > low else np.zeros(0, np.int64)
        return groups, np.full(len(groups), low), np.full(len(groups), high)

    def _limit(self, side: Side, watermark: int) -> Index:
        """Up to which window each stretch is shown: the view; or all of it, if all is shown and it ends."""
        edge = np.full(len(side.n), self._edge(watermark))
        return edge if self._view != "all" else np.where(side.following == FOREVER, edge, np.int64(FOREVER))

    def _listed(self, work: WorkingSet, limits: tuple[Index, Index]) -> tuple[WindowList, WindowList]:
        end = next_in_group(work.group, work.time)
        low = np.where(work.is_changed, work.time, np.maximum(work.time, limits[0]))
        had, has = (
            np.where((side.n > 0) & ~work.is_context, np.minimum(end, limit), BEGINNING)
            for side, limit in zip((work.old, work.new), limits, strict=True)
        )
        return self._written_out(work, low, had), self._written_out(work, low, has)

    def _written_out(self, work: WorkingSet, low: Index, high: Index) -> WindowList:
        if bool((high == FOREVER).any()):
            raise RecensionError(
                "windows over an event that never ends go on for ever: name a last start with until="
            )
        owner, window = expand(low, np.maximum(low, high))
        return self._windows(work.group[owner], window)

    def _windows(self, group: Index, window: Index) -> WindowList:
        return WindowList(group, window, window + 1, self._grid.start(window), self._grid.end(window))

    def settle(self, t: int, earliest: int) -> Settled:
        closed = self._grid.settled(t)
        if earliest < t:
            closed = min(closed, int(self._first(np.array([earliest]))[0]))
        self._points.forget_before(closed)
        return Settled(self._grid.open_from(closed, t), closed, closed)

    def _first(self, vs: Ticks) -> Index:
        return self._grid.place(vs, vs)[0]
