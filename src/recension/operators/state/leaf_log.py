"""Leaves of rows, written at the tail of a log of segments; and the directory that says where each one is.

    log         |aaa bb cccc|dd aaa    |   segments of `_SEGMENT` rows, filled one after another
    directory    a: 2nd, b: 1st, ...       the first leaf of a is no longer in use

What always holds:

    leaves      a leaf lies in one segment, in order of time, and is never written to again, but the first
                rows may be taken off it;
    directory   names at most one leaf of a group; what it does not name is not in use;
    space       a segment without leaves in use is filled anew. Where less than `_IN_USE` of the log is in
                use, the leaves of the emptiest segment are written again, a few segments a batch.

The numbers of a row lie side by side: leaves are far from each other, and each is fetched once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.memory import empty, is_bounded
from recension.core.sorted_runs import Columns
from recension.core.ticks import Ticks
from recension.operators.state.arena import Arena

_BITS: Final = 14
_SEGMENT: Final = 1 << _BITS
_SLACK: Final = 1 << 17  # rows that are never worth cleaning: what changes often dies by itself
_LEAST: Final = 1 << 15
_CHUNK: Final = 1 << 23
_AT_ONCE: Final = 1 << 12  # rows written column by column
_IN_USE: Final = 0.5
_NONE: Final = np.zeros(0, np.int64)


class LeafLog:
    """The leaves of groups, of columns of eight bytes; the first two are ``group`` and ``time``."""

    def __init__(self, types: Mapping[str, np.dtype[np.generic]]) -> None:
        self._types = dict(types)
        # Chunks are memory for many segments. A row's address counts the rows of all chunks before it.
        self._chunks: list[Index] = []
        self._chunk_starts = _NONE
        # Of each segment, how much is written and how much of that is still in use.
        self._written, self._used = _NONE, _NONE
        self._free: list[int] = []
        self._tail = -1
        # Rows written in all, and whether a segment may have become empty since that was last looked for.
        self._all_written, self._is_emptied = 0, False
        self._leaves = Arena({"address": np.int64, "rows": np.int64})
        self.rows = 0

    def number_up_to(self, groups: int) -> None:
        """Make room in the directory."""
        none = np.zeros(groups - len(self._leaves), np.int64)
        self._leaves.append({"address": none, "rows": none})

    def sizes(self, groups: Index | slice = slice(None)) -> Index:
        """How many rows are in the leaf of each group; 0 if it has none."""
        sizes: Index = self._leaves["rows"][groups]
        return sizes

    def read(self, groups: Index, names: Collection[str] | None = None) -> Columns:
        """The leaves of some groups, one after another: copies, as a segment may be filled anew."""
        if names is None and len(groups) == 1 and len(self._chunks) == 1:
            start, size = (int(self._leaves[name][groups[0]]) for name in ("address", "rows"))
            return self._name_columns(self._chunks[0][start : start + size].T.copy())
        at = self._addresses(groups, self.sizes(groups))
        if names is not None:
            return self._gather(at, names)
        columns = np.empty((len(self._types), len(at)), np.int64)
        for start in range(0, len(at), _SEGMENT):  # little by little, so that it stays in the cache
            columns[:, start : start + _SEGMENT] = self._gather_rows(at[start : start + _SEGMENT]).T
        return self._name_columns(columns)

    def _name_columns(self, columns: Index) -> Columns:
        return {n: column.view(kind) for (n, kind), column in zip(self._types.items(), columns, strict=True)}

    def first_keys(self, groups: Index, sizes: Index) -> tuple[Index, Ticks]:
        """Group and time of the first rows of some leaves."""
        keys = self._gather(self._addresses(groups, sizes), ("group", "time"))
        return keys["group"], keys["time"]

    def look_before(self, groups: Index, t: int) -> tuple[Index, Ticks, Index]:
        """Of groups that have leaves: how many rows are before ``t``, and time and ``n`` of the last of them.

        Most often that is the whole leaf. Otherwise it is found by halving: of each leaf a few rows are read.
        """
        sizes, before_first = self.sizes(groups), self._leaves["address"][groups] - 1
        last = self._gather(before_first + sizes, ("time", "n"))
        past, time, n = sizes, last["time"], last["n"]
        rest = (time >= t).nonzero()[0]
        if len(rest):
            past[rest] = self._halve(sizes[rest], before_first[rest], t)
            last = self._gather(before_first[rest] + np.maximum(past[rest], 1), ("time", "n"))
            time[rest], n[rest] = last["time"], last["n"]
        return past, time, n

    def _halve(self, sizes: Index, before_first: Index, t: int) -> Index:
        """How many rows of leaves are before ``t``."""
        past, longest = np.zeros(len(sizes), np.int64), int(sizes.max())
        for bit in reversed(range(longest.bit_length())):
            further = past + (1 << bit)
            time = self._gather(before_first + np.minimum(further, sizes), ("time",))["time"]
            past = np.where((time < t) & (further <= sizes), further, past)
        return past

    def _addresses(self, groups: Index, sizes: Index) -> Index:
        """Where the first rows of some leaves are."""
        before = sizes.cumsum()
        total = int(before[-1]) if len(before) else 0
        before -= sizes
        at: Index = (self._leaves["address"][groups] - before).repeat(sizes)
        at += np.arange(total)
        return at

    def _gather(self, at: Index, names: Collection[str]) -> Columns:
        """Some columns of rows by their addresses."""
        places, width = list(self._types), len(self._types)
        if len(self._chunks) == 1:
            numbers, at = self._chunks[0].reshape(-1), at * width
            columns = [numbers.take(at + places.index(name)) for name in names]
        else:
            columns = list(self._gather_rows(at)[:, [places.index(name) for name in names]].T)
        return {name: column.view(self._types[name]) for name, column in zip(names, columns, strict=True)}

    def _gather_rows(self, at: Index) -> Index:
        """Rows by their addresses."""
        if len(self._chunks) == 1:
            return self._chunks[0].take(at, axis=0)
        rows, chunk = np.empty((len(at), len(self._types)), np.int64), self._chunk_of(at)
        for number in np.flatnonzero(np.bincount(chunk)).tolist():
            own = np.flatnonzero(chunk == number)
            rows[own] = self._chunks[number].take(at[own] - self._chunk_starts[number], axis=0)
        return rows

    def _chunk_of(self, at: Index | int) -> Index:
        return self._chunk_starts.searchsorted(at, "right") - 1

    def write(self, groups: Index, sizes: Index, columns: Columns) -> None:
        """Replace the leaves of some groups by new ones, which follow each other in ``columns``."""
        numbers = [columns[name].view(np.int64) for name in self._types]

        def write_between(rows: Index, start: int) -> None:
            # Little by little, so that what is written in a column is still in the cache for the next one.
            for at in range(0, len(rows), _AT_ONCE):
                part = rows[at : at + _AT_ONCE]
                for place, column in enumerate(numbers):
                    part[:, place] = column[start + at : start + at + len(part)]

        self._replace(groups, sizes, write_between)
        self._clean(2 * len(columns["time"]))

    def _replace(self, groups: Index, sizes: Index, write: Callable[[Index, int], None]) -> None:
        self._release(groups, self.sizes(groups))
        self._leaves["address"][groups] = self._append(sizes, write)
        self._leaves["rows"][groups] = sizes

    def trim(self, groups: Index, sizes: Index) -> None:
        """Take the first rows off the leaves of some groups."""
        if not len(groups):
            return
        self._release(groups, sizes)
        self._leaves["rows"][groups] -= sizes
        self._leaves["address"][groups] += sizes
        self._clean(2 * int(sizes.sum()))

    def _release(self, groups: Index, sizes: Index) -> None:
        """So many rows of some leaves are no longer in use."""
        if len(self._used):
            used = (sizes > 0).nonzero()[0]
            if not len(used):
                return
            if len(used) < len(groups):
                groups, sizes = groups[used], sizes[used]
            segments = self._leaves["address"][groups] >> _BITS
            if len(groups) == 1:
                # What has no rows left may stand at the very end of the log.
                if size := int(sizes[0]):
                    segment = int(segments[0])
                    self._used[segment] -= size
                    self.rows -= size
                    self._is_emptied |= not self._used[segment]
                return
            self._is_emptied = True
            rows = np.bincount(segments, sizes, len(self._used))[: len(self._used)]
            self._used -= rows.astype(np.int64)
            self.rows -= int(sizes.sum())

    def _append(self, sizes: Index, write: Callable[[Index, int], None]) -> Index:
        """Write leaves at the tail, and in further segments if there is more than fits; where they are."""
        ends = sizes.cumsum()
        address, rows = ends - sizes, int(ends[-1]) if len(ends) else 0
        done = before = 0
        while before < rows:
            room = _SEGMENT - int(self._written[self._tail]) if self._tail >= 0 else 0
            fit = int(ends.searchsorted(before + room, "right"))
            stop = int(ends[fit - 1]) if fit > done else before
            if stop == before:
                self._move_tail()
                continue
            start = (self._tail << _BITS) + int(self._written[self._tail])
            write(self._rows_at(start, stop - before), before)
            address[done:fit] += start - before
            self._written[self._tail] += stop - before
            self._all_written += stop - before
            self._used[self._tail] += stop - before
            done, before = fit, stop
        self.rows += rows
        return address

    def _rows_at(self, address: int, size: int) -> Index:
        """So many rows from an address on, which lie in one chunk."""
        number = int(self._chunk_of(address))
        place = address - int(self._chunk_starts[number])
        found: Index = self._chunks[number][place : place + size]
        return found

    def _move_tail(self) -> None:
        """To a segment that is free, or to new memory; that takes no room before it is written to."""
        if not self._free:
            self._grow()
        self._tail, self._is_emptied = self._free.pop(), True

    def _grow(self) -> None:
        """Get memory for more segments, if it is not bounded for very many: rows are best in one chunk."""
        segments = len(self._written)
        start = segments << _BITS
        rows = max(_LEAST, min(start, _CHUNK) if is_bounded() else _CHUNK * (start > 0))
        chunk = empty((rows, len(self._types)), np.int64)
        if start == _LEAST and not is_bounded():
            chunk[:start] = self._chunks.pop()
            start, self._chunk_starts = 0, _NONE
        self._chunks.append(chunk)
        self._chunk_starts = np.append(self._chunk_starts, start)
        stop = start + rows >> _BITS
        self._free = list(reversed(range(segments, stop)))
        none = np.zeros(stop - segments, np.int64)
        self._written, self._used = np.append(self._written, none), np.append(self._used, none)

    def _clean(self, rows: int) -> None:
        """Write the leaves of the emptiest segments again, at least of one, for about so many rows."""
        self._free_empty()
        rows = max(rows, 1)
        while rows > 0 and self.rows / _IN_USE + _SLACK < self._all_written:
            share = np.where(self._written > 0, self._used / np.maximum(self._written, 1), 2.0)
            share[self._tail] = 2.0
            segment = int(np.argmin(share))
            if share[segment] > 1:
                return
            rows -= int(self._written[segment])
            self._write_again(self._groups_in(segment))
            self._free_empty()

    def _write_again(self, groups: Index) -> None:
        sizes = self.sizes(groups)
        leaves = self._gather_rows(self._addresses(groups, sizes))

        def write(rows: Index, start: int) -> None:
            rows[:] = leaves[start : start + len(rows)]

        self._replace(groups, sizes, write)

    def _free_empty(self) -> None:
        if not self._is_emptied:
            return
        self._is_emptied = False
        empty = (self._used == 0) & (self._written > 0)
        if self._tail >= 0:
            empty[self._tail] = False
        if bool(empty.any()):
            self._all_written -= int(self._written[empty].sum())
            self._written[empty] = 0
            self._free += np.flatnonzero(empty).tolist()

    def _groups_in(self, segment: int) -> Index:
        """The groups whose leaves are in a segment, in the order in which they lie there."""
        start, size = segment << _BITS, int(self._written[segment])
        group = self._rows_at(start, size)[:, 0]
        # Leaves of one group may follow each other; the one in use is where the directory says.
        first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
        group = group[first]
        place: Index = self._leaves["address"][group] - start
        is_here: Mask = (place >= first) & (place < np.append(first[1:], size)) & (self.sizes(group) > 0)
        return group[is_here]
