"""A table of numbers sorted by (group, time), changed a few groups at a time: the store of aggregate tables.

The rows of a short group are one leaf: they are read together, and written together at the tail of a log. A
directory says where each group's leaf is. What a batch costs is what its groups hold, however many others
there are. A group of more than `_LONG` rows is kept in a `BlockTable`, where a part of it can be rewritten.

    log         |aaa bb cccc|dd aaa    |   segments of a few 10,000 rows, filled one after another
    directory    a: 2nd, b: 1st, ...       the first leaf of a is no longer in use

What always holds:

    leaves      a leaf lies in one segment, in order of time, and is never written to again;
    directory   names at most one leaf of a group; what it does not name is not in use;
    space       a segment without leaves in use is filled anew. Where less than `_IN_USE` of the log is in
                use, the leaves of the emptiest segment are written again, a few segments a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.netting import expand
from recension.core.sorted_runs import Columns, take_columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.state.arena import Arena
from recension.operators.state.block_table import BlockTable, Extract

_LONG: Final = 256
_SHORT: Final = 64  # a long group that is as short as this becomes a leaf again
_SEGMENT: Final = 1 << 16
_CHUNK: Final = 1 << 22
_LEAST: Final = 1 << 15
_IN_USE: Final = 0.6
_NONE: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class LeafExtract(Extract):
    """Whole ``leaves`` (the groups), and what was read of long groups."""

    leaves: Index


class LeafTable:
    """Columns of eight bytes (int64, float64), the first two being ``group`` and ``time``."""

    def __init__(self, columns: Mapping[str, npt.DTypeLike]) -> None:
        self._types = {"group": np.dtype(np.int64), "time": np.dtype(np.int64)} | {
            name: np.dtype(kind) for name, kind in columns.items()
        }
        self._long = BlockTable(columns)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._long.clear()
        self._log = _Log(self._types)
        self._is_long = Arena({"long": np.bool_, "rows": np.int64})

    def __len__(self) -> int:
        return len(self._long) + self._log.in_use

    def nbytes(self) -> int:
        """Memory taken by the rows."""
        return len(self) * sum(kind.itemsize for kind in self._types.values())

    def extract(self, group: Index, low: Ticks, high: Ticks) -> LeafExtract:
        """Of each segment's group all rows from the last one before ``low`` to the first one after ``high``.

        There may be more. Segments are sorted and do not overlap.
        """
        return self._read(group, lambda own: self._long.extract(group[own], low[own], high[own]))

    def extract_around(self, group: Index, time: Ticks, rows: int) -> LeafExtract:
        """At least so many rows of its group before and after each key, as far as there are any."""
        return self._read(group, lambda own: self._long.extract_around(group[own], time[own], rows))

    def _read(self, group: Index, read_long: Callable[[Mask], Extract]) -> LeafExtract:
        self._number_up_to(int(group.max(initial=-1)) + 1)
        is_long = self._is_long["long"][group]
        leaves = unique_numbers(group[~is_long])
        columns = self._log.read(leaves)
        if not bool(is_long.any()):
            return LeafExtract(_NONE, columns, np.zeros(len(columns["time"]), np.bool_), leaves)
        long = read_long(is_long)
        follower = np.append(np.zeros(len(columns["time"]), np.bool_), long.follower)
        columns, order = _join_tables(columns, long.columns)
        return LeafExtract(long.blocks, columns, follower[order], leaves)

    def _number_up_to(self, groups: int) -> None:
        new = groups - len(self._is_long)
        if new > 0:
            self._is_long.append({"long": np.zeros(new, np.bool_), "rows": np.zeros(new, np.int64)})
            self._log.number_up_to(groups)

    def replace(self, extract: LeafExtract, columns: Columns) -> None:
        """Put new rows, sorted, of the groups of an extract in the place of its rows."""
        if len(extract.blocks):
            is_long = self._is_long["long"][columns["group"]]
            rest, columns = take_columns(columns, is_long), take_columns(columns, ~is_long)
            self._replace_long(extract, rest)
        first, stop = (np.searchsorted(columns["group"], extract.leaves, side) for side in _SIDES)
        sizes = stop - first
        if bool((sizes > _LONG).any()):
            becomes_long = np.repeat(sizes > _LONG, sizes)
            self._log.write(
                extract.leaves, np.where(sizes > _LONG, 0, sizes), take_columns(columns, ~becomes_long)
            )
            self._lengthen(extract.leaves[sizes > _LONG], take_columns(columns, becomes_long))
        else:
            self._log.write(extract.leaves, sizes, columns)

    def _replace_long(self, extract: LeafExtract, columns: Columns) -> None:
        before = extract.columns["group"][~extract.follower]
        before = before[self._is_long["long"][before]]
        self._long.replace(extract.blocks, columns)
        rows = self._is_long["rows"]
        np.subtract.at(rows, before, 1)
        np.add.at(rows, columns["group"], 1)
        touched = unique_numbers(before)
        if len(short := touched[rows[touched] < _SHORT]):
            self._shorten(short)

    def _lengthen(self, groups: Index, columns: Columns) -> None:
        """Leaves that have grown too long go to the block table."""
        extract = self._long.extract(groups, np.full(len(groups), BEGINNING), np.full(len(groups), FOREVER))
        self._is_long["long"][groups] = True
        np.add.at(self._is_long["rows"], columns["group"], 1)
        self._long.replace(
            extract.blocks, _join_tables(take_columns(extract.columns, ~extract.follower), columns)[0]
        )

    def _shorten(self, groups: Index) -> None:
        """Long groups of which little is left become leaves."""
        extract = self._long.extract(groups, np.full(len(groups), BEGINNING), np.full(len(groups), FOREVER))
        own = take_columns(extract.columns, ~extract.follower)
        self._is_long["long"][groups] = False
        is_long = self._is_long["long"][own["group"]]
        self._long.replace(extract.blocks, take_columns(own, is_long))
        sizes = self._is_long["rows"][groups]
        self._is_long["rows"][groups] = 0
        self._log.write(groups, sizes, take_columns(own, ~is_long))

    def snapshot(self) -> pa.Table:
        """All rows, in order."""
        return pa.table(_join_tables(self._log.read(self._log.groups()), self._long_rows())[0])

    def _long_rows(self) -> Columns:
        return {
            name: column.to_numpy()
            for name, column in zip(self._types, self._long.snapshot().columns, strict=True)
        }

    def restore(self, table: pa.Table) -> None:
        """Become the table that `snapshot` gave."""
        self.clear()
        columns = {n: table[n].to_numpy().astype(k, copy=False) for n, k in self._types.items()}
        groups = unique_numbers(columns["group"])
        self._number_up_to(int(groups.max(initial=-1)) + 1)
        self.replace(LeafExtract(_NONE, {}, np.zeros(0, np.bool_), groups), columns)

    def renumber(self, numbers: Index) -> None:
        """Give groups new numbers, which keep their order."""
        rows = self.snapshot()
        self.restore(rows.set_column(0, "group", pa.array(numbers[rows["group"].to_numpy()])))


class _Log:
    """Leaves, and where each group has its own.

    The numbers of a row lie side by side: leaves are far from each other, and each is fetched once.
    """

    def __init__(self, types: Mapping[str, np.dtype[np.generic]]) -> None:
        self._types = dict(types)
        self._chunks: list[Index] = []
        self._chunk_starts = _NONE
        # Segments, in order of their addresses: where each starts, how long it is, written and still in use.
        self._starts, self._rooms, self._written, self._used = _NONE, _NONE, _NONE, _NONE
        self._free: list[int] = []
        self._tail = -1
        self._leaves = Arena({"address": np.int64, "rows": np.int64})
        self.in_use = 0

    def number_up_to(self, groups: int) -> None:
        """Make room in the directory."""
        none = np.zeros(groups - len(self._leaves), np.int64)
        self._leaves.append({"address": none, "rows": none})

    def groups(self) -> Index:
        """The groups that have a leaf."""
        return np.flatnonzero(self._leaves["rows"])

    def read(self, groups: Index) -> Columns:
        """The leaves of some groups, one after another."""
        sizes, first = self._leaves["rows"][groups], self._leaves["address"][groups]
        if bool((sizes == 0).any()):
            sizes, first = sizes[sizes > 0], first[sizes > 0]
        rows = self._rows_of(first, sizes).T.copy()  # a segment may be filled anew
        return dict(zip(self._types, map(np.ndarray.view, rows, self._types.values()), strict=True))

    def _rows_of(self, first: Index, sizes: Index) -> Index:
        """The rows of leaves, by their addresses."""
        chunk = np.searchsorted(self._chunk_starts, first, "right") - 1
        if len(first) and bool((chunk == chunk[0]).all()):
            place = first - self._chunk_starts[chunk[0]]
            if bool((place[1:] == place[:-1] + sizes[:-1]).all()):  # as they were written, all at once
                return self._rows_at(int(first[0]), int(place[-1] + sizes[-1] - place[0]))
            found: Index = self._chunks[chunk[0]][expand(place, place + sizes)[1]]
            return found
        rows = np.empty((int(sizes.sum()), len(self._types)), np.int64)
        leaf, at = expand(first, first + sizes)
        of_row = chunk[leaf]
        for number in np.flatnonzero(np.bincount(chunk, minlength=1)).tolist():
            own = np.flatnonzero(of_row == number)
            if len(own):
                rows[own] = self._chunks[number][at[own] - self._chunk_starts[number]]
        return rows

    def write(self, groups: Index, sizes: Index, columns: Columns) -> None:
        """Replace the leaves of some groups by new ones, which follow each other in ``columns``."""
        self._release(groups)
        self._append(groups, sizes, columns)
        if self._tail >= 0:
            self._clean(2 * len(columns["time"]))

    def _release(self, groups: Index) -> None:
        rows = self._leaves["rows"]
        sizes = rows[groups]
        there = sizes > 0
        segments = self._segment_of(self._leaves["address"][groups[there]])
        self._used -= np.bincount(segments, sizes[there], len(self._used)).astype(np.int64)
        self.in_use -= int(sizes.sum())
        rows[groups] = 0

    def _segment_of(self, address: Index) -> Index:
        return np.searchsorted(self._starts, address, "right") - 1

    def _append(self, groups: Index, sizes: Index, columns: Columns) -> None:
        """At the tail, and in further segments if there is more than fits."""
        groups, sizes = groups[sizes > 0], sizes[sizes > 0]
        ends = np.cumsum(sizes)
        done = before = 0
        while done < len(groups):
            room = self._rooms[self._tail] - self._written[self._tail] if self._tail >= 0 else 0
            fit = int(np.searchsorted(ends, before + room, "right"))
            if fit <= done:
                self._move_tail()
                continue
            stop = int(ends[fit - 1])
            start = int(self._starts[self._tail] + self._written[self._tail])
            self._leaves["rows"][groups[done:fit]] = sizes[done:fit]
            self._leaves["address"][groups[done:fit]] = start + ends[done:fit] - sizes[done:fit] - before
            rows = self._rows_at(start, stop - before)
            for place, name in enumerate(self._types):
                rows[:, place] = columns[name][before:stop].view(np.int64)
            self._written[self._tail] += stop - before
            self._used[self._tail] += stop - before
            done, before = fit, stop
        self.in_use += before

    def _rows_at(self, address: int, size: int) -> Index:
        """So many rows from an address on, which lie in one chunk."""
        number = int(np.searchsorted(self._chunk_starts, address, "right")) - 1
        place = address - int(self._chunk_starts[number])
        found: Index = self._chunks[number][place : place + size]
        return found

    def _move_tail(self) -> None:
        """To a segment that is free; to new memory, as much as there is, if none is."""
        if not self._free:
            end = int(self._starts[-1] + self._rooms[-1]) if len(self._starts) else 0
            rows = min(max(_LEAST, end), _CHUNK)
            self._chunks.append(np.empty((rows, len(self._types)), np.int64))
            self._chunk_starts = np.append(self._chunk_starts, end)
            first = np.arange(end, end + rows, _SEGMENT)
            self._free = list(range(len(self._starts) + len(first) - 1, len(self._starts) - 1, -1))
            self._starts = np.append(self._starts, first)
            self._rooms = np.append(self._rooms, np.diff(np.append(first, end + rows)))
            self._written, self._used = (
                np.append(counts, np.zeros(len(first), np.int64)) for counts in (self._written, self._used)
            )
        self._tail = self._free.pop()

    def _clean(self, rows: int) -> None:
        """Write the leaves of the emptiest segments again, at least of one, for about so many rows."""
        self._free_empty()
        rows = max(rows, 1)
        # What a single segment can hold is not worth cleaning.
        while rows > 0 and max(self.in_use / _IN_USE, _SEGMENT) < int(self._written.sum()):
            share = np.where(self._written > 0, self._used / np.maximum(self._written, 1), 2.0)
            share[self._tail] = 2.0
            segment = int(np.argmin(share))
            if share[segment] > 1:
                return
            rows -= int(self._written[segment])
            groups = self._groups_in(segment)
            columns, sizes = self.read(groups), self._leaves["rows"][groups]
            self._release(groups)
            self._append(groups, sizes, columns)
            self._free_empty()

    def _free_empty(self) -> None:
        empty = (self._used == 0) & (self._written > 0)
        empty[self._tail] = False
        self._written[empty] = 0
        self._free += np.flatnonzero(empty).tolist()

    def _groups_in(self, segment: int) -> Index:
        """The groups whose leaves are in a segment, in the order in which they lie there."""
        start, size = int(self._starts[segment]), int(self._written[segment])
        group = self._rows_at(start, size)[:, 0]
        leads = self._leaves["address"][group] == np.arange(start, start + size)
        found: Index = group[leads & (self._leaves["rows"][group] > 0)]
        return found


_SIDES: Final = ("left", "right")


def unique_numbers(numbers: Index) -> Index:
    """Each number once, in order."""
    ordered = numbers if bool((numbers[1:] >= numbers[:-1]).all()) else np.sort(numbers)
    once: Index = ordered[np.append(True, ordered[1:] > ordered[:-1])[: len(ordered)]]
    return once


def _join_tables(one: Columns, other: Columns) -> tuple[Columns, Index]:
    """The rows of two tables without a group in common, in order, and that order."""
    order = np.argsort(np.append(one["group"], other["group"]), kind="stable")
    return {name: np.append(one[name], other[name])[order] for name in one}, order
