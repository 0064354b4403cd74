"""The times at which events of each group begin or end, with what holds from each to the next.

Of the past, only the state that lasts into the present is kept: after a CTI ``t`` a group has the end points
at or after ``t``, and the last one before it if events live there. The number of a group without end points
goes to a new one once such groups are the majority.

`KeptMoments` keeps more of the past. A window of ``n`` moments that reaches up to the present begins at most
``n - 1`` moments before it; what lies further back is final and forgotten (rulings G7, G8).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.change_log import Change
from recension.core.errors import StreamError
from recension.core.rowhash import Hashes
from recension.core.sorted_runs import Columns, take_columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks
from recension.operators.state.arena import Arena
from recension.operators.state.block_table import sort_keys
from recension.operators.state.group_counts import GroupCounts
from recension.operators.state.keys import KeyIndex
from recension.operators.state.leaf_table import LeafExtract, LeafTable, unique_numbers
from recension.operators.state.row_store import RowStore
from recension.operators.state.time_queue import TimeQueue

Points: TypeAlias = tuple[Index, Ticks]
"""The group and the time of each."""

_ROW = 16  # groups whose earliest time is kept
_AT_ONCE = 1 << 13


class EndPoints:
    """Rows (group, time, n, ...), ``n`` counting live events; a key without columns is one group."""

    def __init__(self, columns: Mapping[str, npt.DTypeLike], key_schema: pa.Schema) -> None:
        self._table = LeafTable(columns)
        self._schema = key_schema
        self._keys = KeyIndex(key_schema) if len(key_schema) else None
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._table.clear()
        self._expiring = TimeQueue()
        self._counts, self._held = GroupCounts(), GroupTimes()
        self._is_endless, self._endless = Arena({"is": np.bool_}), 0
        self._born = 0  # end points that came since the last CTI
        if self._keys is not None:
            self._keys.clear()

    @property
    def table(self) -> LeafTable:
        """Where they are kept."""
        return self._table

    def __len__(self) -> int:
        return len(self._table)

    def nbytes(self) -> int:
        """Memory taken by end points and keys."""
        keys = 0 if self._keys is None else self._keys.nbytes()
        return self._table.nbytes() + 16 * (len(self._expiring) + len(self._counts)) + keys

    def number(self, keys: pa.RecordBatch, size: int) -> Index:
        """The group of each key row."""
        if self._keys is None:
            numbers = np.zeros(size, np.int64)
        else:
            numbers = self._keys.number(keys, self._counts.find_spare)
        self._make_room(int(numbers.max(initial=-1)) + 1)
        return numbers

    def _make_room(self, groups: int) -> None:
        if groups > len(self._counts):
            self._is_endless.append({"is": np.zeros(groups - len(self._counts), np.bool_)})
            self._counts.make_room(groups)
            self._held.make_room(groups)

    def keys_of(self, groups: Index) -> pa.RecordBatch:
        """The key rows of groups."""
        if self._keys is None:
            return pa.RecordBatch.from_arrays([], schema=self._schema)
        return self._keys.rows(groups)

    def group_hash(self, groups: Index) -> Hashes:
        """A hash of each group's key, which stays when numbers change."""
        return np.zeros(len(groups), np.uint64) if self._keys is None else self._keys.hashes(groups)

    def extract(self, group: Index, low: Ticks, high: Ticks) -> LeafExtract:
        """The end points in and next to each segment, as `LeafTable.extract`."""
        return self._table.extract(group, low, high)

    def is_endless(self) -> bool:
        """Does an event of any group never end?"""
        return self._endless > 0

    def endless_groups(self) -> Index:
        """The groups with an event that never ends."""
        return self._is_endless["is"].nonzero()[0] if self._endless else np.zeros(0, np.int64)

    def replace(self, extract: LeafExtract, columns: Columns, born: Points, gone: Points) -> None:
        """Write an extract back, with the end points that are new and those that are gone."""
        self._table.replace(extract, columns)
        if not len(born[0]) and not len(gone[0]):
            return
        groups = extract.leaves
        if len(extract.blocks):
            groups = unique_numbers(np.concatenate([groups, born[0], gone[0]]))
        self._count(groups)
        self._mark_endless(gone, False)
        self._born += len(born[0])
        self._expiring.push(*reversed(self._mark_endless(born, True)))

    def _count(self, groups: Index) -> None:
        """End points of these groups have come or gone."""
        self._counts.set(groups, self._table.count_rows(groups))

    def _mark_endless(self, points: Points, is_endless: bool) -> Points:
        """End points at the end of time have come or gone; the others of these."""
        group, time = points
        at_end = time == FOREVER
        if not bool(at_end.any()):
            return points
        endless = group[at_end]
        self._is_endless["is"][endless] = is_endless
        self._endless += len(endless) if is_endless else -len(endless)
        return group[~at_end], time[~at_end]

    def forget_before(self, t: int) -> Index:
        """Drop the past of every group that has any; gives back those groups.

        The test stays strict (ruling B12): the end point at ``t`` may still go, and its left neighbour is
        then needed to merge with.
        """
        return self._forget(self._pop_due(t), t)

    def forget_some_before(self, t: int) -> None:
        """The same, but not of more groups at once than end points came since, or a few thousand.

        For an axis on which all groups have their end points at the same times, if nobody asks what is held.
        """
        most, self._born = max(_AT_ONCE, 2 * self._born), 0
        self._forget(unique_numbers(self._expiring.pop_some(t, most)), t)

    def _forget(self, groups: Index, t: int) -> Index:
        leaves, long = self._table.part_groups(groups)
        if len(leaves):
            self._trim_leaves(leaves, t)
        if len(long):
            self._trim_long(long, t)
        return groups

    def _trim_leaves(self, groups: Index, t: int) -> None:
        past, time, n = self._table.look_before(groups, t)
        is_held = (past > 0) & (n > 0)
        self._held.set(groups, np.where(is_held, time, FOREVER))
        self._table.trim(groups, past - is_held)
        self._count(groups)

    def _trim_long(self, groups: Index, t: int) -> None:
        extract = self._extract_past(groups, t)
        group, time, n = (extract.columns[name] for name in ("group", "time", "n"))
        # Blocks hold groups besides these, which are not counted below.
        is_past = (time < t) & ~extract.follower & is_among(group, groups)
        next_is_past = np.append(is_past[1:] & (group[1:] == group[:-1]), False)
        lasts = is_past & ~next_is_past & (n > 0)
        self._hold(group[is_past], group[lasts], time[lasts])
        self._table.forget(extract, is_past & ~lasts)
        self._count(groups)

    def _pop_due(self, t: int) -> Index:
        """The groups that have had end points before ``t`` since they were last asked for."""
        return unique_numbers(self._expiring.pop_before(t)[1])

    def _hold(self, groups: Index, held: Index, time: Ticks) -> None:
        """Of these groups, some hold an end point from before the CTI, the first at ``time``."""
        groups = unique_numbers(groups)
        times = np.full(len(groups), FOREVER)
        times[groups.searchsorted(held)] = time
        self._held.set(groups, times)

    def _extract_past(self, groups: Index, t: int, names: Collection[str] | None = None) -> LeafExtract:
        """All end points of groups before ``t``, and what lies next to them."""
        return self._table.extract(groups, np.full(len(groups), BEGINNING), np.full(len(groups), t), names)

    def groups_in_use(self) -> Index:
        """The groups that have end points."""
        return self._counts.groups_in_use()

    def earliest_held(self) -> int:
        """The first of the end points kept from before the last CTI, FOREVER if there is none."""
        return self._held.earliest_time()

    def retire(self) -> bool:
        """Forget all groups if there were many and none has end points; was that so?"""
        is_due = self._keys is not None and self._counts.is_forgettable()
        if is_due:
            self.clear()
        return is_due

    def snapshot(self) -> Chunks:
        """The whole state, as stores that are logged."""
        chunks = {"points": self._table, "expiring": self._expiring, "held": self._held}
        return chunks | ({} if self._keys is None else {"keys": self._keys})

    def restore(self, chunks: Chunks) -> None:
        """Become the end points that `snapshot` gave, or take over changes."""
        points = chunks["points"]
        self._table.restore(points)
        self._expiring.restore(chunks["expiring"])
        self._held.restore(chunks["held"])
        if self._keys is not None:
            self._keys.restore(chunks["keys"])
        if not isinstance(points, Change) or points.is_whole:
            self._counts = GroupCounts()
            self._is_endless, self._endless = Arena({"is": np.bool_}), 0
        rows = (points.rows, points.gone) if isinstance(points, Change) else (points,)
        group, time = (np.concatenate([part[name].to_numpy() for part in rows]) for name in LeafTable.key)
        # Without keys there is one group, which may be looked at again though it has no end points.
        self._make_room(max(1, int(group.max(initial=-1)) + 1) if self._keys is None else len(self._keys))
        if len(group):
            self._recount(unique_numbers(group), group[time == FOREVER])

    def _recount(self, groups: Index, endless: Index) -> None:
        """The end points of these groups have changed in the table, of some of them the one at FOREVER."""
        is_endless = self._is_endless["is"]
        self._endless -= int(np.count_nonzero(is_endless[groups]))
        self._counts.set(groups, self._table.count_rows(groups))
        endless, last = unique_numbers(endless), np.full(len(endless), FOREVER)
        found = self._table.extract(endless, last, last).columns
        is_endless[endless] = np.isin(endless, found["group"][found["time"] == FOREVER])
        self._endless += int(np.count_nonzero(is_endless[groups]))


class KeptMoments(EndPoints):
    """Rows (group, time, n, ...), ``n`` counting the events at that moment alone."""

    def __init__(self, columns: Mapping[str, npt.DTypeLike], key_schema: pa.Schema) -> None:
        # What refers to a moment is what counts at it: there is nothing else to remember it for.
        super().__init__({name: kind for name, kind in columns.items() if name != "refs"}, key_schema)

    def extract_around(self, group: Index, time: Ticks, rows: int) -> LeafExtract:
        """The moments about each (group, time), at least ``rows`` before and after it."""
        return self._table.extract_around(group, time, rows)

    def forget_all_but_last(self, t: int, keep: int, names: Collection[str] = ()) -> Columns:
        """Of each group's moments before ``t`` keep the last few; gives the others: group, time, …."""
        groups = self._pop_due(t)
        extract = self._extract_past(groups, t, ("group", "time", *names))
        columns = extract.columns
        if not len(groups):
            return columns
        past = ((columns["time"] < t) & ~extract.follower & is_among(columns["group"], groups)).nonzero()[0]
        group, time = columns["group"][past], columns["time"][past]
        from_end = group.searchsorted(group, "right") - np.arange(len(past))
        goes, stays = from_end > keep, from_end <= keep
        first = (stays & ~np.append(False, stays[:-1] & (group[1:] == group[:-1]))).nonzero()[0]
        self._hold(groups, group[first], time[first])
        gone = np.zeros(len(columns["time"]), np.bool_)
        gone[past[goes]] = True
        self._table.forget(extract, gone)
        self._count(groups)
        return take_columns(columns, gone)


class PointsWithPayloads(EndPoints, ABC):
    """End points whose column ``row`` names payloads in a `RowStore`; ``name`` is that of its chunks."""

    def __init__(
        self, columns: Mapping[str, npt.DTypeLike], key_schema: pa.Schema, schema: pa.Schema, name: str
    ) -> None:
        self._store, self._name = RowStore(schema), name
        # Payloads that no end point names any more; what is put out may still show them.
        self._unnamed: list[Index] = []
        super().__init__(columns, key_schema)

    def clear(self) -> None:
        super().clear()
        self._store.clear()
        self._unnamed = []

    def nbytes(self) -> int:
        return super().nbytes() + self._store.nbytes()

    def payload(self, rows: Index) -> pa.RecordBatch:
        """Payloads of rows, also of those that have just gone."""
        return self._store.take(rows)

    def tidy(self) -> None:
        """Drop payloads that are named no more."""
        for rows in self._unnamed:
            self._store.drop(rows)
        self._unnamed = []

    def advance(self, t: int) -> None:
        """A CTI has come to ``t``: forget what no change after it can make matter again."""
        if t == FOREVER:
            self.clear()
            return
        self._forget_past(t)
        self.retire()
        self.tidy()

    @abstractmethod
    def _forget_past(self, t: int) -> None:
        """Drop end points, not payloads."""

    def snapshot(self) -> Chunks:
        return {**super().snapshot(), f"{self._name}/rows": self._store}

    def restore(self, chunks: Chunks) -> None:
        super().restore(chunks)
        self._store.restore(chunks[f"{self._name}/rows"])


class GroupTimes:
    """A time for each group, FOREVER unless it is set; finds the earliest without looking at all of them."""

    key: Final = ("group",)

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._groups = self._size = 0
        self._times = np.full((0, _ROW), FOREVER)
        self._earliest = np.full(0, FOREVER)
        # Groups whose time was set since the last checkpoint; None: all may have been.
        self._changed: list[Index] | None = None

    def __len__(self) -> int:
        """How many are set."""
        return self._size

    def make_room(self, groups: int) -> None:
        """For so many groups; room doubles, so that this costs O(1) a group over time."""
        self._groups = groups
        if groups > self._times.size:
            more = -(-groups // _ROW) + len(self._times)
            self._times = np.concatenate([self._times, np.full((more, _ROW), FOREVER)])
            self._earliest = np.append(self._earliest, np.full(more, FOREVER))

    def set(self, groups: Index, times: Ticks) -> None:
        """Set the times of some groups, which are distinct, where they are others."""
        every = self._times.reshape(-1)
        before = every[groups]
        other = (before != times).nonzero()[0]
        groups, times, before = groups[other], times[other], before[other]
        every[groups] = times
        self._size += int(np.count_nonzero(before == FOREVER)) - int(np.count_nonzero(times == FOREVER))
        rows = unique_numbers(groups // _ROW)
        self._earliest[rows] = self._times[rows].min(axis=1)
        if self._changed is not None:
            self._changed.append(groups)

    def earliest_time(self) -> int:
        """The earliest of all."""
        return int(self._earliest.min(initial=FOREVER))

    def times(self) -> Ticks:
        """All of them, by group."""
        return self._times.reshape(-1)[: self._groups]

    def snapshot(self) -> pa.Table:
        """The times that are set."""
        return self._rows_of((self.times() < FOREVER).nonzero()[0])

    def _rows_of(self, groups: Index) -> pa.Table:
        return pa.table({"group": groups, "time": self.times()[groups]})

    def restore(self, table: pa.Table | Change) -> None:
        """Become what `snapshot` gave, or take over changes."""
        is_change = isinstance(table, Change)
        rows: pa.Table = table.rows if isinstance(table, Change) else table
        groups, times = (rows[name].to_numpy() for name in ("group", "time"))
        if isinstance(table, Change) and not table.is_whole:
            gone = table.gone["group"].to_numpy()
            groups, times = np.append(groups, gone), np.append(times, np.full(len(gone), FOREVER))
        else:
            self.clear()
        self.make_room(max(self._groups, int(groups.max(initial=-1)) + 1))
        self.set(groups, times)
        self._changed = [] if is_change else None

    def take_changes(self, version: int) -> Change:
        """See `Logged.take_changes`."""
        changed, self._changed = self._changed, []
        is_whole = changed is None
        groups = (self.times() < FOREVER).nonzero()[0] if changed is None else _unite_numbers(changed)
        is_set = self.times()[groups] < FOREVER
        return Change(self._rows_of(groups[is_set]), pa.table({"group": groups[~is_set]}), is_whole)

    def find_current(self, change: Change, version: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        group, gone = (table["group"].to_numpy() for table in (change.rows, change.gone))
        self.make_room(max(self._groups, int(max(group.max(initial=-1), gone.max(initial=-1))) + 1))
        return self.times()[group] == change.rows["time"].to_numpy(), self.times()[gone] == FOREVER


def _unite_numbers(parts: list[Index]) -> Index:
    return unique_numbers(np.concatenate([np.zeros(0, np.int64), *parts]))


def align_moments(kept: Columns, group: Index, time: Ticks) -> tuple[Index, Ticks, Index, Index]:
    """The distinct (group, time) of kept rows and of changes, in order; and where both stand there."""
    groups, times = [kept["group"], group], [kept["time"], time]
    keys = np.concatenate(sort_keys(groups, times))
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    size = len(kept["time"])
    return np.concatenate(groups)[first], np.concatenate(times)[first], place[:size], place[size:]


def never_inserted_error() -> StreamError:
    """The error of a retraction without its event."""
    return StreamError("an event was retracted that had never been inserted")


def is_among(groups: Index, some: Index) -> Mask:
    """Which of the groups are among ``some``, which are sorted."""
    place = np.minimum(some.searchsorted(groups), len(some) - 1)
    found: Mask = some[place] == groups
    return found
