"""Payload rows known by number: appended in blocks, taken in any order, renumbered when most are dead."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, null_payload, take_rows
from recension.operators.state.block_table import BlockTable
from recension.operators.state.chunks import cut_table, unite_table
from recension.operators.state.leaf_table import LeafTable

_RATIO = 4
_SMALL = 1024
_MANY = 32


class RowStore:
    """Rows of one schema, numbered from 0 in order of arrival.

    Blocks are united so that each is several times as long as the next, or all when most rows are taken.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._serial = 0
        self.clear()

    def clear(self) -> None:
        """Forget all rows; numbers start from 0 again."""
        self._blocks: list[pa.RecordBatch] = []
        self._sizes: list[int] = []
        self._serials: list[int] = []

    def __len__(self) -> int:
        return sum(self._sizes)

    def nbytes(self) -> int:
        """Memory taken by the rows."""
        return sum(int(block.nbytes) for block in self._blocks)

    def append(self, rows: pa.RecordBatch, size: int) -> Index:
        """The numbers of the added rows; ``size`` is how many, for a schema without columns."""
        start, keep = len(self), self._count_kept(size)
        self._push(rows, size)
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
        self._serial += 1
        self._blocks.append(rows)
        self._sizes.append(size)
        self._serials.append(self._serial)

    def _unite(self, keep: int) -> None:
        """One block from all but the first ``keep``."""
        if keep < len(self._blocks) - 1:
            rows, size = pa.concat_batches(self._blocks[keep:]), sum(self._sizes[keep:])
            del self._blocks[keep:], self._sizes[keep:], self._serials[keep:]
            self._push(rows, size)

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
        kept = self.take(numbers)
        self.clear()
        if len(numbers):
            self._push(kept, len(numbers))

    def to_table(self) -> pa.Table:
        """All rows, in order of their numbers."""
        return pa.Table.from_batches(self._blocks, self.schema)

    def snapshot(self, name: str) -> dict[str, pa.Table]:
        """The rows as tables whose names begin with ``name``; one stored before need not be stored again."""
        blocks = pa.list_(pa.int64())
        head = {
            "serial": [self._serial],
            "serials": pa.array([self._serials], blocks),
            "sizes": pa.array([self._sizes], blocks),
        }
        tables = {f"{name}/blocks": pa.table(head)}
        for serial, block in zip(self._serials, self._blocks, strict=True):
            tables |= cut_table(f"{name}/block{serial}", pa.Table.from_batches([block], self.schema))
        return tables

    def restore(self, name: str, chunks: Mapping[str, pa.Table]) -> None:
        """Become the store that gave these chunks under this name."""
        self.clear()
        head = chunks[f"{name}/blocks"].to_pylist()[0]
        for serial, size in zip(head["serials"], head["sizes"], strict=True):
            rows = unite_table(f"{name}/block{serial}", chunks).combine_chunks().to_batches()
            self._serial = serial - 1
            self._push(rows[0] if rows else null_payload(0, self.schema), size)
        self._serial = head["serial"]


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
