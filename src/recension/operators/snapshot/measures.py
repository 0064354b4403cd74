"""All aggregates of one query together: what events contribute, and the results of snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, take_rows
from recension.operators.snapshot.accumulators import Accumulator, BeyondInt64Error, TooLargeError
from recension.operators.snapshot.emission import Results
from recension.operators.snapshot.events import CoveringEvents
from recension.operators.snapshot.selections import Selection, TopK
from recension.operators.snapshot.steps import Contributions, Pair
from recension.operators.snapshot.working_set import Side


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One aggregate: its values per event (None: the event itself counts) and how they count."""

    argument: Callable[[pa.RecordBatch], pa.Array] | None
    measure: Accumulator | Selection | TopK


class Measures:
    """The aggregates of a query, in order; one that yields rows stands alone."""

    def __init__(self, schema: pa.Schema, aggregations: Sequence[Aggregation]) -> None:
        self._schema, self._aggregations = schema, list(aggregations)
        sums = [a.measure for a in aggregations if isinstance(a.measure, Accumulator)]
        self.ints, self.pairs = sum(m.ints for m in sums), sum(m.pairs for m in sums)
        self.needs_events = len(sums) < len(self._aggregations)

    def nothing(self) -> Contributions:
        """What no events contribute."""
        none = np.zeros(0, np.int64)
        return Contributions([none] * self.ints, [(none.astype(float), none.astype(float))] * self.pairs)

    def contributions(self, batch: EventBatch) -> Contributions:
        """What each event adds to the sums."""
        total = Contributions([], [])
        for place, aggregation in enumerate(self._aggregations, len(self._schema) - len(self._aggregations)):
            if isinstance(aggregation.measure, Accumulator):
                values = None if aggregation.argument is None else aggregation.argument(batch.payload)
                try:
                    part = aggregation.measure.contributions(values, len(batch))
                except TooLargeError as why:
                    name = self._schema.names[place]
                    reason = f"{name}: the value {why}, where sums may leave float64; scale the values down"
                    raise OverflowError(reason) from None
                total = Contributions(total.ints + part.ints, total.pairs + part.pairs)
        return total

    def results(
        self, keys: pa.RecordBatch, side: Side, rows: Index, events: CoveringEvents | None
    ) -> Results:
        """The output rows of the snapshots at some positions, given their keys and events."""
        first = self._aggregations[0]
        if isinstance(first.measure, TopK) and events is not None and first.argument is not None:
            return self._top(first.measure, keys, events, first.argument(events.payload))
        columns = list(keys.columns)
        ints = [column[rows] for column in side.ints]
        pairs = [(high[rows], low[rows]) for high, low in side.pairs]
        for aggregation in self._aggregations:
            measure = aggregation.measure
            if isinstance(measure, Accumulator):
                sums = side.n[rows], ints[: measure.ints], pairs[: measure.pairs]
                columns.append(self._total(measure, self._schema.names[len(columns)], keys, sums))
                ints, pairs = ints[measure.ints :], pairs[measure.pairs :]
            elif isinstance(measure, Selection) and events is not None and aggregation.argument is not None:
                columns.append(measure.result(events, aggregation.argument(events.payload)))
        return Results(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _total(
        self,
        measure: Accumulator,
        name: str,
        keys: pa.RecordBatch,
        sums: tuple[Index, list[Index], list[Pair]],
    ) -> pa.Array:
        try:
            return measure.result(*sums)
        except BeyondInt64Error as why:
            group = f" of {keys.slice(why.row, 1).to_pylist()[0]}" if keys.num_columns else ""
            reason = f"the sum {name}{group} does not fit in int64; give the column as float64"
            raise OverflowError(reason) from None

    def _top(self, top: TopK, keys: pa.RecordBatch, events: CoveringEvents, values: pa.Array) -> Results:
        chosen, rank, counts = top.choose(events, values)
        payload = take_rows(events.payload, chosen)
        owner = pa.array(np.repeat(np.arange(events.snapshots), counts))
        own = [column.take(owner) for column in keys.columns]
        rest = [payload.column(name) for name in self._schema.names[len(own) : -1]]
        return Results(pa.RecordBatch.from_arrays([*own, *rest, pa.array(rank)], schema=self._schema), counts)
