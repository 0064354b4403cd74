"""A table of numbers sorted by (group, time), changed a few rows at a time.

Kept in blocks of a few dozen rows with a directory of their first keys, like the leaves of a B-tree. The
blocks are pages of equal room in one memory, in any order, and all that are read or written at once are read
or written together:

    directory   first key    a       d       h         in order
                page         2       0       1
    pages       |d e f g .|h i . . .|a b c . .|        what is changed is written where it was

So a change costs what its blocks hold, wherever they are, however many others there are. Only the directory
is copied when blocks come or go.

Not `core.sorted_runs`: there the rows of a key range lie in many runs. Here they stand together, so that a
range can be read with its neighbours, changed and written back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index
from recension.core.memory import empty
from recension.core.netting import distinct, expand
from recension.core.records import record
from recension.core.sorted_runs import Column, Columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks

_BLOCK = 64
_MANY = 8  # keys among which as many others are searched by packing them all
_NONE = np.zeros(0, np.int64)


@record
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
        self._width = _BLOCK
        self._room, self._free = self.empty_columns(), _NONE
        # Blocks in order: the page of each, how many rows it has (at least one), and its first key.
        self._set_directory(np.zeros((4, 0), np.int64))
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
        starts, blocks = self._starts(), len(self._page)
        block = np.maximum(self._block_before(group, time, or_equal=True), 0)
        first = starts.searchsorted(starts[block] - rows, "right") - 1
        last = starts.searchsorted(starts[np.minimum(block + 1, blocks)] - 1 + rows, "right") - 1
        return self._read_between(np.maximum(first, 0), np.clip(last, 0, max(0, blocks - 1)))

    def stretch(self, low: int, high: int, before: int, after: int) -> Extract:
        """All rows of the first group between two times, and at least so many before and after them."""
        starts = self._starts()
        first = int(starts.searchsorted(self.position(0, low) - before, "right")) - 1
        first = max(0, min(first, len(self._page) - 1))
        last = int(starts.searchsorted(self.position(0, high, after_equal=True) + after, "left"))
        return self._read(np.arange(first, max(first + 1, last))[: len(self._page) - first])

    def position(self, group: int, time: int, *, after_equal: bool = False) -> int:
        """How many rows are before a key (or at it)."""
        key = np.array([group]), np.array([time])
        block = int(self._block_before(*key, or_equal=after_equal)[0])
        if block < 0:
            return 0
        at = self._rows_of(self._page[block : block + 1], self._size[block : block + 1])
        within = bisect(self._room["group"][at], self._room["time"][at], *key, after_equal=after_equal)
        return self.rows_before(block) + int(within[0])

    def rows_before(self, block: int) -> int:
        """How many rows stand before a block."""
        return int(self._size[:block].sum())

    def _starts(self) -> Index:
        """Where each block begins, and where the last one ends."""
        return np.append(0, self._size.cumsum())

    def head(self, rows: int) -> Extract:
        """At least so many rows from the first one on, as far as there are any."""
        held = self._size[:rows].cumsum()
        return self._read(np.arange(min(int(held.searchsorted(rows)) + (rows > 0), len(held))))

    def _read_between(self, first: Index, last: Index) -> Extract:
        """Every block that lies between some first and last one, and the next where the last has few rows."""
        if not len(self._page):
            return self._read(_NONE)
        size = len(self._page) + 1
        last = last + ((self._size[last] < self._width // 4) & (last + 2 < size))
        touched = np.bincount(first, minlength=size) - np.bincount(last + 1, minlength=size)
        return self._read((touched[:-1].cumsum() > 0).nonzero()[0])

    def _read(self, blocks: Index) -> Extract:
        if not len(blocks):
            return Extract(blocks, self.empty_columns(), np.zeros(0, np.bool_))
        read, is_follower = self._with_followers(blocks)
        size = np.where(is_follower, 1, self._size[read])
        at = self._rows_of(self._page[read], size)
        columns = {name: room.take(at) for name, room in self._room.items()}
        return Extract(blocks, columns, is_follower.repeat(size))

    def _with_followers(self, blocks: Index) -> tuple[Index, npt.NDArray[np.bool_]]:
        """The blocks and, after each run of them, the one that follows; which those are."""
        first, stop = int(blocks[0]), int(blocks[-1]) + 1
        if stop - first == len(blocks):  # one run, as most often
            read = np.arange(first, min(stop + 1, len(self._page)))
            return read, read == stop
        ends = np.append(np.diff(blocks) > 1, stop < len(self._page)).nonzero()[0]
        is_follower = np.insert(np.zeros(len(blocks), np.bool_), ends + 1, True)
        return np.insert(blocks, ends + 1, blocks[ends] + 1), is_follower

    def _rows_of(self, page: Index, size: Index) -> Index:
        """Where the first so many rows of pages are, page by page."""
        at: Index = np.repeat(page * self._width - size.cumsum() + size, size)
        at += np.arange(len(at))
        return at

    def replace(self, blocks: Index, columns: Columns) -> None:
        """Put new rows, sorted, in the place of the blocks of an extract.

        The rows must lie between the neighbours of those blocks.
        """
        self._rows += len(columns["time"]) - int(self._size[blocks].sum())
        # Runs of adjacent blocks: an untouched block stands between two of them.
        starts = np.append(True, np.diff(blocks) > 1).nonzero()[0]
        after = blocks[starts[1:] - 1] + 1
        keys = self._first_group[after], self._first_time[after]
        # Rows of one key may reach from a run into the block after it: those of the run stay before it.
        cuts = np.append(0, bisect(columns["group"], columns["time"], *keys, after_equal=True))
        rows = np.diff(np.append(cuts, len(columns["time"])))
        old = np.diff(np.append(starts, len(blocks)))
        new = self._count_blocks(rows, old)
        run, place = expand(np.zeros(len(new), np.int64), new)
        first, stop = (cuts[run] + rows[run] * (place + side) // new[run] for side in (0, 1))
        page, size = self._take_pages(self._page[blocks], len(run)), stop - first
        fresh = np.stack([page, size, columns["group"][first], columns["time"][first]])
        if len(blocks) and bool((old == new).all()):
            self._directory[:, blocks] = fresh
        else:
            self._set_directory(self._splice(blocks, blocks[starts[: len(blocks)]], new, fresh))
        at = self._rows_of(page, size)
        for name, room in self._room.items():
            room[at] = columns[name]

    def _count_blocks(self, rows: Index, blocks: Index) -> Index:
        """How many blocks rows get: as many as they had, if these are neither too full nor too empty."""
        usual = -(-rows // max(1, self._width * 3 // 4))
        fits = (rows <= blocks * self._width) & (rows >= blocks * max(1, self._width // 2))
        return np.where(fits, blocks, usual)

    def _take_pages(self, own: Index, count: int) -> Index:
        """So many pages: those given, then free ones, then new ones. What is over becomes free."""
        pages = np.append(own, self._free)
        if len(pages) < count:
            known = len(self._room["time"]) // self._width
            more = max(count - len(pages), known // 2)
            for name, kind in self._types.items():
                room = empty((known + more) * self._width, kind)
                room[: known * self._width] = self._room[name]
                self._room[name] = room
            pages = np.append(pages, np.arange(known, known + more))
        self._free = pages[count:]
        return pages[:count]

    def _splice(self, blocks: Index, starts: Index, new: Index, fresh: Index) -> Index:
        """The directory with ``new`` blocks for each run of ``blocks``, of which ``starts`` are the first."""
        if not len(blocks):
            return np.concatenate([fresh, self._directory], axis=1)
        copies = np.ones(len(self._page), np.int64)
        copies[blocks] = 0
        is_gone = copies == 0
        copies[starts] = new
        source = np.repeat(np.arange(len(copies)), copies)
        directory = self._directory[:, source]
        directory[:, is_gone[source]] = fresh
        return directory

    def _set_directory(self, directory: Index) -> None:
        self._directory = directory
        self._page, self._size, self._first_group, self._first_time = directory

    def _block_before(self, group: Index, time: Ticks, *, or_equal: bool = False) -> Index:
        """The last block whose first key is before (or at) the given key; -1 if there is none."""
        return bisect(self._first_group, self._first_time, group, time, after_equal=or_equal) - 1

    def _blocks_before(self, group: Index, time: Ticks, *, or_equal: bool = False) -> Index:
        """The same for keys in order: where they are many, the blocks are searched among them."""
        if len(group) < len(self._page):
            return self._block_before(group, time, or_equal=or_equal)
        known = self._first_group, self._first_time
        places = bisect(group, time, *known, after_equal=not or_equal)
        return np.cumsum(np.bincount(places, minlength=len(group) + 1))[: len(group)] - 1

    def snapshot(self) -> pa.Table:
        """All rows."""
        return pa.table(self._read(np.arange(len(self._page))).columns)

    def restore(self, table: pa.Table) -> None:
        """Become the table that `snapshot` gave."""
        self.clear()
        self.replace(_NONE, {n: table[n].to_numpy().astype(k) for n, k in self._types.items()})


def bisect(groups: Column, times: Column, group: Index, time: Ticks, *, after_equal: bool = False) -> Index:
    """Positions of (group, time) keys among sorted ones."""
    if not len(group):
        return _NONE
    if len(groups) <= _MANY * len(group):
        known, wanted = sort_keys([groups, group], [times, time])
        return known.searchsorted(wanted, "right" if after_equal else "left")
    return _bisect_in_groups(groups, times, group, time, after_equal)


def _bisect_in_groups(groups: Column, times: Column, group: Index, time: Ticks, after_equal: bool) -> Index:
    """The same for a few keys, which costs no look at all the others: by halving, among those of a group."""
    low, high = groups.searchsorted(group), groups.searchsorted(group, "right")
    if len(group) == 1:
        own = times[low[0] : high[0]]
        return low + own.searchsorted(time, "right" if after_equal else "left")
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        middle = (low + high) >> 1
        found = times[np.minimum(middle, len(times) - 1)]
        is_before = (found <= time if after_equal else found < time) & (low < high)
        low, high = np.where(is_before, middle + 1, low), np.where(is_before, high, middle)
    return low


@record
class KeyPacking:
    """(group, time) as one whole number in the same order: the time as an offset, or a rank if that is long.

    The beginning of time is the first offset, the end of time the last one: no other time is at ``low`` or
    after ``high``. ``has_ends`` says that one of them is among the times.
    """

    width: int
    low: int
    high: int
    ranked: Ticks | None
    has_ends: bool

    @staticmethod
    def for_keys(groups: Sequence[Index], times: Sequence[Ticks], *, by_shifts: bool = False) -> KeyPacking:
        """A packing for all these keys: tight, or one unpacked by shifts, which wastes up to a bit."""
        low, high, has_ends = _range_of(times)
        rounded = _power_of_two if by_shifts else int
        width, ranked = rounded(high - low + 2), None
        if (max([int(group.max(initial=0)) for group in groups]) + 1) * width > 2**62:
            ranked = distinct(np.concatenate(times))
            width = rounded(len(ranked))
        return KeyPacking(width, low, high, ranked, has_ends)

    def pack(self, group: Index, time: Ticks) -> Index:
        """One number per key."""
        if self.ranked is not None:
            code = self.ranked.searchsorted(time)
        else:
            within = np.minimum(np.maximum(time, self.low), self.high + 1) if self.has_ends else time
            code = within - self.low
        packed: Index = group * self.width + code
        return packed

    def unpack(self, packed: Index) -> tuple[Index, Ticks]:
        """The keys of these numbers."""
        if self.width & (self.width - 1):
            group = packed // self.width
            code = packed - group * self.width
        else:
            group, code = packed >> (self.width.bit_length() - 1), packed & (self.width - 1)
        if self.ranked is not None:
            return group, self.ranked[code]
        if not self.has_ends:
            return group, code + self.low
        time = np.where(code > self.high - self.low, FOREVER, code + self.low)
        return group, np.where(code == 0, BEGINNING, time)


def _range_of(times: Sequence[Ticks]) -> tuple[int, int, bool]:
    """Just before the first time and at the last, without the ends of time; and whether those are there."""
    there = [one for one in times if len(one)]
    low = min([int(one.min()) for one in there], default=0)
    high = max([int(one.max()) for one in there], default=0)
    has_ends = low == BEGINNING or high == FOREVER
    if has_ends:
        every = np.concatenate(times)
        every = every[(every != BEGINNING) & (every != FOREVER)]
        low, high = (int(every.min()), int(every.max())) if len(every) else (0, 0)
    return low - 1, high, has_ends


def _power_of_two(size: int) -> int:
    """The least that is no smaller."""
    return 1 << max(size - 1, 0).bit_length()


def sort_keys(groups: list[Index], times: list[Ticks]) -> list[Index]:
    """One whole number per (group, time), in the same order as the pairs, over all arrays together."""
    low = min([int(group.min(initial=0)) for group in groups])
    high = max([int(group.max(initial=0)) for group in groups])
    if low < 0 or (high + 1) * sum(map(len, times)) > 2**62:  # instants as groups
        once = distinct(np.concatenate(groups))
        groups = [once.searchsorted(group) for group in groups]
    packing = KeyPacking.for_keys(groups, times)
    return [packing.pack(group, time) for group, time in zip(groups, times, strict=True)]
