"""Snapshot aggregate: for each group, one result per maximal interval in which no event begins or ends.

Assumes     a valid physical stream.
Guarantees  ``eager``: after every batch the output history is the aggregate of the input history so far;
            ``perfect``: it is the part of it that ended by the watermark, and perfect input gives perfect
            output (ungrouped); ``ordered``: ordered input gives ordered output, right at every instant up to
            the watermark. On a closed stream all three agree with the aggregate of the history.
State       end points at or after the last CTI and one before it per group, with the sums that hold there;
            the live events themselves for aggregates that are not sums.
Cost        O(n log n) in the batch and the end points between the changes it makes.
Source      Operator Algorithm Design for Speculative Stream Processing, §3, as corrected by rulings B1–B18.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from recension.core.batch import INSERT, EventBatch, Index, empty
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.base import Output, new_end, old_end
from recension.operators.snapshot.emission import Results, emit
from recension.operators.snapshot.grouped import Asked, StretchAggregate
from recension.operators.snapshot.steps import Steps, steps_of
from recension.operators.snapshot.working_set import merge
from recension.operators.state.end_points import EndPoints


class SnapshotAggregate(StretchAggregate):
    """Grouped or not, in the three variants."""

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked, EndPoints)
        self._variant = asked.variant
        self.promises_alike = asked.variant != "perfect" and not asked.breaks_ties
        self._watermark = FOREVER if asked.variant == "eager" else BEGINNING

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        group, watermark = self._groups(batch), self._watermark_after(batch)
        look = self._upcoming.pop_until(watermark)
        is_plain = bool((batch.kind == INSERT).all())
        ends = (batch.vs, batch.ve) if is_plain else (old_end(batch), new_end(batch))
        amounts = self._measures.contributions(batch)
        since = batch.vs if self._breaks_ties else None
        steps = steps_of(group, batch.vs, *ends, amounts, look=look, since=since)
        return self._step(steps, watermark, partial(self._remember, batch, group))

    def on_cti(self, port: int, t: int) -> Output:
        watermark = max(self._watermark, t)
        look = self._upcoming.pop_until(watermark)
        shown = empty(self.schema)
        if len(look[0]):
            none = np.zeros(0, np.int64)
            shown = self._step(
                steps_of(none, none, none, none, self._measures.nothing(), look=look), watermark
            )
        self._watermark = watermark
        if t == FOREVER:
            self._forget_all()
            return self.promise(t, shown)
        settled = self._settled(t, t)
        self._forget_before(settled)
        held = self._points.earliest_held() if self._variant == "perfect" else FOREVER
        return self.promise(min(settled, held), shown)

    def _step(self, steps: Steps, watermark: int, remember: Callable[[], None] = lambda: None) -> EventBatch:
        """Lay the steps over the time axis, keep the result, and say what changed in what is shown."""
        extract = self._points.extract(*steps.segments())
        work = merge(extract, steps, self._measures.ints, self._measures.pairs)

        def after(rows: Index) -> Results:
            remember()
            return self._results(work, work.new, rows)

        before = partial(self._results, work, work.old)
        out = emit(work, self._variant, (self._watermark, watermark), before, after)
        self._write_back(work, extract.blocks)
        if self._variant != "eager":
            later = work.born & (work.time > watermark)
            self._upcoming.push(work.time[later], work.group[later])
        self._watermark = watermark
        return out
