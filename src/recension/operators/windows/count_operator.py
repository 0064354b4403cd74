"""Count aggregate: for each group, one result per run of n consecutive moments at which events start (end).

Assumes     a valid physical stream.
Guarantees  ``eager``: after every batch the output history is the aggregate over the count windows of the
            input so far. Otherwise a window is shown once it has ended by the watermark; perfect input then
            gives perfect output, in order if it is not grouped.
State       moments from the last CTI on and n - 1 before it per group, with the sums of the events there;
            those events themselves for aggregates that are not sums.
Cost        O(m log n) for m moments: those the batch changes, n to either side, and the rest of their blocks.
Source      The Extensibility Framework in Microsoft StreamInsight, §III.B and §V; rulings G1–G3, G5, G7, G8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Index, empty
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks, Operator, Output, new_end, old_end
from recension.operators.snapshot.emission import Results
from recension.operators.snapshot.events import EventsOfGroups
from recension.operators.snapshot.measures import Aggregation, Measures
from recension.operators.snapshot.views import Variant
from recension.operators.snapshot.working_set import state_columns
from recension.operators.state.time_queue import TimeQueue
from recension.operators.windows.consecutive import Consecutive, windows_on
from recension.operators.windows.count_emission import emit_counted
from recension.operators.windows.kept_moments import KeptMoments
from recension.operators.windows.moments import Axis, Changes, changes_at, merged


class CountAggregate(Operator):
    """Grouped or not. ``breaks_ties`` as in the snapshot aggregate; never when counting ends."""

    def __init__(
        self,
        schema: pa.Schema,
        input_schema: pa.Schema,
        n: int,
        by: Literal["start", "end"],
        aggregations: Sequence[Aggregation],
        variant: Variant,
        keys: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
        key_schema: pa.Schema | None = None,
        *,
        breaks_ties: bool = False,
    ) -> None:
        super().__init__(schema)
        self._n, self._by, self._keys = n, by, keys
        self._measures = Measures(schema, aggregations)
        columns = state_columns(self._measures.ints, self._measures.pairs)
        del columns["refs"]
        self._moments = KeptMoments(columns, pa.schema([]) if key_schema is None else key_schema)
        self._events = EventsOfGroups(input_schema, self._place) if self._measures.needs_events else None
        self._breaks_ties = breaks_ties
        self._upcoming = TimeQueue()
        self._watermark = FOREVER if variant == "eager" else BEGINNING

    def _moment(self, vs: Ticks, end: Ticks) -> Ticks:
        """Where an event counts; FOREVER if it is not there, or counts by an end it never reaches."""
        return np.where(end == vs, np.int64(FOREVER), vs if self._by == "start" else end)

    def _place(self, vs: Ticks, end: Ticks) -> tuple[Ticks, Ticks]:
        """The tick in which an event counts; empty if there is none."""
        moment = self._moment(vs, end)
        return moment, moment + (moment < FOREVER)

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        keys = pa.record_batch([]) if self._keys is None else self._keys(batch.payload)
        group = self._moments.number(keys, len(batch))
        starts = batch.vs[batch.kind == INSERT]
        watermark = max(self._watermark, int(starts.max(initial=BEGINNING)))
        old, new = (self._moment(batch.vs, end(batch)) for end in (old_end, new_end))
        amounts, due = self._measures.contributions(batch), self._upcoming.pop_before(watermark)
        changes = changes_at(group, old, new, amounts, due, in_place=self._breaks_ties)
        return self._step(changes, watermark, partial(self._remember, batch, group))

    def on_cti(self, port: int, t: int) -> Output:
        watermark = max(self._watermark, t)
        due = self._upcoming.pop_before(watermark)
        none = np.zeros(0, np.int64)
        changes = changes_at(none, none, none, self._measures.nothing(), due, in_place=False)
        shown = self._step(changes, watermark)
        if t == FOREVER:
            self._forget_all()
            return self.promise(t, shown)
        settled = t
        if self._events is not None and self._breaks_ties:
            settled = min(t, self._events.earliest_tie(t))
        return self.promise(self._forget_before(settled), shown)

    def _step(
        self, changes: Changes, watermark: int, remember: Callable[[], None] = lambda: None
    ) -> EventBatch:
        """Lay the changes over the moments, keep the result, and say what changed in what is shown."""
        if not len(changes.time):
            remember()
            self._watermark = watermark
            return empty(self.schema)
        extract = self._moments.around(changes.group, changes.time, self._n)
        axis = merged(extract, changes)

        def after(windows: Consecutive) -> Results:
            remember()
            return self._results(windows)

        old = windows_on(axis, axis.old, self._n, self._watermark, due=False)
        new = windows_on(axis, axis.new, self._n, watermark, due=True)
        out = emit_counted(len(axis.time), old, new, self._results, after)
        self._keep(axis, extract.blocks, watermark)
        self._watermark = watermark
        return out

    def _keep(self, axis: Axis, blocks: Index, watermark: int) -> None:
        born, gone = ~axis.is_known & (axis.new.n > 0), axis.is_known & (axis.new.n == 0)
        self._moments.replace(blocks, axis.columns(), (axis.group[born], axis.time[born]), axis.group[gone])
        later = born & (axis.time >= watermark)
        self._upcoming.push(axis.time[later], axis.group[later])

    def _results(self, windows: Consecutive) -> Results:
        events = None
        if self._events is not None:
            group_hash = self._moments.group_hash
            events = self._events.within(group_hash, windows.group, windows.start, windows.end)
        keys, rows = self._moments.keys_of(windows.group), np.arange(len(windows))
        return self._measures.results(keys, windows.side, rows, events)

    def _remember(self, batch: EventBatch, group: Index) -> None:
        if self._events is not None:
            self._events.take(batch, self._moments.group_hash(group))

    def _forget_before(self, t: int) -> int:
        """Forget what no window that can still change needs; gives back where the first of those begins."""
        group, time = self._moments.forget(t, self._n - 1)
        first_open = min(t, self._moments.earliest_held())
        if self._events is not None:
            self._events.drop(self._moments.group_hash(group), time)
            self._events.forget_before(first_open + 1)
        if (numbers := self._moments.retire()) is not None:
            self._upcoming.renumber(numbers)
        return first_open

    def _forget_all(self) -> None:
        self._moments.clear()
        self._upcoming = TimeQueue()
        if self._events is not None:
            self._events.forget_before(FOREVER)

    def state_rows(self) -> int:
        return len(self._moments) + (0 if self._events is None else len(self._events))

    def state_bytes(self) -> int:
        events = 0 if self._events is None else self._events.nbytes()
        return self._moments.nbytes() + 16 * len(self._upcoming) + events

    def state_chunks(self) -> Chunks:
        events = {} if self._events is None else self._events.to_chunks()
        own = {"upcoming": self._upcoming.to_arrow(), "watermark": pa.table({"t": [self._watermark]})}
        return {**self._moments.to_chunks(), **own, **events}

    def load_chunks(self, chunks: Chunks) -> None:
        self._moments.load(chunks)
        self._upcoming.load(chunks["upcoming"])
        self._watermark = chunks["watermark"]["t"][0].as_py()
        if self._events is not None:
            self._events.load(chunks)
