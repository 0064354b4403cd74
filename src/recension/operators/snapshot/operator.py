"""Snapshot aggregate: for each group, one result per maximal interval in which no event begins or ends.

Assumes     a valid physical stream.
Guarantees  ``eager``: after every batch the output history is the aggregate of the input history so far;
            ``perfect``: it is the part of it that ended by the watermark, and perfect input gives perfect
            output (ungrouped); ``ordered``: ordered input gives ordered output, right at every instant up to
            the watermark. On a closed stream all three agree with the aggregate of the history.
State       end points at or after the last CTI and one before it per group, with the sums that hold there.
Cost        O(n log n) in the batch and the end points between the changes it makes.
Source      Operator Algorithm Design for Speculative Stream Processing, §3, as corrected by rulings B1–B18.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Index, empty, take_rows
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.base import Chunks, Operator, Output, new_end, old_end
from recension.operators.snapshot.accumulators import Accumulator
from recension.operators.snapshot.emission import Results, emit
from recension.operators.snapshot.events import CoveringEvents, covering, group_hash
from recension.operators.snapshot.selections import Selection, TopK
from recension.operators.snapshot.steps import Contributions, Steps, steps_of
from recension.operators.snapshot.views import Variant
from recension.operators.snapshot.working_set import Side, WorkingSet, following, merge, state_columns
from recension.operators.state.block_table import BlockTable
from recension.operators.state.keys import KeyIndex
from recension.operators.state.live_events import LiveEvents
from recension.operators.state.net_changes import net_changes
from recension.operators.state.time_queue import TimeQueue

_RETIRE_AT = 1024


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One aggregate of the query: its values per event (None: the event itself counts) and how they count."""

    argument: Callable[[pa.RecordBatch], pa.Array] | None
    measure: Accumulator | Selection | TopK


class SnapshotAggregate(Operator):
    """Grouped or not, in the three variants."""

    def __init__(
        self,
        schema: pa.Schema,
        input_schema: pa.Schema,
        aggregations: Sequence[Aggregation],
        variant: Variant,
        keys: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
        key_schema: pa.Schema | None = None,
    ) -> None:
        super().__init__(schema)
        self._aggregations, self._variant = list(aggregations), variant
        self._key_rows, self._keys = keys, KeyIndex(key_schema) if key_schema is not None else None
        sums = [a.measure for a in aggregations if isinstance(a.measure, Accumulator)]
        self._ints, self._pairs = sum(m.ints for m in sums), sum(m.pairs for m in sums)
        # Sums need no events; everything else looks at them.
        self._events = LiveEvents(input_schema) if len(sums) < len(self._aggregations) else None
        self._points = BlockTable(state_columns(self._ints, self._pairs))
        self._upcoming, self._expiring = TimeQueue(), TimeQueue()
        self._watermark = FOREVER if variant == "eager" else BEGINNING
        self._points_of = self._hold = np.zeros(0, np.int64)

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        group = self._groups(batch)
        starts = batch.vs[batch.kind == INSERT]
        watermark = max(self._watermark, int(starts.max(initial=BEGINNING)))
        look = self._upcoming.pop_until(watermark)
        amounts = self._contributions(batch)
        steps = steps_of(group, batch.vs, old_end(batch), new_end(batch), amounts, look)
        return self._step(steps, watermark, partial(self._remember, batch, group))

    def on_cti(self, port: int, t: int) -> Output:
        watermark = max(self._watermark, t)
        look = self._upcoming.pop_until(watermark)
        none = np.zeros(0, np.int64)
        nothing = Contributions([none] * self._ints, [(none.astype(float), none.astype(float))] * self._pairs)
        shown = empty(self.schema)
        if len(look[0]):
            shown = self._step(steps_of(none, none, none, none, nothing, look), watermark)
        self._watermark = watermark
        if t == FOREVER:
            self._forget_all()
            return self.promise(t, shown)
        self._forget_before(t)
        if self._events is not None:
            # An end at t itself may still move, and the snapshot it closes merge with the next.
            self._events.expire(t - 1)
        return self.promise(self._promised(t), shown)

    def _groups(self, batch: EventBatch) -> Index:
        if self._keys is None or self._key_rows is None:
            numbers = np.zeros(len(batch), np.int64)
        else:
            numbers = self._keys.number(self._key_rows(batch.payload))
        missing = int(numbers.max()) + 1 - len(self._points_of)
        if missing > 0:
            self._points_of = np.append(self._points_of, np.zeros(missing, np.int64))
            self._hold = np.append(self._hold, np.full(missing, FOREVER))
        return numbers

    def _contributions(self, batch: EventBatch) -> Contributions:
        ints: list[Index] = []
        pairs = []
        for aggregation in self._aggregations:
            if isinstance(aggregation.measure, Accumulator):
                values = None if aggregation.argument is None else aggregation.argument(batch.payload)
                part = aggregation.measure.contributions(values, len(batch))
                ints += part.ints
                pairs += part.pairs
        return Contributions(ints, pairs)

    def _step(self, steps: Steps, watermark: int, remember: Callable[[], None] = lambda: None) -> EventBatch:
        """Lay the steps over the time axis, keep the result, and say what changed in what is shown."""
        extract = self._points.extract(*steps.segments())
        work = merge(extract, steps, self._ints, self._pairs)

        def after(rows: Index) -> Results:
            remember()
            return self._results(work, work.new, rows)

        before = partial(self._results, work, work.old)
        out = emit(work, self._variant, (self._watermark, watermark), before, after)
        self._keep(work, extract.blocks, watermark)
        self._watermark = watermark
        return out

    def _remember(self, batch: EventBatch, group: Index) -> None:
        if self._events is not None:
            change = net_changes(batch)
            self._events.apply(change, group_hash(group[change.row]), batch.payload)

    def _results(self, work: WorkingSet, side: Side, rows: Index) -> Results:
        """Key and result columns of some snapshots."""
        group = work.group[rows]
        events = None if self._events is None else covering(self._events, work, side, rows)
        if isinstance(top := self._aggregations[0].measure, TopK) and events is not None:
            return self._top_rows(top, group, events)
        columns = self._key_columns(group)
        ints = [column[rows] for column in side.ints]
        pairs = [(high[rows], low[rows]) for high, low in side.pairs]
        for aggregation in self._aggregations:
            measure = aggregation.measure
            if isinstance(measure, Accumulator):
                columns.append(measure.result(side.n[rows], ints[: measure.ints], pairs[: measure.pairs]))
                ints, pairs = ints[measure.ints :], pairs[measure.pairs :]
            elif isinstance(measure, Selection) and events is not None and aggregation.argument is not None:
                columns.append(measure.result(events, aggregation.argument(events.payload)))
        return Results(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def _top_rows(self, top: TopK, group: Index, events: CoveringEvents) -> Results:
        argument = self._aggregations[0].argument
        assert argument is not None
        chosen, rank, counts = top.choose(events, argument(events.payload))
        payload = take_rows(events.payload, chosen)
        keys = self._key_columns(np.repeat(group, counts))
        rest = [payload.column(name) for name in self.schema.names[len(keys) : -1]]
        return Results(pa.RecordBatch.from_arrays([*keys, *rest, pa.array(rank)], schema=self.schema), counts)

    def _key_columns(self, group: Index) -> list[pa.Array]:
        return [] if self._keys is None else list(self._keys.rows(group).columns)

    def _keep(self, work: WorkingSet, blocks: Index, watermark: int) -> None:
        keep = work.new.is_point & ~work.is_context
        self._points.replace(blocks, work.columns(keep))
        gone = work.old.is_point & ~work.new.is_point
        born = work.is_new & work.new.is_point
        np.add.at(self._points_of, work.group[born], 1)
        np.subtract.at(self._points_of, work.group[gone], 1)
        self._expiring.push(work.time[born & (work.time < FOREVER)], work.group[born & (work.time < FOREVER)])
        if self._variant != "eager":
            later = born & (work.time > watermark)
            self._upcoming.push(work.time[later], work.group[later])

    def _forget_before(self, t: int) -> None:
        """Keep of the end points before ``t`` the last one of each group, and only if events live there.

        The test stays strict (ruling B12): the end point at ``t`` may still go, and its left neighbour is
        then needed to merge with.
        """
        _, due = self._expiring.pop_before(t)
        groups = np.unique(due)
        if not len(groups):
            return
        ends = np.full(len(groups), t)
        extract = self._points.extract(groups, np.full(len(groups), BEGINNING), ends)
        group, time, n = (extract.columns[name] for name in ("group", "time", "n"))
        is_past = (time < t) & ~extract.follower
        next_time = following(group, time, np.ones(len(time), np.bool_))
        is_last_past = is_past & ~((next_time < t) & (next_time > time))
        gone = is_past & ~(is_last_past & (n > 0))
        self._hold[group[is_past]] = FOREVER
        held = is_last_past & (n > 0)
        self._hold[group[held]] = time[held]
        np.subtract.at(self._points_of, group[gone], 1)
        keep = ~gone & ~extract.follower
        self._points.replace(extract.blocks, {name: column[keep] for name, column in extract.columns.items()})
        self._retire_groups()

    def _retire_groups(self) -> None:
        """Give up the numbers of groups without end points once they are the majority."""
        in_use = self._points_of > 0
        if self._keys is None or len(in_use) < _RETIRE_AT or 2 * int(in_use.sum()) > len(in_use):
            return
        numbers = self._keys.retire(in_use)
        table = self._points.to_arrow()
        renumbered = pa.array(numbers[table["group"].to_numpy()])
        self._points.load(table.set_column(0, "group", renumbered))
        self._upcoming.renumber(numbers)
        self._expiring.renumber(numbers)
        self._points_of, self._hold = self._points_of[in_use], self._hold[in_use]

    def _promised(self, t: int) -> int:
        """``perfect`` holds its CTI at the start of the earliest snapshot that reaches up to ``t``."""
        if self._variant != "perfect":
            return t
        return min(t, int(self._hold.min(initial=FOREVER)))

    def _forget_all(self) -> None:
        self._points.clear()
        self._upcoming, self._expiring = TimeQueue(), TimeQueue()
        self._points_of = self._hold = np.zeros(0, np.int64)
        if self._keys is not None:
            self._keys.retire(np.zeros(len(self._keys), np.bool_))
        if self._events is not None:
            self._events.expire(FOREVER)

    def state_rows(self) -> int:
        return len(self._points) + (len(self._events) if self._events is not None else 0)

    def state_bytes(self) -> int:
        queues = 16 * (len(self._upcoming) + len(self._expiring))
        events = 0 if self._events is None else self._events.nbytes()
        return self._points.nbytes() + queues + events + (0 if self._keys is None else self._keys.nbytes())

    def state_chunks(self) -> Chunks:
        chunks = {
            "points": self._points.to_arrow(),
            "upcoming": self._upcoming.to_arrow(),
            "expiring": self._expiring.to_arrow(),
            "groups": pa.table({"points": self._points_of, "hold": self._hold}),
            "watermark": pa.table({"watermark": [self._watermark]}),
        }
        return chunks | ({} if self._keys is None else {"keys": self._keys.to_arrow()})

    def load_chunks(self, chunks: Chunks) -> None:
        self._points.load(chunks["points"])
        self._upcoming.load(chunks["upcoming"])
        self._expiring.load(chunks["expiring"])
        self._points_of, self._hold = (
            chunks["groups"][name].to_numpy().copy() for name in ("points", "hold")
        )
        self._watermark = chunks["watermark"]["watermark"][0].as_py()
        if self._keys is not None:
            rows = chunks["keys"].combine_chunks().to_batches()
            self._keys.load(rows[0] if rows else self._keys.no_rows())
