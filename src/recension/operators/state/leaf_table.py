"""A table of numbers sorted by (group, time), changed a few groups at a time: the store of aggregate tables.

The rows of a short group are one leaf: they are read together, and written together at the tail of a log
(`leaf_log`). What a batch costs is what its groups hold, however many others there are. A group of more than
`_LONG` rows is kept in a `BlockTable`, where a part of it can be rewritten.

It is logged by (group, time), which tell rows apart: where a batch changes one row of a group, one is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.change_log import Change
from recension.core.records import record
from recension.core.sorted_runs import Column, Columns, take_columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.state.arena import Arena
from recension.operators.state.block_table import BlockTable, Extract, sort_keys
from recension.operators.state.leaf_log import LeafLog

_LONG: Final = 256
_SHORT: Final = 64  # a long group that is as short as this becomes a leaf again
_CLOSE: Final = 32  # numbers that span so many times their count are told apart without a sort
_NONE: Final = np.zeros(0, np.int64)


@record
class LeafExtract(Extract):
    """Whole ``leaves`` (the groups), and what was read of long groups."""

    leaves: Index


class LeafTable:
    """Columns of eight bytes (int64, float64), the first two being ``group`` and ``time``."""

    key: Final = ("group", "time")

    def __init__(self, columns: Mapping[str, npt.DTypeLike]) -> None:
        self._types = {"group": np.dtype(np.int64), "time": np.dtype(np.int64)} | {
            name: np.dtype(kind) for name, kind in columns.items()
        }
        self._long = BlockTable(columns)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._long.clear()
        self._log = LeafLog(self._types)
        self._is_long = Arena({"long": np.bool_, "rows": np.int64})
        # The keys of rows that have changed since the last checkpoint; None: all may have.
        self._changed: list[tuple[Index, Ticks]] | None = None

    @property
    def columns(self) -> list[str]:
        """The names of all columns."""
        return list(self._types)

    def widen(self, columns: Mapping[str, npt.DTypeLike]) -> None:
        """Have these columns too, with 0 in every row."""
        fresh = {name: np.dtype(kind) for name, kind in columns.items() if name not in self._types}
        if fresh:
            table = self.snapshot()
            for name, kind in fresh.items():
                table = table.append_column(name, pa.array(np.zeros(len(table), kind)))
            self._set_types({**self._types, **fresh})
            self._restore_all(table)

    def _set_types(self, types: Mapping[str, np.dtype[Any]]) -> None:
        """Forget everything; rows have these columns from now on."""
        self._types = dict(types)
        self._long = BlockTable({n: kind for n, kind in types.items() if n not in self.key})
        LeafTable.clear(self)

    def __len__(self) -> int:
        return len(self._long) + self._log.rows

    def nbytes(self) -> int:
        """Memory taken by the rows."""
        return len(self) * sum(kind.itemsize for kind in self._types.values())

    def extract(
        self, group: Index, low: Ticks, high: Ticks, names: Collection[str] | None = None
    ) -> LeafExtract:
        """Of each segment's group all rows from the last one before ``low`` to the first one after ``high``.

        There may be more. Segments are sorted and do not overlap. Only to be looked at and forgotten, the
        columns that are named will do.
        """
        return self._read(group, lambda own: self._long.extract(group[own], low[own], high[own]), names)

    def extract_around(self, group: Index, time: Ticks, rows: int) -> LeafExtract:
        """At least so many rows of its group before and after each key, as far as there are any."""
        return self._read(group, lambda own: self._long.extract_around(group[own], time[own], rows))

    def _read(
        self, group: Index, read_long: Callable[[Mask], Extract], names: Collection[str] | None = None
    ) -> LeafExtract:
        self._number_up_to(int(group.max(initial=-1)) + 1)
        if not len(self._long) or not bool((is_long := self._is_long["long"][group]).any()):
            leaves = unique_numbers(group)
            columns = self._log.read(leaves, names)
            return LeafExtract(_NONE, columns, np.zeros(len(columns["time"]), np.bool_), leaves)
        leaves, long = unique_numbers(group[~is_long]), read_long(is_long)
        if not len(leaves):
            return LeafExtract(long.blocks, long.columns, long.follower, leaves)
        columns = self._log.read(leaves)
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
        if self._changed is not None:
            own = take_columns(extract.columns, ~extract.follower)
            self._changed += _compare_rows(own, columns)
        if len(extract.blocks):
            rest = columns
            if len(extract.leaves):
                is_long = self._is_long["long"][columns["group"]]
                rest, columns = take_columns(columns, is_long), take_columns(columns, ~is_long)
            self._shorten_if_short(self._replace_long(extract, rest))
            if not len(extract.leaves):
                return
        sizes = _sizes_of(columns["group"], extract.leaves)
        if bool((sizes > _LONG).any()):
            becomes_long = np.repeat(sizes > _LONG, sizes)
            self._log.write(
                extract.leaves, np.where(sizes > _LONG, 0, sizes), take_columns(columns, ~becomes_long)
            )
            self._lengthen(extract.leaves[sizes > _LONG], take_columns(columns, becomes_long))
        else:
            self._log.write(extract.leaves, sizes, columns)

    def part_groups(self, groups: Index) -> tuple[Index, Index]:
        """The groups that have a leaf, and the long ones."""
        self._number_up_to(int(groups.max(initial=-1)) + 1)
        return groups[self._log.sizes(groups) > 0], groups[self._is_long["long"][groups]]

    def look_before(self, groups: Index, t: int) -> tuple[Index, Ticks, Index]:
        """How many rows of each leaf are before ``t``, and time and ``n`` of the last of them."""
        return self._log.look_before(groups, t)

    def has_long(self, groups: Index) -> bool:
        """Is one of the groups so long that only a part of it is read?"""
        return len(self._long) > 0 and len(self.part_groups(groups)[1]) > 0

    def first_times(self, groups: Index) -> Ticks:
        """The time of the first row of each group, FOREVER if it has none; groups are sorted."""
        leaves, long = self.part_groups(groups)
        firsts = self._log.first_keys(leaves, np.ones(len(leaves), np.int64))
        times = np.full(len(groups), FOREVER)
        times[np.searchsorted(groups, leaves)] = firsts[1]
        if len(long):
            start = np.full(len(long), BEGINNING)
            rows = self._long.extract(long, start, start).columns
            times[np.searchsorted(groups, long)] = rows["time"][np.searchsorted(rows["group"], long)]
        return times

    def trim(self, groups: Index, sizes: Index) -> None:
        """Take the first rows off some leaves."""
        if self._changed is not None:
            self._changed.append(self._log.first_keys(groups, sizes))
        self._log.trim(groups, sizes)

    def forget(self, extract: LeafExtract, gone: Mask) -> None:
        """Take out rows of an extract, which are the first ones of their groups: no leaf is written."""
        group = extract.columns["group"]
        if self._changed is not None:
            self._changed.append((group[gone], extract.columns["time"][gone]))
        if len(extract.blocks):
            stays = ~(gone | extract.follower)
            if not len(extract.leaves):
                self._replace_long(extract, take_columns(extract.columns, stays))
                return
            is_long = self._is_long["long"][group]
            self._replace_long(extract, take_columns(extract.columns, is_long & stays))
            gone = gone & ~is_long
        first = np.flatnonzero(gone)
        starts = np.flatnonzero(np.append(True, group[first][1:] != group[first][:-1]))[: len(first)]
        self._log.trim(group[first[starts]], np.diff(np.append(starts, len(first))))

    def _replace_long(self, extract: LeafExtract, columns: Columns) -> Index:
        """Put rows in the place of what was read of long groups; gives back the groups that have rows."""
        before = extract.columns["group"][~extract.follower]
        if len(extract.leaves):
            before = before[self._is_long["long"][before]]
        self._long.replace(extract.blocks, columns)
        rows = self._is_long["rows"]
        (had, old_sizes), (has, sizes) = _count_each(before), _count_each(columns["group"])
        rows[had] -= old_sizes
        rows[has] += sizes
        self._is_long["long"][had[rows[had] == 0]] = False
        return has

    def _lengthen(self, groups: Index, columns: Columns) -> None:
        """Leaves that have grown too long go to the block table."""
        extract = self._long.extract(groups, np.full(len(groups), BEGINNING), np.full(len(groups), FOREVER))
        self._is_long["long"][groups] = True
        np.add.at(self._is_long["rows"], columns["group"], 1)
        self._long.replace(
            extract.blocks, _join_tables(take_columns(extract.columns, ~extract.follower), columns)[0]
        )

    def _shorten_if_short(self, groups: Index) -> None:
        """Long groups of which little is left become leaves.

        Only when they are written to: what a CTI makes short, the next batch often makes long again.
        """
        groups = groups[self._is_long["rows"][groups] < _SHORT]
        if not len(groups):
            return
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
        leaves = self._log.read(np.flatnonzero(self._log.sizes()))
        return pa.table(_join_tables(leaves, self._long_rows())[0])

    def _long_rows(self) -> Columns:
        return {
            name: column.to_numpy()
            for name, column in zip(self._types, self._long.snapshot().columns, strict=True)
        }

    def restore(self, table: pa.Table | Change) -> None:
        """Become the table that `snapshot` gave, or take over changes."""
        if not isinstance(table, Change):
            self._restore_all(table)
        elif table.is_whole:
            self._restore_all(table.rows)
            self._changed = []
        else:
            self._apply(table)

    def _restore_all(self, table: pa.Table) -> None:
        if set(table.column_names) != set(self._types):  # one of the two has been widened
            double = np.dtype(np.float64)
            self._set_types({name: self._types.get(name, double) for name in table.column_names})
        self.clear()
        if not len(table):
            return
        columns = {n: table[n].to_numpy().astype(k, copy=False) for n, k in self._types.items()}
        groups = unique_numbers(columns["group"])
        self._number_up_to(int(groups.max(initial=-1)) + 1)
        self.replace(LeafExtract(_NONE, {}, np.zeros(0, np.bool_), groups), columns)

    def _apply(self, change: Change) -> None:
        fresh = {name: change.rows[name].to_numpy() for name in self._types}
        gone = (change.gone[name].to_numpy() for name in self.key)
        group, time = (np.append(fresh[name], own) for name, own in zip(self.key, gone, strict=True))
        order = np.argsort(sort_keys([group], [time])[0], kind="stable")  # two sorted runs
        extract = self.extract(group[order], time[order], time[order])
        own = take_columns(extract.columns, ~extract.follower)
        here, named = sort_keys([own["group"], group], [own["time"], time])
        in_order = np.append(named[order], -1)
        stays = in_order[np.searchsorted(in_order[:-1], here)] != here
        columns = {name: np.append(own[name][stays], fresh[name]) for name in self._types}
        order = np.argsort(np.append(here[stays], named[: len(fresh["time"])]), kind="stable")
        self._changed = None
        self.replace(extract, take_columns(columns, order))
        self._changed = []

    def count_rows(self, groups: Index) -> Index:
        """How many rows each group has."""
        self._number_up_to(int(groups.max(initial=-1)) + 1)
        return self._log.sizes(groups) + self._is_long["rows"][groups]

    def take_changes(self, version: int) -> Change:
        """See `Logged.take_changes`."""
        changed, self._changed = self._changed, []
        if changed is None:
            rows = self.snapshot()
            return Change(rows, rows.select(self.key).slice(0, 0), is_whole=True)
        group, time = (np.concatenate([_NONE, *(keys[i] for keys in changed)]) for i in (0, 1))
        order = np.lexsort((time, group))
        group, time = group[order], time[order]
        once = np.append(True, (group[1:] != group[:-1]) | (time[1:] != time[:-1]))[: len(group)]
        group, time = group[once], time[once]
        rows, at = self._find_rows(group, time)
        gone = pa.table({"group": group[at < 0], "time": time[at < 0]})
        return Change(pa.table(take_columns(rows, at[at >= 0])), gone)

    def find_current(self, change: Change, version: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        stored = {name: change.rows[name].to_numpy() for name in self._types}
        rows, at = self._find_rows(stored["group"], stored["time"])
        is_same = at >= 0
        for name, column in stored.items():
            is_same[is_same] = _bits(rows[name][at[is_same]]) == _bits(column[is_same])
        _, there = self._find_rows(*(change.gone[name].to_numpy() for name in self.key))
        return is_same, there < 0

    def _find_rows(self, group: Index, time: Ticks) -> tuple[Columns, Index]:
        """Rows that hold those with these (sorted) keys, and where each stands among them, -1 if nowhere."""
        rows = self.extract(group, time, time).columns
        keys, wanted = sort_keys([rows["group"], group], [rows["time"], time])
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        return rows, np.where(keys[at] == wanted, at, -1) if len(keys) else np.full(len(group), -1)


def unique_numbers(numbers: Index) -> Index:
    """Each number once, in order."""
    if len(numbers) < 2:
        return numbers
    if not bool((numbers[1:] >= numbers[:-1]).all()):
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < _CLOSE * len(numbers):
            is_there = np.zeros(high - low + 1, np.bool_)
            is_there[numbers - low] = True
            return np.flatnonzero(is_there) + low
        numbers = np.sort(numbers)
    once: Index = numbers[np.concatenate(([True], numbers[1:] > numbers[:-1]))]
    return once


def _sizes_of(group: Index, leaves: Index) -> Index:
    """How many rows each leaf has, in order; some may have none."""
    used, sizes = _count_each(group)
    if len(used) == len(leaves):
        return sizes
    every = np.zeros(len(leaves), np.int64)
    every[leaves.searchsorted(used)] = sizes
    return every


def _count_each(numbers: Index) -> tuple[Index, Index]:
    """The different ones of sorted numbers, and how often each is there."""
    if not len(numbers):
        return numbers, numbers
    first = np.concatenate(([True], numbers[1:] != numbers[:-1])).nonzero()[0]
    return numbers[first], np.concatenate((first[1:], [len(numbers)])) - first


def _bits(column: Column) -> Index:
    """Numbers of eight bytes as they are written: -0.0 is not 0.0, and what is not a number equals itself."""
    return column.view(np.int64)


def _compare_rows(old: Columns, new: Columns) -> list[tuple[Index, Ticks]]:
    """The keys of rows that come, change or go; both are sorted."""
    before, after = sort_keys([old["group"], new["group"]], [old["time"], new["time"]])
    at = np.searchsorted(before, after)
    is_same = np.append(before, -1)[at] == after
    is_kept = np.zeros(len(before), np.bool_)
    is_kept[at[is_same]] = True
    for name in old:
        if name not in LeafTable.key:
            is_same[is_same] = _bits(old[name])[at[is_same]] == _bits(new[name])[is_same]
    return [
        (new["group"][~is_same], new["time"][~is_same]),
        (old["group"][~is_kept], old["time"][~is_kept]),
    ]


def _join_tables(one: Columns, other: Columns) -> tuple[Columns, Index]:
    """The rows of two tables without a group in common, in order, and that order."""
    order = np.argsort(np.append(one["group"], other["group"]), kind="stable")
    return {name: np.append(one[name], other[name])[order] for name in one}, order
