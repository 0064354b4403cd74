"""Rows found by a 64-bit key: a hash table of row numbers over columns.

A row that is killed stays where it is, under a key that is never asked for, until a new row takes its place.
Its slot stays taken: a slot is a hint where to look, and the key of the row decides. So slots fill up, and
are written anew, a few with every call.

Cost        O(1) a key asked for, added or killed, over time; always for whole arrays of keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.memory import full
from recension.core.rowhash import Hashes
from recension.core.sorted_runs import Column
from recension.core.ticks import Ticks
from recension.operators.state.chunks import cut_table, unite_table
from recension.operators.state.time_queue import TimeQueue

NOWHERE: Final = -1
# No living row has this key; a key that happens to be 0 is moved off it.
_DEAD: Final = np.uint64(0)
_LEAST: Final = 256
# One part in so many may be free: every input pays for that.
_SPARE: Final = 5
_STEP: Final = 1 << 14


class KeyTable:
    """Columns of equal length, found by key. A row keeps its number."""

    def __init__(self, columns: Mapping[str, tuple[Any, int]]) -> None:
        self._types = dict(columns)
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._size = self.live_ports = 0
        self._keys = np.zeros(_LEAST, np.uint64)
        self._columns = {name: np.full(_LEAST, fill, kind) for name, (kind, fill) in self._types.items()}
        self._dead = np.zeros(0, np.int64)
        self._slots, self._taken = np.full(4 * _LEAST, NOWHERE, np.int64), 0
        # Slots that will be used once the first ``moved`` rows are in them, and all others.
        self._next_slots: Index | None = None
        self._moved = 0

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, name: str) -> Column:
        """A column; assigning to its elements changes the table."""
        return self._columns[name][: self._size]

    @property
    def keys(self) -> Hashes:
        """The keys of all rows; those of dead ones are 0."""
        return self._keys[: self._size]

    def add_column(self, name: str, kind: Any, fill: int) -> None:
        """One more column, the same for all rows."""
        self._types[name] = (kind, fill)
        self._columns[name] = np.full(len(self._keys), fill, kind)

    def drop_column(self, name: str) -> None:
        """Forget a column."""
        del self._types[name], self._columns[name]

    def is_live(self, rows: Index) -> Mask:
        """Which of the rows are there."""
        alive: Mask = self._keys[rows] != _DEAD
        return alive

    def rows(self) -> Index:
        """All living rows."""
        return np.flatnonzero(self.keys != _DEAD)

    def find(self, keys: Hashes) -> Index:
        """The row of each key, NOWHERE if there is none."""
        keys = _avoid_zero(keys)
        last = np.uint64(len(self._slots) - 1)
        slot = (keys & last).view(np.int64)
        found = self._slots[slot]
        wrong = np.flatnonzero((found >= 0) & (self._keys[found] != keys))
        while len(wrong):
            slot[wrong] = (slot[wrong] + 1) & np.int64(last)
            found[wrong] = self._slots[slot[wrong]]
            at = found[wrong]
            wrong = wrong[(at >= 0) & (self._keys[at] != keys[wrong])]
        return found

    def add(self, keys: Hashes, **columns: Column) -> Index:
        """New rows under keys that are distinct and not there yet; columns not named get their default."""
        keys = _avoid_zero(keys)
        if not self.live_ports:
            self.clear()
        again = min(len(keys), len(self._dead))
        rows = np.append(
            self._dead[len(self._dead) - again :], np.arange(self._size, self._size + len(keys) - again)
        )
        self._dead, self._size = self._dead[: len(self._dead) - again], self._size + len(keys) - again
        self._make_room()
        self._keys[rows] = keys
        for name, (_, fill) in self._types.items():
            self._columns[name][rows] = columns.get(name, fill)
        self.live_ports += len(keys)
        self._take_slots(rows)
        return rows

    def find_or_add(self, keys: Hashes, **columns: Column) -> tuple[Index, Index]:
        """The row of each key, new ones included; and which of the keys given made a new row."""
        found = self.find(keys)
        missing = np.flatnonzero(found < 0)
        if not len(missing):
            return found, missing
        firsts = missing[first_of_each(keys[missing])]
        added = self.add(keys[firsts], **{name: column[firsts] for name, column in columns.items()})
        if len(firsts) == len(missing):
            found[missing] = added
        else:
            found[missing] = self.find(keys[missing])
        return found, firsts

    def remove_rows(self, rows: Index) -> None:
        """Forget rows that are there, each named once."""
        self._keys[rows] = _DEAD
        self.live_ports -= len(rows)
        self._dead = np.append(self._dead, rows)

    def _make_room(self) -> None:
        if self._size > len(self._keys):
            room = self._size + self._size // _SPARE
            self._keys = _grow(self._keys, room, 0)
            for name, (_, fill) in self._types.items():
                self._columns[name] = _grow(self._columns[name], room, fill)

    def _take_slots(self, rows: Index) -> None:
        """Slots for new rows; if too many are taken, others are filled, some with every call."""
        self._taken += len(rows)
        if 2 * self._taken > len(self._slots):  # more have come than the steps allow for
            self._next_slots, self._moved = self._empty_slots(), 0
            self._move_on(self._size)
            return
        _place(self._slots, self._keys, rows)
        if 3 * self._taken > len(self._slots) and self._next_slots is None:
            self._next_slots, self._moved = self._empty_slots(), 0
        if self._next_slots is not None:
            _place(self._next_slots, self._keys, rows[rows < self._moved])
            self._move_on(max(_STEP, 8 * len(rows)))

    def _empty_slots(self) -> Index:
        slots: Index = full(1 << (4 * self._size).bit_length(), NOWHERE, np.int64)
        return slots

    def _move_on(self, rows: int) -> None:
        assert self._next_slots is not None
        stop = min(self._moved + rows, self._size)
        _place(
            self._next_slots,
            self._keys,
            np.flatnonzero(self._keys[self._moved : stop] != _DEAD) + self._moved,
        )
        self._moved = stop
        if stop == self._size:
            self._slots, self._taken, self._next_slots = self._next_slots, self._size, None

    def nbytes(self) -> int:
        """Memory held, spare room included."""
        columns = sum(int(column.nbytes) for column in self._columns.values())
        return int(self._keys.nbytes) + int(self._slots.nbytes) + columns

    def snapshot(self, name: str) -> dict[str, pa.Table]:
        """The living rows as tables whose names begin with ``name``, renumbered from 0."""
        rows = self.rows()
        columns = {column: self[column][rows] for column in self._types}
        return cut_table(name, pa.table({"key": self.keys[rows], **columns}))

    def restore(self, name: str, chunks: Mapping[str, pa.Table]) -> None:
        """Become the table that gave these chunks; columns that it had are made."""
        table = unite_table(name, chunks)
        self.clear()
        columns = {column: table[column].to_numpy() for column in self._types}
        self.add(table["key"].to_numpy(), **columns)


class FreezeQueue:
    """The rows of a table by their start: some are half frozen, since a stable has passed it; others wait."""

    def __init__(self) -> None:
        self._waiting = TimeQueue()
        self._half_frozen = np.zeros(0, np.int64)

    def nbytes(self) -> int:
        """Memory held."""
        return 16 * len(self._waiting) + int(self._half_frozen.nbytes)

    def add(self, vs: Ticks, rows: Index, last_stable: int) -> None:
        """Rows that start at these times."""
        if bool((is_late := vs < last_stable).any()):
            self._half_frozen = np.concatenate([self._half_frozen, rows[is_late]])
            vs, rows = vs[~is_late], rows[~is_late]
        self._waiting.push(vs, rows)

    def freeze(self, t: int, table: KeyTable) -> Index:
        """All rows that start before ``t`` and are there: they are half frozen from now on."""
        _, fresh = self._waiting.pop_before(t)
        self._half_frozen = np.concatenate([self._half_frozen, fresh[table.is_live(fresh)]])
        return self._half_frozen

    def drop_dead(self, table: KeyTable) -> None:
        """Forget half-frozen rows that are no longer there."""
        self._half_frozen = self._half_frozen[table.is_live(self._half_frozen)]


def _place(slots: Index, keys: Hashes, rows: Index) -> None:
    """Give each row the first free slot from where its key points to."""
    last = len(slots) - 1
    slot = (keys[rows] & np.uint64(last)).view(np.int64)
    while len(rows):
        free = slots[slot] < 0
        slots[slot[free]] = rows[free]
        # Of several rows that took one slot, the last has it.
        lost = slots[slot] != rows
        rows, slot = rows[lost], (slot[lost] + 1) & last


def first_of_each(keys: Hashes) -> Index:
    """The place where each key comes for the first time, in order."""
    again = find_repeated(keys)
    if not len(again):
        return np.arange(len(keys))
    order = again[np.argsort(keys[again], kind="stable")]
    is_first = np.append(True, keys[order][1:] != keys[order][:-1])
    keep = np.ones(len(keys), np.bool_)
    keep[order[~is_first]] = False
    return np.flatnonzero(keep)


def find_repeated(keys: Hashes) -> Index:
    """The places of all keys that come more than once, in order.

    Keys are thrown into slots; only where several met is it worth sorting.
    """
    if len(keys) < 2:
        return np.zeros(0, np.int64)
    slot = (keys & np.uint64((1 << (4 * len(keys)).bit_length()) - 1)).view(np.int64)
    places = np.arange(len(keys))
    table = np.empty(1 << (4 * len(keys)).bit_length(), np.int64)
    table[slot] = places
    lost = table[slot] != places
    if not bool(lost.any()):
        return np.zeros(0, np.int64)
    table[slot] = 0
    table[slot[lost]] = 1
    met = np.flatnonzero(table[slot] == 1)
    order = met[np.argsort(keys[met], kind="stable")]
    same = keys[order][1:] == keys[order][:-1]
    return np.sort(order[np.append(False, same) | np.append(same, False)])


def _avoid_zero(keys: Hashes) -> Hashes:
    return np.where(keys == _DEAD, np.uint64(1), keys) if bool((keys == _DEAD).any()) else keys


def _grow(column: Column, room: int, fill: int) -> Column:
    grown = full(room, fill, column.dtype)
    grown[: len(column)] = column
    return grown
