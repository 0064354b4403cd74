"""Group keys and their numbers: every distinct key row gets the next whole number.

Numbers only grow, so a table sorted by number stays sorted; `retire` forgets groups that hold nothing and
renumbers the rest in the same order.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask, take_rows
from recension.core.change_log import Change
from recension.core.errors import RecensionError
from recension.core.memory import zeros
from recension.core.netting import first_of_equal
from recension.core.rowhash import Hashes, row_hash, rows_equal
from recension.core.sorted_runs import SortedRuns
from recension.operators.state.arena import Arena
from recension.operators.state.row_store import RowStore

_PROBES: Final = (0, 20, 40)
_STEP: Final = 1 << 14
_ROOM: Final = 2  # slots a key, at least


class _Slots:
    """Numbers by hash: a key has the first of its slots that was free when it came.

    So a key is not there if one of its slots is free. The few keys that found none are searched for.
    """

    def __init__(self, keys: int) -> None:
        # 0 is a free slot: zeros take no memory until they are written to.
        self._slots = zeros(1 << max(4, (2 * _ROOM * keys).bit_length()), np.int32)
        self._rest = SortedRuns({"hash": np.uint64, "number": np.int64})
        self.keys = 0

    def is_full(self) -> bool:
        """Is there too little room for the keys?"""
        return _ROOM * self.keys > len(self._slots)

    def nbytes(self) -> int:
        """Memory taken by keys."""
        return self._slots.itemsize * _ROOM * self.keys + self._rest.nbytes()

    def add(self, hashes: Hashes, first: int) -> None:
        """Take in keys that are not there; their numbers begin with ``first``."""
        self.keys += len(hashes)
        codes = np.arange(first + 1, first + 1 + len(hashes), dtype=np.int32)
        for probe in _PROBES:
            at = self._places(hashes, probe)
            is_free = self._slots[at] == 0
            self._slots[at[is_free]] = codes[is_free]
            lost = self._slots[at] != codes
            hashes, codes = hashes[lost], codes[lost]
        self._rest.push(hashes, codes.astype(np.int64) - 1)

    def find(self, hashes: Hashes, known: Hashes) -> Index:
        """The number of each key, -1 if it has none; ``known`` are the hashes of all keys by number."""
        numbers: Index = self._slots[self._places(hashes, _PROBES[0])].astype(np.int64) - 1
        if not len(known):
            return numbers
        # A free slot reads the last key, but the result is -1 in any case.
        others = np.flatnonzero((known[numbers] != hashes) & (numbers >= 0))
        for probe in _PROBES[1:]:
            if not len(others):
                return numbers
            wanted = hashes[others]
            numbers[others] = found = self._slots[self._places(wanted, probe)] - 1
            others = others[(known[found] != wanted) & (found >= 0)]
        numbers[others] = self._search(hashes[others])
        return numbers

    def _places(self, hashes: Hashes, probe: int) -> Hashes:
        found: Hashes = (hashes >> np.uint64(probe)) & np.uint64(len(self._slots) - 1)
        return found

    def _search(self, hashes: Hashes) -> Index:
        numbers = np.full(len(hashes), -1, np.int64)
        for run in self._rest:
            at, is_found = run.find(hashes)
            numbers = np.where(is_found, run.columns["number"][at], numbers)
        return numbers


class KeyIndex:
    """From key rows to numbers and back."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        # The hash of one whole number or time is a bijection: there is nothing left to compare.
        kinds = [field.type for field in schema]
        self._is_exact = len(kinds) == 1 and (pa.types.is_integer(kinds[0]) or pa.types.is_temporal(kinds[0]))
        self.clear()

    def clear(self) -> None:
        """Forget all keys."""
        self._rows = RowStore(self._schema)
        self._hashes = Arena({"hash": np.uint64})
        self._slots = _Slots(0)
        self._larger: _Slots | None = None

    def __len__(self) -> int:
        return len(self._hashes)

    def nbytes(self) -> int:
        """Memory taken by the keys."""
        return self._slots.nbytes() + self._rows.nbytes()

    def number(self, keys: pa.RecordBatch) -> Index:
        """The number of each key row; rows not seen before get new numbers."""
        if not keys.num_columns:
            raise RecensionError("a group key needs at least one column")
        hashes = row_hash(keys)
        numbers = self._slots.find(hashes, self._hashes["hash"])
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            first = first_of_equal(hashes[unknown])
            # Numbers in order of first appearance: the same stream always numbers its groups alike.
            is_first = first == np.arange(len(first))
            numbers[unknown] = (np.cumsum(is_first) + (len(self) - 1))[first]
            fresh = unknown[is_first]
            self._add(hashes[fresh], take_rows(keys, fresh))
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

    def _add(self, hashes: Hashes, rows: pa.RecordBatch) -> None:
        """New keys, in order of their numbers."""
        known = len(self)
        self._hashes.append({"hash": hashes})
        self._rows.append(rows, len(hashes))
        if len(hashes) > known:  # so many pay for a new table
            self._slots, self._larger = _Slots(len(self)), None
            self._slots.add(self._hashes["hash"], 0)
            return
        self._slots.add(hashes, known)
        if self._slots.is_full() and self._larger is None:
            self._larger = _Slots(len(self))
        if self._larger is not None:
            self._move_on(self._larger, max(_STEP, 4 * len(hashes)))

    def _move_on(self, larger: _Slots, keys: int) -> None:
        """Put some more keys into the larger table; it is used once it has all of them."""
        done = larger.keys
        larger.add(self._hashes["hash"][done : done + keys], done)
        if larger.keys == len(self):
            self._slots, self._larger = larger, None

    def retire(self, in_use: Mask) -> Index:
        """Forget the groups not in use; the new number of each old one, -1 for those forgotten."""
        new_numbers = np.where(in_use, np.cumsum(in_use) - 1, -1)
        kept = self.rows(np.flatnonzero(in_use))
        self.clear()
        self._add_rows(kept)
        return new_numbers

    def _add_rows(self, rows: pa.RecordBatch) -> None:
        """Give these distinct rows, which are not here, the next numbers."""
        if rows.num_rows:
            self._add(row_hash(rows), rows)

    def restore(self, table: pa.Table | Change) -> None:
        """Become the index that `snapshot` gave, or take over changes."""
        is_change = isinstance(table, Change)
        if not is_change or table.is_whole:
            self.clear()
        self._add_rows(self._rows.read_new(table.rows if is_change else table)[0])
        if is_change:
            self._rows.mark_stored(table)

    @property
    def key(self) -> tuple[str, ...]:
        """The column that tells rows apart: their numbers."""
        return self._rows.key

    def snapshot(self) -> pa.Table:
        """All key rows in order of their numbers."""
        return self._rows.snapshot()

    def take_changes(self, version: int) -> Change:
        """See `Logged.take_changes`."""
        return self._rows.take_changes(version)

    def find_current(self, change: Change, version: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        return self._rows.find_current(change, version)
