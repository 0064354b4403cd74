"""Rows kept in sorted runs: the storage under bags, queues and indexes of hashes.

A batch is sorted and becomes a run; runs of similar length are merged (a log-structured merge). So adding
costs O(log n) a row over time, and a search looks at O(log n) runs.

What always holds:

    order       a run is sorted by its key, and stands before the runs whose rows came later;
    equal keys  ``sum``: one row a run, the sum of its counts, none that sums to nothing;
                ``newest``: one row a run, the one that came last; ``all``: all rows, in order of arrival;
    lengths     of `_FAN` neighbours one is more than twice as long as all newer ones of them, but for runs
                that are being merged: there are O(log n) runs;
    writing     the columns of a run are never written to again, and its number is given to no other run.
                Rows that are taken out are marked beside them, or cut off their front;
    steps       no call merges more than a few times `STEP` rows, or rows in proportion to those it adds. A
                longer merge goes on with the next calls; until it is done the runs it reads stay in place.

Rows may expire: a row whose value in the column ``expiry`` is below `SortedRuns.expired_before` will not be
asked for again. A call looks at no row to find that out; a run of which half has expired, by a sample taken
when it was made, is written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.memory import empty_columns, keep_columns
from recension.core.netting import expand, order_of, order_of_hashes
from recension.core.ticks import BEGINNING, FOREVER

Column: TypeAlias = npt.NDArray[Any]
Columns: TypeAlias = dict[str, Column]

STEP: Final = 1 << 14
"""How many rows every call may merge."""
_SHARE: Final = 16  # so many more for each row added: enough for a merge on every level
_FAN: Final = 4  # so many runs of similar length become one
_SAMPLE: Final = 255
_FEW: Final = 64  # so few are looked through whenever rows expire


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Sorted rows; ``size`` of the ``written`` are still there.

    Some may be cut off their front, those ``gone`` were taken out one by one. Half of the rows expire before
    the time ``half``.
    """

    serial: int
    columns: Columns
    key: Column
    written: int
    size: int
    half: int
    gone: Mask | None = None

    def is_mostly_gone(self, expired_before: int) -> bool:
        """Whether about half of the rows are taken out or have expired."""
        return self.half < expired_before or 2 * self.size < self.written

    def find(self, *needles: Column) -> tuple[Index, Mask]:
        """The position of a row with each key, and whether there is one."""
        at = np.minimum(self.key.searchsorted(needles[0]), len(self.key) - 1)
        is_found: Mask = self.key[at] == needles[0]
        if len(needles) > 1:
            # Most often one row has the first column of the key.
            is_first = list(self.columns.values())[1][at] == needles[1]
            some = (is_found & ~is_first).nonzero()[0]
            at[some], is_found[some] = self._find_by_second(*(column[some] for column in (*needles, at)))
        return at, is_found

    def _find_by_second(self, first: Column, second: Column, low: Index) -> tuple[Index, Mask]:
        """By halving, among rows that are alike in the first column of the key."""
        column, last = list(self.columns.values())[1], len(self.key) - 1
        high = stop = self.key.searchsorted(first, "right")
        while bool((is_open := low < high).any()):
            middle = (low + high) // 2
            is_less = is_open & (column[np.minimum(middle, last)] < second)
            low, high = np.where(is_less, middle + 1, low), np.where(is_open & ~is_less, middle, high)
        at = np.minimum(low, last)
        return at, (low < stop) & (column[at] == second)

    def positions(self, needles: Column) -> Index:
        """All rows whose key begins with one of the needles."""
        return expand(self.key.searchsorted(needles), self.key.searchsorted(needles, "right"))[1]

    def part(self, start: int = 0, stop: int | None = None) -> Columns:
        """The rows still there, or those of them from ``start`` to ``stop``."""
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return columns if self.gone is None else take_columns(columns, ~self.gone[start:stop])

    def remove(self, needles: Column) -> Run:
        """The run after all rows with these keys were taken out."""
        at = self.positions(needles)
        if not len(at):
            return self
        gone = np.zeros(len(self.key), np.bool_) if self.gone is None else self.gone
        size = self.size - int(np.count_nonzero(~gone[at]))
        gone[at] = True
        return replace(self, gone=gone, size=size)

    def cut(self, at: int) -> Run:
        """The run after its first rows were taken out."""
        if not at:
            return self
        columns = {name: column[at:] for name, column in self.columns.items()}
        gone = None if self.gone is None else self.gone[at:]
        size = len(self.key) - at if gone is None else int(np.count_nonzero(~gone))
        return Run(self.serial, columns, self.key[at:], self.written, size, self.half, gone)


class SortedRuns:
    """Rows of the given columns, sorted by the first ``keys`` of them (one or two)."""

    def __init__(
        self,
        types: Mapping[str, npt.DTypeLike],
        *,
        keys: int = 1,
        equal: Literal["sum", "newest", "all"] = "all",
        expiry: str | None = None,
    ) -> None:
        self.expired_before = BEGINNING
        self._types = dict(types)
        self._keys = tuple(types)[:keys]
        self._equal = equal
        self._expiry = expiry
        self._serial = 0
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._runs: list[Run] = []
        self._merges: list[_Merge] = []

    def __len__(self) -> int:
        return sum(run.size for run in self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def nbytes(self) -> int:
        """Memory taken by the rows that are there."""
        return len(self) * sum(np.dtype(kind).itemsize for kind in self._types.values())

    def push(self, *columns: Column, is_run: bool = False) -> None:
        """Add rows; ``is_run`` says that they are sorted already, and equal keys put together."""
        if not len(columns[0]):
            return
        rows = dict(zip(self._types, columns, strict=True))
        self._append(rows if is_run else self._sort_rows(rows))
        self._tidy(max(STEP, _SHARE * len(columns[0])))

    def total(self, *needles: Column) -> Index:
        """The counts of each key added up."""
        total = np.zeros(len(needles[0]), np.int64)
        for run in self._runs:
            at, is_found = run.find(*needles)
            total += np.where(is_found, run.columns["count"][at], 0)
        return total

    def find_rows(self, needles: Column) -> Columns:
        """The rows whose key begins with one of the (sorted, distinct) needles and that have not expired.

        They are as they would be in one run.
        """
        found = []
        for run in self._runs:
            at = run.positions(needles)
            found.append(take_columns(run.columns, at if run.gone is None else at[~run.gone[at]]))
        return self._drop_expired(self._merge_parts(found))

    def remove(self, needles: Column) -> None:
        """Take out all rows with these keys, which were not summed."""
        self._change(lambda run: run.remove(needles))

    def pop(self, t: int, side: Literal["left", "right"] = "left") -> Columns:
        """Take out all rows whose key is less than ``t`` (``right``: or equal), run by run."""
        if not any(run.key[0] < t or (run.key[0] == t and side == "right") for run in self._runs):
            return {name: np.empty(0, kind) for name, kind in self._types.items()}
        before = self._runs
        after = self._change(lambda run: run.cut(int(run.key.searchsorted(t, side))))
        cut = [(run, len(run.key) - len(rest.key)) for run, rest in zip(before, after, strict=True)]
        return self._join_parts([run.part(0, size) for run, size in cut if size])

    def rewrite(self, change: Callable[[Columns], Columns]) -> None:
        """Change rows, or leave some out, in a way that keeps their order."""
        runs = self._runs
        self.clear()
        for run in runs:
            self._append(change(run.part()))
        self._tidy(STEP)

    def unite(self) -> Columns:
        """All rows as one run."""
        rows, self._merges = self._drop_expired(self._merge_parts([run.part() for run in self._runs])), []
        self._replace(self._runs, rows)
        return rows

    def forget_before(self, t: int) -> None:
        """Rows that expire before ``t`` will not be asked for again; at the end of time, none will."""
        self.expired_before = t
        if t == FOREVER:
            self.clear()
        elif len(self) > _FEW:
            self._tidy(STEP)
        elif any(bool((run.columns[self._expiry] < t).any()) for run in self._runs if self._expiry):
            self.unite()

    def snapshot(self) -> pa.Table:
        """All rows, of equal keys the earlier first."""
        # Put together: how many runs there are depends on when they were loaded.
        return pa.table(self._drop_expired(self._merge_parts([run.part() for run in self._runs])))

    def restore(self, table: pa.Table, expired_before: int = BEGINNING) -> None:
        """Become what `snapshot` gave."""
        self.clear()
        self.expired_before = expired_before
        if len(table):
            rows = {name: table[name].to_numpy() for name in self._types}
            self._append(self._sort_rows(rows, "stable"))

    def _append(self, rows: Columns) -> None:
        if (run := self._run(rows)).size:
            self._runs.append(run)

    def _run(self, rows: Columns) -> Run:
        """Rows as a run of its own, read-only."""
        self._serial += 1
        columns = {name: column.view() for name, column in keep_columns(rows).items()}
        for column in columns.values():
            column.flags.writeable = False
        key, half = columns[self._keys[0]], FOREVER
        if self._expiry is not None and len(key):
            sample = rows[self._expiry][:: -(-len(key) // _SAMPLE)]
            half = int(np.partition(sample, len(sample) // 2)[len(sample) // 2])
        return Run(self._serial, columns, key, len(key), len(key), half)

    def _change(self, change: Callable[[Run], Run], later: Callable[[Run], Run] | None = None) -> list[Run]:
        """Change every run; what becomes of each. Those that are being merged change when that is done.

        ``later`` is what is then done to what becomes of them, if not the same.
        """
        changed = [change(run) for run in self._runs]
        if changed != self._runs:
            self._runs = [run for run in changed if run.size]
            for merge in self._merges:
                merge.later.append(later or change)
            self._tidy(STEP)
        return changed

    def _tidy(self, rows: int) -> None:
        """Merge about so many rows of the shortest merge under way, then start what is due.

        The shortest first: else short runs pile up while a long merge goes on.
        """
        if self._merges:
            merge = min(self._merges, key=len)
            merge.add(self._write(merge.sources, merge.read_next(rows)))
            if merge.is_done():
                self._merges.remove(merge)
                self._replace(merge.sources, merge.rows(), merge.later)
        while due := self._runs_to_merge():
            if sum(len(run.key) for run in due) <= rows:
                self._replace(due, self._write(due, [run.part() for run in due]))
            else:
                self._merges.append(_Merge(due, self._types))

    def _runs_to_merge(self) -> list[Run]:
        """The last neighbours of similar length, or a run of which most is gone; not if being merged."""
        busy = {run.serial for merge in self._merges for run in merge.sources}
        similar, longest = list[Run](), 0
        for older in reversed(self._runs):
            if older.serial in busy:
                similar, longest = [], 0
                continue
            if older.is_mostly_gone(self.expired_before) and self._may_forget([older]):
                return [older]
            if older.size > 2 * longest:
                similar = []
            longest = max(longest, older.size) if similar else older.size
            similar.append(older)
            if len(similar) == _FAN:
                return similar[::-1]
        return []

    def _replace(
        self, sources: Sequence[Run], rows: Columns, later: Sequence[Callable[[Run], Run]] = ()
    ) -> None:
        """Put one run in place of several, with the changes made to them since they were read."""
        serials = {run.serial for run in sources}
        at = next((i for i, run in enumerate(self._runs) if run.serial in serials), 0)
        self._runs = [run for run in self._runs if run.serial not in serials]
        run = self._run(rows)
        for change in later:
            run = change(run)
        if run.size:
            self._runs.insert(at, run)

    def _write(self, sources: Sequence[Run], parts: Sequence[Columns]) -> Columns:
        """Parts of neighbouring runs as part of one run."""
        rows = self._merge_parts(parts)
        return self._drop_expired(rows) if self._may_forget(sources) else rows

    def _may_forget(self, sources: Sequence[Run]) -> bool:
        """Only the oldest run may drop what has expired if it would uncover what it replaced elsewhere."""
        return self._equal != "newest" or sources[0].serial == self._runs[0].serial

    def _merge_parts(self, parts: Sequence[Columns]) -> Columns:
        """Sorted parts as one, a copy; a stable sort merges them."""
        rows = self._join_parts(parts)
        return rows if len(parts) == 1 else self._sort_rows(rows, "stable")

    def _join_parts(self, parts: Collection[Columns]) -> Columns:
        return {
            name: np.concatenate([np.zeros(0, kind), *(part[name] for part in parts)])
            for name, kind in self._types.items()
        }

    def _drop_expired(self, rows: Columns) -> Columns:
        if self._expiry is None:
            return rows
        keep = rows[self._expiry] >= self.expired_before
        return rows if bool(keep.all()) else take_columns(rows, keep)

    def _sort_rows(self, rows: Columns, kind: Literal["stable"] | None = None) -> Columns:
        """Rows in order of their keys, equal ones put together."""
        name = self._keys[0]
        if len(rows) == 1:
            return {name: np.sort(rows[name], kind=kind)}
        # A stable sort merges runs; what is new is in any order.
        key = rows[name]
        rows = take_columns(rows, _order_fresh(key) if kind is None else key.argsort(kind=kind))
        if self._equal == "all":
            return rows
        is_tie: Mask = rows[name][1:] == rows[name][:-1]
        if len(self._keys) > 1 and bool(is_tie.any()):
            second = _sort_ties(rows, is_tie, self._keys[1])
            is_tie &= second[1:] == second[:-1]
        if self._equal == "newest":
            return take_columns(rows, np.append(~is_tie, True)[: len(rows[name])])
        return _sum_ties(rows, is_tie)


class _Merge:
    """Runs that are becoming one, from the least key on. ``later``: what was changed in them meanwhile."""

    def __init__(self, sources: list[Run], types: Mapping[str, npt.DTypeLike]) -> None:
        self.sources = sources
        self.later: list[Callable[[Run], Run]] = []
        self._at = [0] * len(sources)
        self._size = sum(run.size for run in sources)
        # Memory that is not written to takes no room.
        self._room = empty_columns(types, self._size)
        self._filled = 0

    def __len__(self) -> int:
        return self._size

    def read_next(self, rows: int) -> list[Columns]:
        """About so many rows of the sources, all those of a key together."""
        share = rows // len(self.sources)
        begun = list(zip(self.sources, self._at, strict=True))
        bounds = [run.key[at + share] for run, at in begun if at + share < len(run.key)]
        if bounds:
            self._at = [int(run.key.searchsorted(min(bounds), "right")) for run in self.sources]
        else:
            self._at = [len(run.key) for run in self.sources]
        return [run.part(at, to) for (run, at), to in zip(begun, self._at, strict=True)]

    def add(self, rows: Columns) -> None:
        """The next rows of the result."""
        start = self._filled
        for name, column in rows.items():
            self._filled = start + len(column)
            self._room[name][start : self._filled] = column

    def is_done(self) -> bool:
        """Whether all rows were read."""
        return all(at == len(run.key) for at, run in zip(self._at, self.sources, strict=True))

    def rows(self) -> Columns:
        """The result."""
        return {name: column[: self._filled] for name, column in self._room.items()}


def take_columns(rows: Columns, at: Index | Mask) -> Columns:
    """Some of the rows."""
    return {name: column[at] for name, column in rows.items()}


def _order_fresh(key: Column) -> Index:
    """How rows that came in any order are sorted."""
    if key.dtype == np.uint64:
        return order_of_hashes(key)
    return order_of(key) if key.dtype == np.int64 else key.argsort()


def _sort_ties(rows: Columns, is_tie: Mask, name: str) -> Column:
    """Sort rows that are alike in the first column of the key by the second, in place."""
    tied = (np.append(is_tie, False) | np.append(False, is_tie)).nonzero()[0]
    first = next(iter(rows))
    order = tied[np.lexsort((rows[name][tied], rows[first][tied]))]
    for column in rows.values():
        column[tied] = column[order]
    return rows[name]


def _sum_ties(rows: Columns, is_tie: Mask) -> Columns:
    """One row a key with its counts added up, without those that add up to zero."""
    if bool(is_tie.any()):
        first = np.append(True, ~is_tie).nonzero()[0]
        total = np.add.reduceat(rows["count"], first)
        return take_columns(rows, first[total != 0]) | {"count": total[total != 0]}
    is_there = rows["count"] != 0
    return rows if bool(is_there.all()) else take_columns(rows, is_there)
