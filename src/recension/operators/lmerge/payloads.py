"""Payload rows known by number, kept as they came, block by block, each row copied once.

Big payloads are what a merge spends its memory on: blocks are never united, only dropped when the rows that
are still wanted are gathered into a new one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, null_payload, take_rows
from recension.operators.state.slices import cut, whole

_SMALL = 1024
_MANY = 32


class Payloads:
    """Rows of one schema, numbered from 0 in order of arrival."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._serial = 0
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._blocks: list[pa.RecordBatch] = []
        self._starts: list[int] = []
        self._serials: list[int] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, payload: pa.RecordBatch, rows: Index) -> Index:
        """Copy these rows of a batch; their numbers."""
        if self._blocks and self._size - self._starts[-1] + len(rows) <= _SMALL:
            last = self._size - self._starts[-1]
            joined = pa.concat_batches([self._blocks.pop(), take_rows(payload, rows)])
            self._starts.pop()
            self._serials.pop()
            self._size -= last
            self._push(joined, last + len(rows))
        else:
            self._push(take_rows(payload, rows), len(rows))
        if len(self._blocks) > _MANY and self._size < _MANY * _SMALL:
            self.retain(np.arange(self._size))
        return np.arange(self._size - len(rows), self._size)

    def _push(self, block: pa.RecordBatch, size: int) -> None:
        self._serial += 1
        self._blocks.append(block)
        self._starts.append(self._size)
        self._serials.append(self._serial)
        self._size += size

    def take(self, numbers: Index) -> pa.RecordBatch:
        """The rows with these numbers, in this order."""
        if not self.schema.names or not len(numbers):
            return null_payload(0, self.schema)
        block = np.searchsorted(np.array(self._starts), numbers, side="right") - 1
        inside = numbers - np.array(self._starts)[block]
        if len(self._blocks) == 1 or bool((block == block[0]).all()):
            return take_rows(self._blocks[int(block[0])], inside)
        order = np.argsort(block, kind="stable")
        bounds = np.searchsorted(block[order], np.arange(len(self._blocks) + 1))
        parts = [
            take_rows(self._blocks[i], inside[order[start:stop]])
            for i, (start, stop) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
            if stop > start
        ]
        gathered = pa.concat_batches(parts)
        if bool((order[1:] > order[:-1]).all()):
            return gathered
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return take_rows(gathered, back)

    def retain(self, numbers: Index) -> None:
        """Keep only these rows; they are numbered anew, from 0, in this order."""
        kept = self.take(numbers)
        self.clear()
        if len(numbers):
            self._push(kept, len(numbers))

    def nbytes(self) -> int:
        """Memory taken by the rows."""
        return sum(int(block.nbytes) for block in self._blocks)

    def chunks(self, name: str) -> dict[str, pa.Table]:
        """The rows as tables; a block stored before need not be stored again."""
        blocks = pa.list_(pa.int64())
        head = {
            "serial": [self._serial],
            "size": [self._size],
            "serials": pa.array([self._serials], blocks),
            "starts": pa.array([self._starts], blocks),
        }
        tables = {f"{name}/blocks": pa.table(head)}
        for serial, block in zip(self._serials, self._blocks, strict=True):
            tables |= cut(f"{name}/block{serial}", pa.Table.from_batches([block], self.schema))
        return tables

    def load(self, name: str, chunks: Mapping[str, pa.Table]) -> None:
        """Become the store that gave these chunks under this name."""
        self.clear()
        head = chunks[f"{name}/blocks"].to_pylist()[0]
        self._serials, self._starts, self._size = head["serials"], head["starts"], head["size"]
        self._serial = head["serial"]
        for serial in self._serials:
            rows = whole(f"{name}/block{serial}", chunks).combine_chunks().to_batches()
            self._blocks.append(rows[0] if rows else null_payload(0, self.schema))
