"""Group keys and their numbers: every distinct key row gets the next whole number, or one that is to spare.

A number that is to spare keeps its key until another key gets it. So a key that comes back may have its old
number again, and no number is ever without a key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import Index, Mask, can_repeat, repeat_row, take_rows
from recension.core.change_log import Change
from recension.core.errors import RecensionError
from recension.core.memory import is_bounded, zeros
from recension.core.netting import distinct, first_of_equal
from recension.core.rowhash import Hashes, row_hash, rows_equal
from recension.core.sorted_runs import SortedRuns
from recension.operators.state.arena import Arena
from recension.operators.state.key_rows import KeyRows
from recension.operators.state.row_store import one_batch

_PROBES: Final = (0, 20, 40)
_STEP: Final = 1 << 14
_ROOM: Final = 2  # slots a key, at least
_REPEATED: Final = 4  # rows a key, from which on it pays to look at each text once
_FEW: Final = 64


class _Slots:
    """Numbers by hash: a key has the first of its slots that was free when it came.

    So a key is not there if one of its slots is free. The few keys that found none are searched for.
    """

    def __init__(self, keys: int) -> None:
        # 0 is a free slot: zeros take no memory until they are written to.
        self._slots = zeros(1 << max(4, (2 * _ROOM * keys).bit_length()), np.int32)
        self._rest = SortedRuns({"hash": np.uint64, "number": np.int64})
        self._is_in_rest = Arena({"is": np.bool_})  # by number
        # Keys taken in, also those whose number went to another: they keep their slots.
        self.keys = 0

    def is_full(self) -> bool:
        """Is there too little room for the keys?"""
        return _ROOM * self.keys > len(self._slots)

    def nbytes(self) -> int:
        """Memory taken by keys."""
        return self._slots.itemsize * _ROOM * self.keys + self._rest.nbytes()

    def add(self, hashes: Hashes, numbers: Index) -> None:
        """Take in keys that are not there."""
        self.keys += len(hashes)
        codes = (numbers + 1).astype(np.int32)
        for probe in _PROBES:
            at = self._places(hashes, probe)
            free = (self._slots.take(at) == 0).nonzero()[0]
            self._slots[at.take(free)] = codes.take(free)
            lost = (self._slots.take(at) != codes).nonzero()[0]
            hashes, codes = hashes.take(lost), codes.take(lost)
        self._add_to_rest(hashes, codes.astype(np.int64) - 1)

    def _add_to_rest(self, hashes: Hashes, numbers: Index) -> None:
        self._rest.push(hashes, numbers)
        more = int(numbers.max(initial=-1)) + 1 - len(self._is_in_rest)
        if more > 0:
            self._is_in_rest.append({"is": np.zeros(more, np.bool_)})
        self._is_in_rest["is"][numbers] = True

    def forget(self, hashes: Hashes, numbers: Index) -> None:
        """The numbers of these keys go to others, which are known by them from now on."""
        # Slots are never written to again.
        known = self._is_in_rest["is"]
        may_be = np.flatnonzero(numbers < len(known))
        at = may_be[known[numbers[may_be]]]
        known[numbers[at]] = False
        self._rest.remove(hashes[at])

    def find(self, hashes: Hashes, known: Hashes) -> Index:
        """The number of each key, -1 if it has none; ``known`` are the hashes of all keys by number."""
        if len(hashes) == 1:
            return self._find_once(hashes, known)
        numbers: Index = self._slots.take(self._places(hashes, _PROBES[0])).astype(np.int64)
        numbers -= 1
        if not len(known):
            return numbers
        # A free slot reads the last key, but the result is -1 in any case.
        others = ((known.take(numbers, mode="wrap") != hashes) & (numbers >= 0)).nonzero()[0]
        for probe in _PROBES[1:]:
            if not len(others):
                return numbers
            wanted = hashes.take(others)
            found = self._slots.take(self._places(wanted, probe)).astype(np.int64) - 1
            numbers[others] = found
            others = others[((known.take(found, mode="wrap") != wanted) & (found >= 0)).nonzero()[0]]
        numbers[others] = self._search(hashes[others])
        return numbers

    def _find_once(self, hashes: Hashes, known: Hashes) -> Index:
        """The same of a single key, slot by slot."""
        wanted = int(hashes[0])
        for probe in _PROBES:
            number = int(self._slots[wanted >> probe & len(self._slots) - 1]) - 1
            if number < 0 or known[number] == hashes[0]:
                return np.array([number])
        return self._search(hashes)

    def _places(self, hashes: Hashes, probe: int) -> Index:
        found = hashes >> np.uint64(probe)
        found &= np.uint64(len(self._slots) - 1)
        return found.view(np.int64)

    def _search(self, hashes: Hashes) -> Index:
        numbers = np.full(len(hashes), -1, np.int64)
        for run in self._rest:
            at, is_found = run.find(hashes)
            if run.gone is not None:
                is_found &= ~run.gone[at]
            numbers = np.where(is_found, run.columns["number"][at], numbers)
        return numbers


class KeyIndex:
    """From key rows to numbers and back."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._can_repeat = schema, can_repeat(schema)
        self._number_name = "#"
        while self._number_name in schema.names:
            self._number_name += "#"
        # The hash of one whole number or time is a bijection: there is nothing left to compare.
        kinds = [field.type for field in schema]
        self._is_exact = len(kinds) == 1 and (pa.types.is_integer(kinds[0]) or pa.types.is_temporal(kinds[0]))
        # Equal values of other kinds need not be alike: 0.0 is -0.0.
        self._is_plain = all(map(_is_alike_if_equal, kinds))
        self._is_text = len(kinds) == 1 and (
            pa.types.is_string(kinds[0]) or pa.types.is_large_string(kinds[0])
        )
        self.clear()

    def clear(self) -> None:
        """Forget all keys."""
        self._rows = KeyRows(self._schema)
        self._hashes = Arena({"hash": np.uint64})
        self._slots = _Slots(0)
        # The table that will take its place, and how many of the numbers it has.
        self._larger: _Slots | None = None
        self._moved = 0
        # The batch numbered last, and where in such a batch each number was seen.
        self._latest: tuple[pa.RecordBatch, Index] | None = None
        self._places = np.zeros(0, np.int32)
        # Numbers that got their keys since the last checkpoint; None: all may have.
        self._changed: list[Index] | None = None

    def __len__(self) -> int:
        return len(self._hashes)

    def nbytes(self) -> int:
        """Memory taken by the keys."""
        return self._slots.nbytes() + self._rows.nbytes()

    def number(self, keys: pa.RecordBatch, spare: Callable[[int, Index], Index] | None = None) -> Index:
        """The number of each key row; those not seen before get new ones.

        ``spare`` gives up to so many numbers that are in use neither elsewhere nor among those it is told.
        """
        if not keys.num_columns:
            raise RecensionError("a group key needs at least one column")
        if self._is_text and keys.num_rows >= max(_FEW, _REPEATED * len(self)):
            once, codes = _encode(keys.column(0))
            return self._number(pa.RecordBatch.from_arrays([once], schema=self._schema), spare)[codes]
        numbers = self._number(keys, spare)
        if self._is_plain and not is_bounded() and keys.schema.types == self._schema.types:
            self._latest = keys, numbers
        return numbers

    def _number(self, keys: pa.RecordBatch, spare: Callable[[int, Index], Index] | None) -> Index:
        self._latest = None
        hashes = row_hash(keys)
        numbers = self._slots.find(hashes, self._hashes["hash"])
        unknown = (numbers < 0).nonzero()[0]
        if len(unknown):
            first = first_of_equal(hashes[unknown])
            # Numbers in order of first appearance: the same stream always numbers its groups alike.
            is_first = first == np.arange(len(first))
            fresh = unknown[is_first.nonzero()[0]]
            taken = numbers.take((numbers >= 0).nonzero()[0])
            given = taken[:0] if spare is None else spare(len(fresh), taken)
            given = np.concatenate((given, np.arange(len(self), len(self) + len(fresh) - len(given))))
            numbers[unknown] = given[(is_first.cumsum() - 1)[first]]
            self._add(hashes[fresh], take_rows(keys, fresh), given)
            if not self._is_exact:
                was_there = np.ones(len(numbers), np.bool_)
                was_there[fresh] = False
                self._compare(keys, numbers, was_there.nonzero()[0])
        elif not self._is_exact:
            self._compare(keys, numbers, None)
        return numbers

    def _compare(self, keys: pa.RecordBatch, numbers: Index, at: Index | None) -> None:
        """Are these rows, all if none are named, the keys that they were found to be?"""
        if at is not None:
            keys, numbers = take_rows(keys, at), numbers[at]
        if not bool(rows_equal(keys, self._rows.look_at(numbers), len(numbers)).all()):
            raise RecensionError("two different group keys share a 64-bit hash")

    def rows(self, numbers: Index) -> pa.RecordBatch:
        """The key rows of the given numbers."""
        if self._can_repeat and 0 < len(numbers) <= _FEW and bool((numbers == numbers[0]).all()):
            return repeat_row(self._rows.look_at(numbers[:1]), len(numbers))
        latest = self._find_in_latest(numbers)
        return self._stored_rows(numbers) if latest is None else latest

    def _find_in_latest(self, numbers: Index) -> pa.RecordBatch | None:
        """The same from the batch that was numbered last, which lies together; None if it lacks one."""
        if self._latest is None or not len(numbers):
            return None
        keys, own = self._latest
        more = len(self) - len(self._places)
        if more > 0:
            self._places = np.append(self._places, np.zeros(more + len(self) // 2, np.int32))
        # What is left of earlier batches names rows that have other numbers now.
        self._places[own] = np.arange(len(own), dtype=np.int32)
        at = self._places[numbers].astype(np.int64)
        if int(at.max()) >= len(own) or not bool((own[at] == numbers).all()):
            return None
        return take_rows(keys, at)

    def _stored_rows(self, numbers: Index) -> pa.RecordBatch:
        return self._rows.take(numbers)

    def hashes(self, numbers: Index) -> Hashes:
        """The key hashes of the given numbers; unlike the numbers, they never change."""
        found: Hashes = self._hashes["hash"][numbers]
        return found

    def _add(self, hashes: Hashes, rows: pa.RecordBatch, numbers: Index) -> None:
        """Give keys that are not here these numbers: some that others had, then the next ones in order."""
        known = len(self)
        self._rows.put(numbers, rows)
        again = int(np.count_nonzero(numbers < known))
        if again:
            self._take_away(numbers[:again])
            self._hashes["hash"][numbers[:again]] = hashes[:again]
        self._hashes.append({"hash": hashes[again:]})
        if self._changed is not None:
            self._changed.append(numbers)
        if len(hashes) > known:  # so many pay for a new table
            self._slots, self._larger = _Slots(len(self)), None
            self._slots.add(self._hashes["hash"], np.arange(len(self)))
            return
        self._slots.add(hashes, numbers)
        if self._slots.is_full() and self._larger is None:
            self._larger, self._moved = _Slots(len(self)), 0
        if self._larger is not None:
            is_moved = numbers < self._moved
            self._larger.add(hashes[is_moved], numbers[is_moved])
            self._move_on(self._larger, max(_STEP, 4 * len(hashes)))

    def _take_away(self, numbers: Index) -> None:
        """These numbers go to other keys."""
        old = self._hashes["hash"][numbers]
        self._slots.forget(old, numbers)
        if self._larger is not None:
            self._larger.forget(old, numbers)

    def _move_on(self, larger: _Slots, keys: int) -> None:
        """Put some more keys into the larger table; it is used once it has all of them."""
        numbers = np.arange(self._moved, min(self._moved + keys, len(self)))
        larger.add(self._hashes["hash"][numbers], numbers)
        self._moved += len(numbers)
        if self._moved == len(self):
            self._slots, self._larger = larger, None

    def retire(self, in_use: Mask) -> None:
        """Forget the groups not in use; the others are numbered anew, in the same order."""
        kept = self._stored_rows(np.flatnonzero(in_use))
        self.clear()
        self._set(np.arange(kept.num_rows), kept)

    def _set(self, numbers: Index, rows: pa.RecordBatch) -> None:
        """Give these rows their numbers, whatever had them."""
        self._latest = None
        hashes = row_hash(rows)
        is_other = np.ones(len(numbers), np.bool_)
        had = int(np.searchsorted(numbers, len(self)))
        is_other[:had] = self._hashes["hash"][numbers[:had]] != hashes[:had]
        at = np.flatnonzero(is_other)
        if len(at):
            self._add(hashes[at], take_rows(rows, at), numbers[at])

    def restore(self, table: pa.Table | Change) -> None:
        """Become the index that `snapshot` gave, or take over changes."""
        is_change = isinstance(table, Change)
        if not is_change or table.is_whole:
            self.clear()
        rows: pa.Table = table.rows if isinstance(table, Change) else table
        self._set(rows[0].to_numpy(), one_batch(rows.drop_columns(self.key[0])))
        self._changed = [] if is_change else None

    @property
    def key(self) -> tuple[str, ...]:
        """The column that tells rows apart: their numbers."""
        return (self._number_name,)

    def snapshot(self) -> pa.Table:
        """All key rows in order of their numbers."""
        return self._rows_of(np.arange(len(self)))

    def _rows_of(self, numbers: Index) -> pa.Table:
        names = [*self.key, *self._schema.names]
        return pa.table([pa.array(numbers), *self._stored_rows(numbers).columns], names=names)

    def take_changes(self, version: int) -> Change:
        """See `Logged.take_changes`."""
        changed, self._changed = self._changed, []
        none = np.zeros(0, np.int64)
        numbers = np.arange(len(self)) if changed is None else distinct(np.concatenate([none, *changed]))
        rows = self._rows_of(numbers)
        return Change(rows, rows.select([0]).slice(0, 0), changed is None)

    def find_current(self, change: Change, version: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        numbers, hashes = (
            change.rows[0].to_numpy(),
            row_hash(one_batch(change.rows.drop_columns(self.key[0]))),
        )
        is_same = numbers < len(self)
        is_same[is_same] = self._hashes["hash"][numbers[is_same]] == hashes[is_same]
        return is_same, np.zeros(0, np.bool_)


def _is_alike_if_equal(kind: pa.DataType) -> bool:
    is_number = pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind)
    return bool(is_number or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _encode(texts: pa.Array) -> tuple[pa.Array, Index]:
    """Each text once, null included, in order of first appearance; and which of them every row has."""
    coded = pc.dictionary_encode(texts, null_encoding="encode")
    codes: Index = coded.indices.to_numpy(zero_copy_only=False)
    return coded.dictionary, codes
