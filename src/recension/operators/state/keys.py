"""Group keys and their numbers: every distinct key row gets the next whole number.

Numbers only grow, so a table sorted by number stays sorted; `retire` forgets groups that hold nothing and
renumbers the rest in the same order.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask, take_rows
from recension.core.errors import RecensionError
from recension.core.rowhash import Hashes, row_hash, rows_equal


class KeyIndex:
    """From key rows to numbers and back."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        # The hash of one whole number or time is a bijection: there is nothing left to compare.
        kinds = [field.type for field in schema]
        self._is_exact = len(kinds) == 1 and (pa.types.is_integer(kinds[0]) or pa.types.is_temporal(kinds[0]))
        self._clear()

    def _clear(self) -> None:
        self._runs: list[tuple[Hashes, Index]] = []
        self._rows: list[pa.RecordBatch] = []
        self._hashes = np.zeros(0, np.uint64)
        self._size = 0
        self._slots = np.full(16, -1, np.int64)

    def __len__(self) -> int:
        return self._size

    def nbytes(self) -> int:
        """Memory taken by the keys."""
        return 16 * self._size + sum(int(rows.nbytes) for rows in self._rows)

    def number(self, keys: pa.RecordBatch) -> Index:
        """The number of each key row; rows not seen before get new numbers."""
        if not keys.num_columns:
            raise RecensionError("a group key needs at least one column")
        hashes = row_hash(keys)
        numbers = self._find(hashes)
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            fresh, first, inverse = np.unique(hashes[unknown], return_index=True, return_inverse=True)
            # Numbers in order of first appearance: the same stream always numbers its groups alike.
            rank = np.empty(len(first), np.int64)
            rank[np.argsort(first)] = np.arange(len(first))
            numbers[unknown] = self._size + rank[inverse]
            self._add(fresh, self._size + rank, take_rows(keys, unknown[np.sort(first)]))
        if not self._is_exact and not bool(rows_equal(keys, self.rows(numbers), len(numbers)).all()):
            raise RecensionError("two different group keys share a 64-bit hash")
        return numbers

    def rows(self, numbers: Index) -> pa.RecordBatch:
        """The key rows of the given numbers."""
        if len(self._rows) == 1:
            return take_rows(self._rows[0], numbers)
        table = pa.Table.from_batches(self._rows, self._schema).take(pa.array(numbers))
        return table.combine_chunks().to_batches()[0] if len(numbers) else self.no_rows()

    def hashes(self, numbers: Index) -> Hashes:
        """The key hashes of the given numbers; unlike the numbers, they never change."""
        found: Hashes = self._hashes[numbers]
        return found

    def _find(self, hashes: Hashes) -> Index:
        """By the slots first, which know most keys; what they do not know is searched for."""
        slot = hashes & np.uint64(len(self._slots) - 1)
        numbers = self._slots[slot]
        # An empty slot names the last key of all, which is told apart by its hash like any other.
        numbers = (
            np.where(np.append(self._hashes, 0)[numbers] == hashes, numbers, -1) if self._size else numbers
        )
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            numbers[unknown] = self._search(hashes[unknown])
        return numbers

    def _search(self, hashes: Hashes) -> Index:
        numbers = np.full(len(hashes), -1, np.int64)
        for known, run_numbers in self._runs:
            at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            numbers = np.where(known[at] == hashes, run_numbers[at], numbers)
        return numbers

    def _renew_slots(self) -> None:
        """One key a slot, found by the last bits of its hash; keys that lose their slot are searched for."""
        self._slots = np.full(1 << max(4, (8 * self._size).bit_length()), -1, np.int64)
        self._slots[self._hashes & np.uint64(len(self._slots) - 1)] = np.arange(self._size)

    def _add(self, hashes: Hashes, numbers: Index, rows: pa.RecordBatch) -> None:
        in_order = np.empty(len(hashes), np.uint64)
        in_order[numbers - self._size] = hashes
        self._hashes = np.append(self._hashes, in_order)
        self._size += len(hashes)
        if 4 * self._size > len(self._slots):
            self._renew_slots()
        self._runs.append((hashes, numbers))
        self._rows.append(rows)
        while len(self._runs) > 1 and 2 * len(self._runs[-1][0]) >= len(self._runs[-2][0]):
            (h2, n2), (h1, n1) = self._runs.pop(), self._runs.pop()
            both = np.concatenate([h1, h2])
            order = np.argsort(both)
            self._runs.append((both[order], np.concatenate([n1, n2])[order]))
            last = self._rows.pop()
            self._rows.append(pa.concat_batches([self._rows.pop(), last]))

    def retire(self, in_use: Mask) -> Index:
        """Forget the groups not in use; the new number of each old one, -1 for those forgotten."""
        new_numbers = np.where(in_use, np.cumsum(in_use) - 1, -1)
        kept = self.rows(np.flatnonzero(in_use))
        self._clear()
        self.load(kept)
        return new_numbers

    def load(self, rows: pa.RecordBatch) -> None:
        """Number these distinct rows 0, 1, 2, …"""
        self._clear()
        if rows.num_rows:
            hashes = row_hash(rows)
            order = np.argsort(hashes)
            self._add(hashes[order], order, rows)

    def no_rows(self) -> pa.RecordBatch:
        """An empty table of keys."""
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in self._schema], schema=self._schema)

    def to_arrow(self) -> pa.Table:
        """All key rows in order of their numbers."""
        return pa.Table.from_batches(self._rows, self._schema)
