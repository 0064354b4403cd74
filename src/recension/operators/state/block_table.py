"""A table of numbers sorted by (group, time), changed a few blocks at a time.

Kept as consecutive blocks of a few hundred rows with a directory of their first keys, like the leaves of
a B-tree: reading or rewriting part of it costs what that part holds, not what the table holds.

Not `core.sorted_runs`: there the rows of a key range lie in many runs. Here they stand together, so that a
range can be read with its neighbours, changed and written back.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index
from recension.core.memory import copy_columns
from recension.core.sorted_runs import Column, Columns
from recension.core.ticks import FOREVER, Ticks

_BLOCK, _LONGEST, _MANY = 1024, 8192, 16


@dataclass(frozen=True, slots=True)
class Extract:
    """Rows read out of the table, in order: whole blocks, and after each run of blocks the key that follows.

    ``follower`` marks those extra rows: they are context, and are not written back.
    """

    blocks: Index
    columns: Columns
    follower: npt.NDArray[np.bool_]


class BlockTable:
    """Columns of int64 or float64, the first two being ``group`` and ``time``."""

    def __init__(self, columns: Mapping[str, npt.DTypeLike]) -> None:
        self._types = {"group": np.dtype(np.int64), "time": np.dtype(np.int64)} | {
            name: np.dtype(kind) for name, kind in columns.items()
        }
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._blocks: list[Columns] = []
        self._first_group = self._first_time = np.zeros(0, np.int64)
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def nbytes(self) -> int:
        """Memory taken by the rows."""
        return self._rows * sum(kind.itemsize for kind in self._types.values())

    def empty_columns(self) -> Columns:
        """No rows."""
        return {name: np.zeros(0, kind) for name, kind in self._types.items()}

    def extract(self, group: Index, low: Ticks, high: Ticks) -> Extract:
        """All rows from the last one before ``low`` to the first one after ``high``, for each segment.

        Segments are sorted and do not overlap.
        """
        first = np.maximum(self._blocks_before(group, low), 0)
        last = np.maximum(self._blocks_before(group, high, or_equal=True), first)
        return self._read_between(first, last)

    def extract_around(self, group: Index, time: Ticks, rows: int) -> Extract:
        """At least so many rows before and after each key, of whatever groups, as far as there are any."""
        starts, blocks = self._starts(), len(self._blocks)
        block = np.maximum(self._block_before(group, time, or_equal=True), 0)
        first = np.searchsorted(starts, starts[block] - rows, "right") - 1
        last = np.searchsorted(starts, starts[np.minimum(block + 1, blocks)] - 1 + rows, "right") - 1
        return self._read_between(np.maximum(first, 0), np.clip(last, 0, max(0, blocks - 1)))

    def stretch(self, low: int, high: int, before: int, after: int) -> Extract:
        """All rows of the first group between two times, and at least so many before and after them."""
        starts = self._starts()
        first = int(np.searchsorted(starts, self.position(0, low) - before, "right")) - 1
        first = max(0, min(first, len(self._blocks) - 1))
        last = int(np.searchsorted(starts, self.position(0, high, after_equal=True) + after, "left"))
        return self._read(np.arange(first, max(first + 1, last))[: len(self._blocks) - first])

    def position(self, group: int, time: int, *, after_equal: bool = False) -> int:
        """How many rows are before a key (or at it)."""
        key = np.array([group]), np.array([time])
        block = int(self._block_before(*key, or_equal=after_equal)[0])
        if block < 0:
            return 0
        own = self._blocks[block]
        first, last = (int(np.searchsorted(own["group"], group, side)) for side in ("left", "right"))
        times = own["time"][first:last]
        within = np.searchsorted(times, time, "right" if after_equal else "left")
        return self.rows_before(block) + first + int(within)

    def rows_before(self, block: int) -> int:
        """How many rows stand before a block."""
        return int(self._starts()[block])

    def _starts(self) -> Index:
        """Where each block begins, and where the last one ends."""
        return np.append(0, np.cumsum(np.array([len(b["time"]) for b in self._blocks], np.int64)))

    def head(self, rows: int) -> Extract:
        """At least so many rows from the first one on, as far as there are any."""
        held = last = 0
        while held < rows and last < len(self._blocks):
            held += len(self._blocks[last]["time"])
            last += 1
        return self._read(np.arange(last))

    def _read_between(self, first: Index, last: Index) -> Extract:
        """Every block that lies between some first and last one."""
        if not self._blocks:
            return self._read(np.zeros(0, np.int64))
        size = len(self._blocks) + 1
        touched = np.bincount(first, minlength=size) - np.bincount(last + 1, minlength=size)
        return self._read(np.flatnonzero(np.cumsum(touched[:-1]) > 0))

    def _read(self, blocks: Index) -> Extract:
        parts: list[Columns] = []
        follower: list[npt.NDArray[np.bool_]] = []
        ends = np.append(np.diff(blocks) > 1, True)
        for block, run_ends in zip(blocks.tolist(), ends.tolist(), strict=False):
            parts.append(self._blocks[block])
            follower.append(np.zeros(len(self._blocks[block]["time"]), np.bool_))
            if run_ends and block + 1 < len(self._blocks):
                parts.append({name: column[:1] for name, column in self._blocks[block + 1].items()})
                follower.append(np.ones(1, np.bool_))
        if not parts:
            return Extract(blocks, self.empty_columns(), np.zeros(0, np.bool_))
        columns = {name: np.concatenate([part[name] for part in parts]) for name in self._types}
        return Extract(blocks, columns, np.concatenate(follower))

    def replace(self, blocks: Index, columns: Columns) -> None:
        """Put new rows, sorted, in the place of the blocks of an extract.

        The rows must lie between the neighbours of those blocks.
        """
        old = sum(len(self._blocks[b]["time"]) for b in blocks.tolist())
        self._rows += len(columns["time"]) - old
        if not len(blocks):
            self._splice(0, 0, columns)
            return
        # Runs of adjacent blocks, from the last to the first so that earlier positions stay true.
        starts = np.flatnonzero(np.append(True, np.diff(blocks) > 1))
        stops = np.append(starts[1:], len(blocks))
        cuts = self._cuts(columns, blocks[starts[1:]])
        edges = [0, *cuts.tolist(), len(columns["time"])]
        for i in range(len(starts) - 1, -1, -1):
            part = {name: column[edges[i] : edges[i + 1]] for name, column in columns.items()}
            self._splice(int(blocks[starts[i]]), int(blocks[stops[i] - 1]) + 1, part)

    def _cuts(self, columns: Columns, run_starts: Index) -> Index:
        """Where the rows of each further run begin: an untouched block stands between two runs."""
        before = run_starts - 1
        group, time = columns["group"], columns["time"]
        return bisect(group, time, self._first_group[before], self._first_time[before])

    def _splice(self, start: int, stop: int, columns: Columns) -> None:
        size = len(columns["time"])
        # What is rewritten in bulk is likely to be read so: few long blocks, cut shorter by small changes.
        pieces = max(1, round(size / max(_BLOCK, min(size // _MANY, _LONGEST)))) if size else 0
        edges = [size * i // pieces for i in range(pieces + 1)] if pieces else []
        # Copies, so that a block does not keep a whole batch's arrays alive.
        fresh = [
            copy_columns({name: column[a:b] for name, column in columns.items()})
            for a, b in itertools.pairwise(edges)
        ]
        self._blocks[start:stop] = fresh
        firsts = np.array(edges[:-1], np.int64)
        self._first_group = _splice_column(self._first_group, start, stop, columns["group"][firsts])
        self._first_time = _splice_column(self._first_time, start, stop, columns["time"][firsts])

    def _block_before(self, group: Index, time: Ticks, *, or_equal: bool = False) -> Index:
        """The last block whose first key is before (or at) the given key; -1 if there is none."""
        return bisect(self._first_group, self._first_time, group, time, after_equal=or_equal) - 1

    def _blocks_before(self, group: Index, time: Ticks, *, or_equal: bool = False) -> Index:
        """The same for keys in order: there are many to a block, so the blocks are searched among them."""
        known = self._first_group, self._first_time
        places = bisect(group, time, *known, after_equal=not or_equal)
        return np.cumsum(np.bincount(places, minlength=len(group) + 1))[: len(group)] - 1

    def snapshot(self) -> pa.Table:
        """All rows."""
        return pa.table(self._read(np.arange(len(self._blocks))).columns)

    def restore(self, table: pa.Table) -> None:
        """Become the table that `snapshot` gave."""
        self.clear()
        self.replace(
            np.zeros(0, np.int64), {n: table[n].to_numpy().astype(k) for n, k in self._types.items()}
        )


def _splice_column(values: Index, start: int, stop: int, fresh: Column) -> Index:
    return np.concatenate([values[:start], fresh, values[stop:]])


def bisect(groups: Column, times: Column, group: Index, time: Ticks, *, after_equal: bool = False) -> Index:
    """Positions of (group, time) keys among sorted ones, all searches abreast."""
    low = np.zeros(len(group), np.int64)
    high = np.full(len(group), len(groups), np.int64)
    for _ in range(len(groups).bit_length()):
        middle = np.minimum((low + high) >> 1, max(len(groups) - 1, 0))
        g, t = groups[middle], times[middle]
        is_before = (g < group) | ((g == group) & ((t <= time) if after_equal else (t < time)))
        is_open = low < high
        low = np.where(is_open & is_before, middle + 1, low)
        high = np.where(is_open & ~is_before, middle, high)
    return low


@dataclass(frozen=True, slots=True)
class KeyPacking:
    """(group, time) as one whole number in the same order: the time as an offset, or a rank if that is long.

    The end of time is the offset after the last.
    """

    width: int
    low: int
    high: int
    ranked: Ticks | None

    @staticmethod
    def for_keys(
        groups: Sequence[Index], times: Sequence[Ticks], *, is_invertible: bool = False
    ) -> KeyPacking:
        """A packing for all these keys: tight, or one that `unpack` can invert, which wastes up to a bit."""
        every = np.concatenate(times)
        finite = every[every != FOREVER]
        low, high = (int(finite.min()), int(finite.max())) if len(finite) else (0, 0)
        rounded = _power_of_two if is_invertible else int
        width, ranked = rounded(high - low + 2), None
        if (max(int(group.max(initial=0)) for group in groups) + 1) * width > 2**62:
            ranked = np.unique(every)
            width = rounded(len(ranked))
        return KeyPacking(width, low, high, ranked)

    def pack(self, group: Index, time: Ticks) -> Index:
        """One number per key."""
        if self.ranked is not None:
            code = np.searchsorted(self.ranked, time)
        else:
            code = np.where(time == FOREVER, self.high + 1, time) - self.low
        packed: Index = group * self.width + code
        return packed

    def unpack(self, packed: Index) -> tuple[Index, Ticks]:
        """The keys of these numbers."""
        group, code = packed >> (self.width.bit_length() - 1), packed & (self.width - 1)
        if self.ranked is not None:
            return group, self.ranked[code]
        return group, np.where(code > self.high - self.low, FOREVER, code + self.low)


def _power_of_two(size: int) -> int:
    """The least that is no smaller."""
    return 1 << max(size - 1, 0).bit_length()


def sort_keys(groups: list[Index], times: list[Ticks]) -> list[Index]:
    """One whole number per (group, time), in the same order as the pairs, over all arrays together."""
    packing = KeyPacking.for_keys(groups, times)
    return [packing.pack(group, time) for group, time in zip(groups, times, strict=True)]
