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

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Index, empty
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.base import Chunks, Operator, Output, new_end, old_end
from recension.operators.snapshot.emission import Results, emit
from recension.operators.snapshot.events import EventsOfGroups
from recension.operators.snapshot.measures import Aggregation, Measures
from recension.operators.snapshot.steps import Steps, steps_of
from recension.operators.snapshot.views import Variant
from recension.operators.snapshot.working_set import Side, WorkingSet, merge, state_columns
from recension.operators.state.end_points import EndPoints
from recension.operators.state.time_queue import TimeQueue


class SnapshotAggregate(Operator):
    """Grouped or not, in the three variants.

    ``breaks_ties`` says that some aggregate depends on the order of events that begin together, which the
    ends decide: then a moved end can change the past back to the start of the event, and CTIs must wait.
    """

    def __init__(
        self,
        schema: pa.Schema,
        input_schema: pa.Schema,
        aggregations: Sequence[Aggregation],
        variant: Variant,
        keys: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
        key_schema: pa.Schema | None = None,
        *,
        breaks_ties: bool = False,
    ) -> None:
        super().__init__(schema)
        self._measures, self._variant, self._keys = Measures(schema, aggregations), variant, keys
        columns = state_columns(self._measures.ints, self._measures.pairs)
        self._points = EndPoints(columns, pa.schema([]) if key_schema is None else key_schema)
        self._events = EventsOfGroups(input_schema) if self._measures.needs_events else None
        self._breaks_ties = breaks_ties
        self._upcoming = TimeQueue()
        self._watermark = FOREVER if variant == "eager" else BEGINNING

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        keys = pa.record_batch([]) if self._keys is None else self._keys(batch.payload)
        group = self._points.number(keys, len(batch))
        starts = batch.vs[batch.kind == INSERT]
        watermark = max(self._watermark, int(starts.max(initial=BEGINNING)))
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
        settled = t
        if self._events is not None and self._breaks_ties:
            settled = min(t, self._events.earliest_tie(t))
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
        self._keep(work, extract.blocks, watermark)
        self._watermark = watermark
        return out

    def _results(self, work: WorkingSet, side: Side, rows: Index) -> Results:
        events = None
        if self._events is not None:
            events = self._events.covering(self._points.group_hash, work, side, rows)
        return self._measures.results(self._points.keys_of(work.group[rows]), side, rows, events)

    def _remember(self, batch: EventBatch, group: Index) -> None:
        if self._events is not None:
            self._events.take(batch, self._points.group_hash(group))

    def _keep(self, work: WorkingSet, blocks: Index, watermark: int) -> None:
        keep = work.new.is_point & ~work.is_context
        gone = work.old.is_point & ~work.new.is_point
        born = work.is_new & work.new.is_point
        self._points.replace(
            blocks, work.columns(keep), (work.group[born], work.time[born]), work.group[gone]
        )
        if self._variant != "eager":
            later = born & (work.time > watermark)
            self._upcoming.push(work.time[later], work.group[later])

    def _forget_before(self, t: int) -> None:
        self._points.forget_before(t)
        if self._events is not None:
            # An end at t itself may still move, and the snapshot it closes merge with the next.
            self._events.forget_before(t)
        if (numbers := self._points.retire()) is not None:
            self._upcoming.renumber(numbers)

    def _forget_all(self) -> None:
        self._points.clear()
        self._upcoming = TimeQueue()
        if self._events is not None:
            self._events.forget_before(FOREVER)

    def state_rows(self) -> int:
        return len(self._points) + (0 if self._events is None else len(self._events))

    def state_bytes(self) -> int:
        events = 0 if self._events is None else self._events.nbytes()
        return self._points.nbytes() + 16 * len(self._upcoming) + events

    def state_chunks(self) -> Chunks:
        events = {} if self._events is None else self._events.to_chunks()
        own = {"upcoming": self._upcoming.to_arrow(), "watermark": pa.table({"t": [self._watermark]})}
        return {**self._points.to_chunks(), **own, **events}

    def load_chunks(self, chunks: Chunks) -> None:
        self._points.load(chunks)
        self._upcoming.load(chunks["upcoming"])
        self._watermark = chunks["watermark"]["t"][0].as_py()
        if self._events is not None:
            self._events.load(chunks)
