"""Window aggregate: for each group, one result per tumbling or hopping window that holds an event.

Assumes     a valid physical stream.
Guarantees  ``eager``: after every batch the output history is the aggregate over the windows of the input so
            far (endless events: over those that have begun). Otherwise a window is shown once it has ended
            by the watermark; perfect input then gives perfect output, and ordered input ordered output.
State       end points on the axis of window numbers, as the snapshot aggregate keeps them.
Cost        O(n log n) in the batch, and what it puts out: overlapping windows share the stretches between
            end points, so that size/hop costs nothing by itself.
Source      The Extensibility Framework in Microsoft StreamInsight, §III.B and §V; rulings G1–G11.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from recension.core.batch import INSERT, EventBatch, Index, empty
from recension.core.ticks import FOREVER
from recension.operators.base import Output, new_end, old_end
from recension.operators.snapshot.emission import Results
from recension.operators.snapshot.grouped import Asked, StretchAggregate
from recension.operators.snapshot.steps import Steps, steps_of
from recension.operators.snapshot.working_set import Side, merge
from recension.operators.state.end_points import EndPoints
from recension.operators.windows.emission import emit_windows
from recension.operators.windows.grid import Grid


class WindowAggregate(StretchAggregate):
    """Grouped or not."""

    def __init__(self, asked: Asked, grid: Grid) -> None:
        super().__init__(asked, EndPoints, grid.place)
        self._grid, self._is_eager = grid, asked.variant == "eager"
        self.promises_alike = not asked.breaks_ties

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        group, watermark = self._groups(batch), self._watermark_after(batch)
        first, new = self._grid.place(batch.vs, new_end(batch))
        old = first if bool((batch.kind == INSERT).all()) else self._grid.place(batch.vs, old_end(batch))[1]
        amounts = self._measures.contributions(batch)
        since = first if self._breaks_ties else None
        steps = steps_of(group, first, old, new, amounts, since=since, spans=self._coming(watermark))
        return self._step(steps, watermark, partial(self._remember, batch, group))

    def on_cti(self, port: int, t: int) -> Output:
        watermark = max(self._watermark, t)
        shown = empty(self.schema)
        spans = self._coming(watermark)
        if len(spans[0]):
            none = np.zeros(0, np.int64)
            steps = steps_of(none, none, none, none, self._measures.nothing(), spans=spans)
            shown = self._step(steps, watermark)
        self._watermark = watermark
        if t == FOREVER:
            self._forget_all()
            return self.promise(t, shown)
        settled = self._settled(t, self._grid.settled(t))
        self._forget_before(settled)
        return self.promise(self._grid.open_from(settled, t), shown)

    def _window(self, low: int, high: int) -> tuple[int, int]:
        first = np.array([low])
        return int(self._grid.start(first)[0]), int(self._grid.end(first)[0])

    def _in_view(self, watermark: int) -> int:
        """Up to which window a stretch is shown that has not been shown whole from the start."""
        return self._grid.begun(watermark) if self._is_eager else self._grid.settled(watermark)

    def _coming(self, watermark: int) -> tuple[Index, Index, Index]:
        """For every group the stretch of windows that come into view as the watermark moves."""
        low, high = self._in_view(self._watermark), self._in_view(watermark)
        groups = self._points.in_use() if high > low else np.zeros(0, np.int64)
        return groups, np.full(len(groups), low), np.full(len(groups), high)

    def _step(self, steps: Steps, watermark: int, remember: Callable[[], None] = lambda: None) -> EventBatch:
        extract = self._points.extract(*steps.segments())
        work = merge(extract, steps, self._measures.ints, self._measures.pairs)

        def after(rows: Index) -> Results:
            remember()
            return self._results(work, work.new, rows)

        before = partial(self._results, work, work.old)
        shown = self._shown(work.old, self._watermark), self._shown(work.new, watermark)
        out = emit_windows(work, self._grid, shown, before, after)
        self._write_back(work, extract.blocks)
        self._watermark = watermark
        return out

    def _shown(self, side: Side, watermark: int) -> Index:
        """Up to which window each stretch is shown: the view, or if it is eager and has an end, all of it."""
        view = np.full(len(side.n), self._in_view(watermark))
        if not self._is_eager:
            return view
        return np.where(side.following == FOREVER, view, np.int64(FOREVER))
