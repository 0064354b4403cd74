"""Rows in the order of their partitions, and what of them may not be there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, EventBatch, Index, Mask
from recension.core.errors import RecensionError
from recension.core.placement import Placement
from recension.core.segments import are_sorted, group_starts, running_max, stable_order, values_at
from recension.core.ticks import BEGINNING, Ticks

_NOTHING: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows with their partitions, and where they stood among those that were given.

    ``at`` lists them partition by partition, in the order in which they stand; ``first`` is where each
    partition begins there.
    """

    batch: EventBatch
    placement: Placement
    partition: Index
    row: Index
    at: Index
    first: Index

    @staticmethod
    def of(batch: EventBatch, placement: Placement, numbers: Index) -> PartitionRows:
        if len(batch) != len(placement):
            raise RecensionError(f"{len(batch)} rows, but places of {len(placement)}")
        return PartitionRows.make(batch, placement, numbers[placement.code], np.arange(len(batch)))

    @staticmethod
    def make(batch: EventBatch, placement: Placement, partition: Index, row: Index) -> PartitionRows:
        at = stable_order(partition, int(partition.max(initial=0)) + 1)
        return PartitionRows(batch, placement, partition, row, at, group_starts(partition[at]))

    def __len__(self) -> int:
        return len(self.partition)

    def filter(self, keep: Mask) -> PartitionRows:
        if bool(keep.all()):
            return self
        batch, places = self.batch.filter(keep), self.placement.take(keep)
        return PartitionRows.make(batch, places, self.partition[keep], self.row[keep])

    def in_order(self) -> PartitionRows:
        """Each partition's rows by its order, in the very places that its rows have among all."""
        columns = [column[self.at] for column in self.placement.order]
        if not columns or are_sorted(columns, self.first):
            return self
        order = np.lexsort((*reversed(self.placement.order), self.partition))
        rows = np.empty(len(self), np.int64)
        rows[self.at] = order
        return replace(
            self, batch=self.batch.take(rows), placement=self.placement.take(rows), row=self.row[rows]
        )

    def sizes(self) -> Index:
        """How many rows each partition has that is there."""
        return np.diff(np.append(self.first, len(self)))

    def ctis_before(self, known: Ticks) -> Ticks:
        """The last CTI of its partition before each row."""
        before = values_at(known, self.partition, BEGINNING)
        is_cti = (self.batch.kind == CTI)[self.at]
        at = np.flatnonzero(is_cti)
        ends = np.append(self.first[1:], len(self)) - 1
        if not len(at) or bool(np.isin(at, ends).all()):
            return before  # most often there is none, or one after all rows of its partition
        group = np.repeat(np.arange(len(self.first)), self.sizes())
        top = running_max(self.batch.vs[self.at[at]], group_starts(group[at]))
        # The last CTI before each row, in the order of partitions; it must be of the same one.
        last = np.cumsum(is_cti) - is_cti - 1
        is_own = (last >= 0) & (group[at[last]] == group)
        found = np.where(is_own, top[last], np.int64(BEGINNING))
        before[self.at] = np.maximum(before[self.at], found)
        return before


def summarize(batch: EventBatch, placement: Placement) -> pa.Table:
    """What other shards must know of rows: a row a partition; tables of several tasks are put together."""
    rows = PartitionRows.of(batch, placement, np.arange(len(placement.names))).in_order()
    present = rows.partition[rows.at[rows.first]] if len(rows) else _NOTHING
    starts = np.where(batch.kind == CTI, np.int64(BEGINNING), batch.vs) if len(rows) else _NOTHING
    starts = starts[rows.row][rows.at]
    last = rows.at[np.append(rows.first[1:], len(rows)) - 1] if len(rows) else _NOTHING
    order = {f"order_{i}": column[last] for i, column in enumerate(rows.placement.order)}
    latest = np.maximum.reduceat(starts, rows.first) if len(rows) else _NOTHING
    names = pa.array([placement.names[number] for number in present], pa.string())
    return pa.table({"name": names, "latest_start": latest, **order})
