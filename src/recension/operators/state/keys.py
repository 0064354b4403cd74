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
from recension.core.sorted_runs import SortedRuns
from recension.operators.state.arena import Arena
from recension.operators.state.row_store import RowStore


class KeyIndex:
    """From key rows to numbers and back."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        # The hash of one whole number or time is a bijection: there is nothing left to compare.
        kinds = [field.type for field in schema]
        self._is_exact = len(kinds) == 1 and (pa.types.is_integer(kinds[0]) or pa.types.is_temporal(kinds[0]))
        self._clear()

    def _clear(self) -> None:
        self._runs = SortedRuns({"hash": np.uint64, "number": np.int64})
        self._rows = RowStore(self._schema)
        self._hashes = Arena({"hash": np.uint64})
        self._slots = np.full(16, -1, np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    def nbytes(self) -> int:
        """Memory taken by the keys."""
        return self._runs.nbytes() + self._rows.nbytes()

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
            rank += len(self)
            numbers[unknown] = rank[inverse]
            self._add(fresh, rank, take_rows(keys, unknown[np.sort(first)]))
        if not self._is_exact and not bool(rows_equal(keys, self.rows(numbers), len(numbers)).all()):
            raise RecensionError("two different group keys share a 64-bit hash")
        return numbers

    def rows(self, numbers: Index) -> pa.RecordBatch:
        """The key rows of the given numbers."""
        return self._rows.take(numbers)

    def hashes(self, numbers: Index) -> Hashes:
        """The key hashes of the given numbers; unlike the numbers, they never change."""
        found: Hashes = self._hashes["hash"][numbers]
        return found

    def _find(self, hashes: Hashes) -> Index:
        """By the slots first, which hold most keys; the other keys are searched for."""
        numbers: Index = self._slots[hashes & np.uint64(len(self._slots) - 1)]
        if not len(self):
            return numbers
        # An empty slot holds -1. That reads the last key, but the result is -1 in any case.
        numbers = np.where(self._hashes["hash"][numbers] == hashes, numbers, -1)
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            numbers[unknown] = self._search(hashes[unknown])
        return numbers

    def _search(self, hashes: Hashes) -> Index:
        numbers = np.full(len(hashes), -1, np.int64)
        for run in self._runs:
            at, is_found = run.find(hashes)
            numbers = np.where(is_found, run.columns["number"][at], numbers)
        return numbers

    def _renew_slots(self) -> None:
        """One key a slot, found by the last bits of its hash; keys that lose their slot are searched for."""
        self._slots = np.full(1 << max(4, (8 * len(self)).bit_length()), -1, np.int64)
        self._slots[self._hashes["hash"] & np.uint64(len(self._slots) - 1)] = np.arange(len(self))

    def _add(self, hashes: Hashes, numbers: Index, rows: pa.RecordBatch) -> None:
        """The rows of new keys in order of their numbers, and their hashes, sorted, with their numbers."""
        in_order = np.empty(len(hashes), np.uint64)
        in_order[numbers - len(self)] = hashes
        self._hashes.append({"hash": in_order})
        self._rows.append(rows, len(hashes))
        if 4 * len(self) > len(self._slots):
            self._renew_slots()
        self._runs.push(hashes, numbers, is_run=True)

    def retire(self, in_use: Mask) -> Index:
        """Forget the groups not in use; the new number of each old one, -1 for those forgotten."""
        new_numbers = np.where(in_use, np.cumsum(in_use) - 1, -1)
        self.restore(self.rows(np.flatnonzero(in_use)))
        return new_numbers

    def restore(self, rows: pa.RecordBatch) -> None:
        """Number these distinct rows 0, 1, 2, …"""
        self._clear()
        if rows.num_rows:
            hashes = row_hash(rows)
            order = np.argsort(hashes)
            self._add(hashes[order], order, rows)

    def no_rows(self) -> pa.RecordBatch:
        """An empty table of keys."""
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in self._schema], schema=self._schema)

    def snapshot(self) -> pa.Table:
        """All key rows in order of their numbers."""
        return self._rows.to_table()
