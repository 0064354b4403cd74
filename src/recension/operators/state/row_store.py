"""Payload rows known by number: appended in blocks, taken in any order, renumbered when most are dead."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask, null_payload, take_rows
from recension.core.change_log import Change
from recension.core.memory import keep_batch, longest_copy
from recension.operators.state.block_table import BlockTable
from recension.operators.state.leaf_table import LeafTable

_RATIO = 4
_SMALL = 1024
_MANY = 32


class RowStore:
    """Rows of one schema, numbered from 0 in order of arrival.

    Blocks are united so that each is several times as long as the next, or all when most rows are taken; but
    no more at once than `longest_copy` allows.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        name = "#"
        while name in schema.names:
            name += "#"
        self.key = (name,)
        self.clear()

    def clear(self) -> None:
        """Forget all rows; numbers start from 0 again."""
        self._blocks: list[pa.RecordBatch] = []
        self._sizes: list[int] = []
        # How many rows were stored by the last checkpoint (-1: none), and which one stored row 0.
        self._stored, self._base = -1, 0

    def __len__(self) -> int:
        return sum(self._sizes)

    def nbytes(self) -> int:
        """Memory taken by the rows."""
        return sum(int(block.nbytes) for block in self._blocks)

    def append(self, rows: pa.RecordBatch, size: int) -> Index:
        """The numbers of the added rows; ``size`` is how many, for a schema without columns."""
        start, keep = len(self), self._count_kept(size)
        self._push(keep_batch(rows), size)
        self._unite(keep)
        return np.arange(start, start + size)

    def _count_kept(self, size: int) -> int:
        """How many blocks stay as they are when so many rows come; the others become one with them."""
        keep, total = len(self._sizes), size
        while keep and self._sizes[keep - 1] <= _RATIO * total:
            keep -= 1
            total += self._sizes[keep]
        return keep

    def _push(self, rows: pa.RecordBatch, size: int) -> None:
        self._blocks.append(rows)
        self._sizes.append(size)

    def _unite(self, keep: int) -> None:
        """One block from all but the first ``keep``, or from as many of the last ones as may be copied."""
        if keep < len(self._blocks) - 1:
            bytes_from = np.cumsum([block.nbytes for block in self._blocks[keep:]][::-1])[::-1]
            keep += int(np.count_nonzero(bytes_from > longest_copy()))
        if keep < len(self._blocks) - 1:
            rows, size = pa.concat_batches(self._blocks[keep:]), sum(self._sizes[keep:])
            del self._blocks[keep:], self._sizes[keep:]
            self._push(keep_batch(rows), size)

    def take(self, numbers: Index) -> pa.RecordBatch:
        """The rows with these numbers, in this order."""
        if not len(numbers) or not self.schema.names:
            return null_payload(0, self.schema)
        self._before_taking(len(numbers))
        return take_rows(self._blocks[0], numbers) if len(self._blocks) == 1 else self._gather(numbers)

    def _before_taking(self, rows: int) -> None:
        if _RATIO * rows >= len(self):
            self._unite(0)

    def _gather(self, numbers: Index) -> pa.RecordBatch:
        """Block by block, then back into the order asked for (Arrow would copy all blocks into one)."""
        ends = np.cumsum(self._sizes)
        block = np.searchsorted(ends, numbers, "right")
        inside: Index = numbers - (ends - np.array(self._sizes))[block]
        if bool((block == block[0]).all()):
            return take_rows(self._blocks[int(block[0])], inside)
        order = np.argsort(block, kind="stable")
        used, first = np.unique(block[order], return_index=True)
        places = np.split(order, first[1:])
        parts = [take_rows(self._blocks[i], inside[at]) for i, at in zip(used.tolist(), places, strict=True)]
        gathered = pa.concat_batches(parts)
        in_order = bool((order[1:] > order[:-1]).all())
        return gathered if in_order else take_rows(gathered, np.argsort(order))

    def retain(self, numbers: Index) -> None:
        """Keep only these rows; they are numbered anew, from 0, in this order."""
        most = max(1, len(self) * longest_copy() // max(self.nbytes(), 1))
        parts = [numbers[start : start + most] for start in range(0, len(numbers), most)]
        kept = [keep_batch(self.take(part)) for part in parts]
        self.clear()
        for rows, part in zip(kept, parts, strict=True):
            self._push(rows, len(part))

    def snapshot(self) -> pa.Table:
        """All rows, after their numbers."""
        return self._rows_from(0)

    def _rows_from(self, first: int) -> pa.Table:
        """The rows from a number on."""
        before, batches = 0, []
        for block, size in zip(self._blocks, self._sizes, strict=True):
            if before + size > first and self.schema.names:
                batches.append(block.slice(max(first - before, 0)))
            before += size
        rows = pa.Table.from_batches(batches, self.schema)
        numbers = pa.array(np.arange(first, before))
        return pa.table([numbers, *rows.columns], names=[self.key[0], *self.schema.names])

    def restore(self, table: pa.Table | Change) -> None:
        """Become the store that `snapshot` gave, or take over changes."""
        is_change = isinstance(table, Change)
        rows = table.rows if is_change else table
        if not is_change or table.is_whole:
            self.clear()
        fresh, size = self.read_new(rows)
        if size:
            self.append(fresh, size)
        if is_change:
            self.mark_stored(table)

    def mark_stored(self, change: Change) -> None:
        """All that is here is stored."""
        self._stored, self._base = len(self), int(change.memo["base"])

    def read_new(self, rows: pa.Table) -> tuple[pa.RecordBatch, int]:
        """Those rows of a snapshot or change that are not here yet, and how many they are."""
        numbers = rows[0].to_numpy()
        fresh = int(np.searchsorted(numbers, len(self)))
        assert bool((numbers[fresh:] == np.arange(len(self), len(self) + len(numbers) - fresh)).all())
        batches = rows.slice(fresh).drop_columns(self.key[0]).combine_chunks().to_batches()
        return batches[0] if batches else null_payload(0, self.schema), len(numbers) - fresh

    def take_changes(self, version: int) -> Change:
        """See `Logged.take_changes`."""
        first, self._stored = self._stored, len(self)
        if first < 0:
            self._base = version
        rows = self._rows_from(max(first, 0))
        return Change(rows, rows.select([0]).slice(0, 0), first < 0, {"base": self._base})

    def find_current(self, change: Change, version: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        return np.full(len(change.rows), version >= self._base), np.zeros(0, np.bool_)


def drop_unused_rows(store: RowStore, table: BlockTable | LeafTable, *columns: str) -> int:
    """Keep the rows that columns of a table name, and number them anew there; how many there are."""
    rows = table.snapshot()
    named = [rows[column].to_numpy() for column in columns]
    used, numbers = np.unique(np.concatenate(named), return_inverse=True)
    store.retain(used)
    for column, new in zip(columns, np.split(numbers, len(columns)), strict=True):
        rows = rows.set_column(rows.schema.get_field_index(column), column, pa.array(new))
    table.restore(rows)
    return len(used)


class PayloadStore(RowStore):
    """A store for big payloads, on which a merge spends its memory: each row is copied once.

    Long blocks are never united, only dropped when the rows still needed are gathered into a new one. Short
    blocks are united, or there would be too many.
    """

    def _count_kept(self, size: int) -> int:
        blocks, total = len(self._sizes), len(self) + size
        if blocks >= _MANY and total < _MANY * _SMALL:
            return 0
        return blocks - bool(blocks and self._sizes[-1] + size <= _SMALL)

    def _before_taking(self, rows: int) -> None:
        """Unites nothing."""
