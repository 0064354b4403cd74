"""Edges: each reading is valid until the next reading of its group; the last one for ever.

Assumes     a valid physical stream in which no group has two readings at one time.
Guarantees  after every batch the output history is that of the readings so far, each from its start to the
            next start of its group. CTIs pass unchanged: a reading that comes or goes moves the end of the
            one before it to or from its own start.
State       per group the readings from the last CTI on and one before it.
Cost        O(n log s) for n elements and s readings of state, and the blocks of state they touch.
Source      Temporal Coalescing on Window Extents over Data Streams, §2.3; coalescing rulings 2, 4, 17.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, empty
from recension.operators.base import Output, SingleStateOperator
from recension.operators.changes import changes, order_of_changes
from recension.operators.state.readings import ReadingAxis, Readings


class Edges(SingleStateOperator):
    """Readings by group; without ``group_by`` all are of one."""

    changes_on_cti = False
    shards_share_ctis = True

    def __init__(self, schema: pa.Schema, group_by: Sequence[str] = (), keyed_by: str = "group_by") -> None:
        """``keyed_by`` says, in errors, where the groups were named."""
        self._group_by = list(group_by)
        self._readings = Readings(schema, pa.schema([schema.field(name) for name in group_by]), keyed_by)
        super().__init__(schema, self._readings)

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        group = self._readings.number(batch.payload.select(self._group_by), len(batch))
        out = self._make_changes(self._readings.apply(batch, group))
        self._readings.tidy()
        return out

    def _make_changes(self, axis: ReadingAxis) -> EventBatch:
        """From the end each reading had to the end it has now, where they differ."""
        was, now = axis.ends(axis.old_row), axis.ends(axis.new_row)
        is_other = (axis.old_row != axis.new_row) & (axis.old_row >= 0) & (axis.new_row >= 0)
        moves = ((was != now) & ~is_other & ~axis.is_context).nonzero()[0]
        replaced = is_other.nonzero()[0]
        at = axis.time[np.concatenate([moves, replaced, replaced])]
        none = axis.time[replaced]
        old = np.concatenate([was[moves], was[replaced], none])
        new = np.concatenate([now[moves], none, now[replaced]])
        row = np.concatenate(
            [np.maximum(axis.old_row, axis.new_row)[moves], axis.old_row[replaced], axis.new_row[replaced]]
        )
        order = order_of_changes(at, old, new)
        return changes(at[order], old[order], new[order], self._readings.payload(row[order]))

    def on_cti(self, port: int, t: int) -> Output:
        self._readings.advance(t)
        return self.emit(t)
