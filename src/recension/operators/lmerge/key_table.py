"""Rows found by a 64-bit key: a hash table of row numbers over columns.

A row that is killed stays where it is, under a key that is never asked for, until a new row takes its place.
Its slot stays taken: a slot is a hint where to look, and the key of the row decides. So slots fill up, and
are written anew, a few with every call.

It is logged by key: where rows are does not matter to what is stored.

Cost        O(1) a key asked for, added or killed, over time; always for whole arrays of keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.change_log import Change
from recension.core.memory import full
from recension.core.netting import distinct
from recension.core.rowhash import Hashes
from recension.core.sorted_runs import Column, take_columns
from recension.core.ticks import Ticks
from recension.operators.state.time_queue import TimeQueue

Slots: TypeAlias = npt.NDArray[np.int32]

NOWHERE: Final = -1
# No living row has this key; a key that happens to be 0 is moved off it.
_DEAD: Final = np.uint64(0)
_LEAST: Final = 256
# One part in so many may be free: every input pays for that.
_SPARE: Final = 5
_STEP: Final = 1 << 14
# Slots for each row, at least.
_ROOM: Final = 8


class KeyTable:
    """Columns of equal length, found by key. A row keeps its number.

    Columns that name rows of other tables are stored with the keys of those rows: ``refers`` says which.
    ``hints`` are not stored: their default is good enough.
    """

    key: Final = ("key",)

    def __init__(
        self,
        columns: Mapping[str, tuple[Any, int]],
        refers: Mapping[str, KeyTable] | None = None,
        hints: Collection[str] = (),
    ) -> None:
        self._types, self._refers, self._hints = dict(columns), dict(refers or {}), hints
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._size = self._live = 0
        # The keys of rows that may have changed since the last checkpoint; None: all may have.
        self._changed: list[Hashes] | None = None
        self._keys = np.zeros(_LEAST, np.uint64)
        self._columns = {name: np.full(_LEAST, fill, kind) for name, (kind, fill) in self._types.items()}
        self._dead = np.zeros(0, np.int64)
        self._slots, self._taken = np.full(_ROOM * _LEAST, NOWHERE, np.int32), 0
        # Slots that will be used once the first ``moved`` rows are in them, and all others.
        self._next_slots: Slots | None = None
        self._moved = 0

    def __len__(self) -> int:
        return self._live

    @property
    def size(self) -> int:
        """How many rows there are with the dead ones: one more than the last number."""
        return self._size

    def __getitem__(self, name: str) -> Column:
        """A column; who assigns to its elements has to `note` that."""
        return self._columns[name][: self._size]

    def note(self, rows: Index) -> None:
        """These rows change."""
        if self._changed is not None:
            self._changed.append(self._keys.take(rows))

    @property
    def keys(self) -> Hashes:
        """The keys of all rows; those of dead ones are 0."""
        return self._keys[: self._size]

    def add_column(self, name: str, kind: Any, fill: int) -> None:
        """One more column, the same for all rows."""
        self._types[name] = (kind, fill)
        self._columns[name] = np.full(len(self._keys), fill, kind)
        self._changed = None

    def drop_column(self, name: str) -> None:
        """Forget a column."""
        del self._types[name], self._columns[name]
        self._changed = None

    def is_live(self, rows: Index) -> Mask:
        """Which of the rows are there."""
        alive: Mask = self._keys.take(rows) != _DEAD
        return alive

    def rows(self) -> Index:
        """All living rows."""
        return np.flatnonzero(self.keys != _DEAD)

    def find(self, keys: Hashes) -> Index:
        """The row of each key, NOWHERE if there is none."""
        keys = _avoid_zero(keys)
        last = np.int64(len(self._slots) - 1)
        slot = keys.view(np.int64) & last
        found = self._slots.take(slot).astype(np.int64)
        wrong = np.flatnonzero((self._keys.take(found) != keys) & (found >= 0))
        if not len(wrong):
            return found
        slot, keys = slot.take(wrong), keys.take(wrong)
        step = _find_steps(keys)
        while len(wrong):
            slot = (slot + step) & last
            at = self._slots.take(slot)
            found[wrong] = at
            left = np.flatnonzero((self._keys.take(at) != keys) & (at >= 0))
            wrong, slot, step, keys = wrong.take(left), slot.take(left), step.take(left), keys.take(left)
        return found

    def add(self, keys: Hashes, **columns: Column) -> Index:
        """New rows under keys that are distinct and not there yet; columns not named get their default."""
        keys = _avoid_zero(keys)
        if not self._live:
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
        self._live += len(keys)
        self._take_slots(rows)
        self.note(rows)
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
        self.note(rows)
        self._keys[rows] = _DEAD
        self._live -= len(rows)
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
        if 4 * self._taken > len(self._slots):  # more have come than the steps allow for
            self._next_slots, self._moved = self._empty_slots(), 0
            self._move_on(self._size)
            return
        _place(self._slots, self._keys, rows)
        if 5 * self._taken > len(self._slots) and self._next_slots is None:
            self._next_slots, self._moved = self._empty_slots(), 0
        if self._next_slots is not None:
            _place(self._next_slots, self._keys, rows[rows < self._moved])
            self._move_on(max(_STEP, 8 * len(rows)))

    def _empty_slots(self) -> Slots:
        slots: Slots = full(1 << (_ROOM * self._size).bit_length(), NOWHERE, np.int32)
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

    def snapshot(self) -> pa.Table:
        """The living rows."""
        return self._to_table(self.rows())

    def _to_table(self, rows: Index) -> pa.Table:
        columns = {name: self[name][rows] for name in self._types if name not in self._hints}
        columns |= {name: other.keys[columns[name]] for name, other in self._refers.items()}
        return pa.table({"key": self.keys[rows], **columns})

    def restore(self, table: pa.Table | Change) -> tuple[Index, Mask]:
        """Become the table that `snapshot` gave, or take over changes.

        Gives the numbers of the rows that were given, and which of them were not here.
        """
        is_change = isinstance(table, Change)
        if isinstance(table, Change) and not table.is_whole:
            self.forget(table)
        else:
            self.clear()
        rows, is_new = self._put(table.rows if isinstance(table, Change) else table)
        self._changed = [] if is_change else None
        return rows, is_new

    def forget(self, change: Change) -> None:
        """Remove the rows that are gone."""
        found = self.find(change.gone["key"].to_numpy())
        self.remove_rows(found[found >= 0])

    def _put(self, table: pa.Table) -> tuple[Index, Mask]:
        """Rows instead of those with their keys, or new ones; their numbers, and which are new."""
        keys = table["key"].to_numpy()
        columns = {name: table[name].to_numpy() for name in self._types if name not in self._hints}
        columns |= {name: other.find(columns[name]) for name, other in self._refers.items()}
        rows = self.find(keys)
        is_new = rows < 0
        for name, column in columns.items():
            self[name][rows[~is_new]] = column[~is_new]
        rows[is_new] = self.add(keys[is_new], **take_columns(columns, is_new))
        return rows, is_new

    def take_changes(self, version: int) -> Change:
        """See `Logged.take_changes`."""
        changed, self._changed = self._changed, []
        if changed is None:
            rows = self.snapshot()
            return Change(rows, rows.select(self.key).slice(0, 0), is_whole=True)
        keys = distinct(np.concatenate([self._keys[:0], *changed]))
        found = self.find(keys)
        return Change(self._to_table(found[found >= 0]), pa.table({"key": keys[found < 0]}))

    def find_current(self, change: Change, version: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        found = self.find(change.rows["key"].to_numpy())
        there = np.flatnonzero(found >= 0)
        now, is_same = self._to_table(found[there]), np.ones(len(there), np.bool_)
        for name in now.column_names:
            is_same &= now[name].to_numpy() == change.rows[name].to_numpy()[there]
        is_current = np.zeros(len(found), np.bool_)
        is_current[there[is_same]] = True
        return is_current, self.find(change.gone["key"].to_numpy()) < 0


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


def _place(slots: Slots, keys: Hashes, rows: Index) -> None:
    """Give each row the first free slot of those that its key points to."""
    last, keys = np.int64(len(slots) - 1), keys.take(rows)
    slot, step = keys.view(np.int64) & last, _find_steps(keys)
    while len(rows):
        free = np.flatnonzero(slots.take(slot) < 0)
        slots[slot.take(free)] = rows.take(free)
        # Of several rows that took one slot, the last has it.
        lost = np.flatnonzero(slots.take(slot) != rows)
        rows, step = rows.take(lost), step.take(lost)
        slot = (slot.take(lost) + step) & last


def _find_steps(keys: Hashes) -> Index:
    """How far it is to the next slot for each key: an odd number, so that all slots come in turn.

    Keys that meet in one slot part there, so that chains stay short: every link of the longest is a round
    over arrays.
    """
    steps: Index = (keys >> np.uint64(40)).view(np.int64) | 1
    return steps


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
    lost = np.flatnonzero(table.take(slot) != places)
    if not len(lost):
        return np.zeros(0, np.int64)
    table[slot.take(lost)] = NOWHERE
    met = np.flatnonzero(table.take(slot) == NOWHERE)
    order = met[np.argsort(keys[met], kind="stable")]
    same = keys[order][1:] == keys[order][:-1]
    return np.sort(order[np.append(False, same) | np.append(same, False)])


def _avoid_zero(keys: Hashes) -> Hashes:
    return np.where(keys == _DEAD, np.uint64(1), keys) if bool((keys == _DEAD).any()) else keys


def _grow(column: Column, room: int, fill: int) -> Column:
    grown = full(room, fill, column.dtype)
    grown[: len(column)] = column
    return grown
