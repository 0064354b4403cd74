"""The times at which events of each group begin or end, with what holds from each to the next.

Of the past, only the state that lasts into the present is kept: after a CTI ``t`` a group has the end points
at or after ``t``, and the last one before it if events live there. A group without end points loses its
number once such groups are the majority.

`KeptMoments` keeps more of the past. A window of ``n`` moments that reaches up to the present begins at most
``n - 1`` moments before it; what lies further back is final and forgotten (rulings G7, G8).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.errors import StreamError
from recension.core.rowhash import Hashes
from recension.core.sorted_runs import Columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks
from recension.operators.state.arena import Arena
from recension.operators.state.block_table import sort_keys
from recension.operators.state.keys import KeyIndex
from recension.operators.state.leaf_table import LeafExtract, LeafTable, unique_numbers
from recension.operators.state.row_store import RowStore, drop_unused_rows
from recension.operators.state.time_queue import TimeQueue

Points: TypeAlias = tuple[Index, Ticks]
"""The group and the time of each."""

_RETIRE_AT = 1024
_SLACK = 1024  # payloads that may be kept for nothing
_ROW = 64  # groups whose earliest time is kept


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
        self._groups = Arena({"points": np.int64, "is_endless": np.bool_})
        self._held = GroupTimes()
        self._in_use = self._endless = 0
        if self._keys is not None:
            self._keys.restore(self._keys.no_rows())

    def __len__(self) -> int:
        return len(self._table)

    def nbytes(self) -> int:
        """Memory taken by end points and keys."""
        keys = 0 if self._keys is None else self._keys.nbytes()
        return self._table.nbytes() + 16 * (len(self._expiring) + len(self._groups)) + keys

    def number(self, keys: pa.RecordBatch, size: int) -> Index:
        """The group of each key row."""
        numbers = np.zeros(size, np.int64) if self._keys is None else self._keys.number(keys)
        groups = int(numbers.max(initial=-1)) + 1
        if groups > len(self._groups):
            none = np.zeros(groups - len(self._groups), np.int64)
            self._groups.append({"points": none, "is_endless": none})
            self._held.make_room(groups)
        return numbers

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
        return np.flatnonzero(self._groups["is_endless"]) if self._endless else np.zeros(0, np.int64)

    def replace(self, extract: LeafExtract, columns: Columns, born: Points, gone: Points) -> None:
        """Write an extract back, with the end points that are new and those that are gone."""
        self._table.replace(extract, columns)
        self._count(born[0], gone[0])
        for (group, time), is_endless in ((gone, False), (born, True)):
            endless = group[time == FOREVER]
            self._groups["is_endless"][endless] = is_endless
            self._endless += len(endless) if is_endless else -len(endless)
        group, time = born
        self._expiring.push(time[time < FOREVER], group[time < FOREVER])

    def forget_before(self, t: int) -> Index:
        """Drop the past of every group that has any; gives back those groups.

        The test stays strict (ruling B12): the end point at ``t`` may still go, and its left neighbour is
        then needed to merge with.
        """
        groups = self._pop_due(t)
        if not len(groups):
            return groups
        extract = self._extract_past(groups, t)
        group, time, n = (extract.columns[name] for name in ("group", "time", "n"))
        is_past = (time < t) & ~extract.follower
        next_is_past = np.append(is_past[1:] & (group[1:] == group[:-1]), False)
        lasts = is_past & ~next_is_past & (n > 0)
        gone = is_past & ~lasts
        self._hold(group[is_past], group[lasts], time[lasts])
        self._count(group[:0], group[gone])
        keep = ~gone & ~extract.follower
        self._table.replace(extract, {name: column[keep] for name, column in extract.columns.items()})
        return groups

    def _pop_due(self, t: int) -> Index:
        """The groups that have had end points before ``t`` since they were last asked for."""
        return unique_numbers(self._expiring.pop_before(t)[1])

    def _count(self, born: Index, gone: Index) -> None:
        """Groups have got end points and lost some."""
        points = self._groups["points"]
        if len(born) + len(gone) > len(points):
            points += np.bincount(born, minlength=len(points)) - np.bincount(gone, minlength=len(points))
            self._in_use = int(np.count_nonzero(points))
            return
        touched = unique_numbers(np.append(born, gone))
        before = int(np.count_nonzero(points[touched]))
        np.add.at(points, born, 1)
        np.subtract.at(points, gone, 1)
        self._in_use += int(np.count_nonzero(points[touched])) - before

    def _hold(self, groups: Index, held: Index, time: Ticks) -> None:
        """Of these groups, some hold an end point from before the CTI, the first at ``time``."""
        self._held.set(groups, np.full(len(groups), FOREVER))
        self._held.set(held, time)

    def _set_groups(self, points: Index, held: Ticks, endless: Index) -> None:
        self._groups, self._held = Arena({"points": np.int64, "is_endless": np.bool_}), GroupTimes()
        self._groups.append({"points": points, "is_endless": np.zeros(len(points), np.bool_)})
        self._groups["is_endless"][endless] = True
        self._held.make_room(len(held))
        self._held.set(np.arange(len(held)), held)
        self._in_use, self._endless = int(np.count_nonzero(points)), len(endless)

    def _extract_past(self, groups: Index, t: int) -> LeafExtract:
        """All end points of groups before ``t``, and what lies next to them."""
        return self._table.extract(groups, np.full(len(groups), BEGINNING), np.full(len(groups), t))

    def groups_in_use(self) -> Index:
        """The groups that have end points."""
        return np.flatnonzero(self._groups["points"])

    def earliest_held(self) -> int:
        """The first of the end points kept from before the last CTI, FOREVER if there is none."""
        return self._held.earliest_time()

    def retire(self) -> Index | None:
        """Give up the numbers of groups without end points if they are the majority.

        The new number of each group, -1 for those given up; None when nothing changed.
        """
        known = len(self._groups)
        if self._keys is None or known < _RETIRE_AT or 2 * self._in_use > known:
            return None
        points, held = self._groups["points"], self._held.times()
        in_use = points > 0
        numbers = self._keys.retire(in_use)
        self._table.renumber(numbers)
        self._expiring.renumber(numbers)
        self._set_groups(points[in_use], held[in_use], numbers[self.endless_groups()])
        return numbers

    def snapshot(self) -> Chunks:
        """The whole state as named Arrow tables."""
        groups = {"points": self._groups["points"].copy(), "held": self._held.times().copy()}
        chunks = {
            "points": self._table.snapshot(),
            "expiring": self._expiring.snapshot(),
            "groups": pa.table(groups),
        }
        return chunks | ({} if self._keys is None else {"keys": self._keys.snapshot()})

    def restore(self, chunks: Chunks) -> None:
        """Become the end points that `snapshot` gave."""
        self._table.restore(chunks["points"])
        self._expiring.restore(chunks["expiring"])
        group, time = (chunks["points"][name].to_numpy() for name in ("group", "time"))
        points, held = (chunks["groups"][name].to_numpy() for name in ("points", "held"))
        self._set_groups(points, held, group[time == FOREVER])
        if self._keys is not None:
            rows = chunks["keys"].combine_chunks().to_batches()
            self._keys.restore(rows[0] if rows else self._keys.no_rows())


class KeptMoments(EndPoints):
    """Rows (group, time, n, ...), ``n`` counting the events at that moment alone."""

    def __init__(self, columns: Mapping[str, npt.DTypeLike], key_schema: pa.Schema) -> None:
        # What refers to a moment is what counts at it: there is nothing else to remember it for.
        super().__init__({name: kind for name, kind in columns.items() if name != "refs"}, key_schema)

    def extract_around(self, group: Index, time: Ticks, rows: int) -> LeafExtract:
        """The moments about each (group, time), at least ``rows`` before and after it."""
        return self._table.extract_around(group, time, rows)

    def forget_all_but_last(self, t: int, keep: int) -> tuple[Index, Ticks]:
        """Of each group's moments before ``t`` keep the last few; gives back (group, time) of the others."""
        groups = self._pop_due(t)
        if not len(groups):
            return groups, groups
        extract = self._extract_past(groups, t)
        own = {name: column[~extract.follower] for name, column in extract.columns.items()}
        past = np.flatnonzero((own["time"] < t) & is_among(own["group"], groups))
        group, time = own["group"][past], own["time"][past]
        from_end = np.searchsorted(group, group, "right") - np.arange(len(past))
        goes, stays = from_end > keep, from_end <= keep
        first = np.flatnonzero(stays & ~np.append(False, stays[:-1] & (group[1:] == group[:-1])))
        self._hold(groups, group[first], time[first])
        self._count(group[:0], group[goes])
        rest = np.delete(np.arange(len(own["time"])), past[goes])
        self._table.replace(extract, {name: column[rest] for name, column in own.items()})
        return group[goes], time[goes]


class PointsWithPayloads(EndPoints, ABC):
    """End points whose column ``row`` names payloads in a `RowStore`; ``name`` is that of its chunks."""

    _max_rows_per_point = 2
    _row_columns: tuple[str, ...] = ("row",)

    def __init__(
        self, columns: Mapping[str, npt.DTypeLike], key_schema: pa.Schema, schema: pa.Schema, name: str
    ) -> None:
        self._store, self._name = RowStore(schema), name
        super().__init__(columns, key_schema)

    def clear(self) -> None:
        super().clear()
        self._store.clear()

    def nbytes(self) -> int:
        return super().nbytes() + self._store.nbytes()

    def payload(self, rows: Index) -> pa.RecordBatch:
        """Payloads of rows, also of those that have just gone."""
        return self._store.take(rows)

    def tidy(self) -> None:
        """Drop payloads when most of them are named by no column."""
        if len(self._store) > self._max_rows_per_point * len(self) + _SLACK:
            drop_unused_rows(self._store, self._table, *self._row_columns)

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
        return {**super().snapshot(), **self._store.snapshot(self._name)}

    def restore(self, chunks: Chunks) -> None:
        super().restore(chunks)
        self._store.restore(self._name, chunks)


class GroupTimes:
    """A time for each group, FOREVER unless it is set; finds the earliest without looking at all of them."""

    def __init__(self) -> None:
        self._groups = 0
        self._times = np.full((0, _ROW), FOREVER)
        self._earliest = np.full(0, FOREVER)

    def make_room(self, groups: int) -> None:
        """For so many groups; room doubles, so that this costs O(1) a group over time."""
        self._groups = groups
        if groups > self._times.size:
            more = -(-groups // _ROW) + len(self._times)
            self._times = np.concatenate([self._times, np.full((more, _ROW), FOREVER)])
            self._earliest = np.append(self._earliest, np.full(more, FOREVER))

    def set(self, groups: Index, times: Ticks) -> None:
        """Set the times of some groups."""
        self._times.reshape(-1)[groups] = times
        rows = unique_numbers(groups // _ROW)
        self._earliest[rows] = self._times[rows].min(axis=1)

    def earliest_time(self) -> int:
        """The earliest of all."""
        return int(self._earliest.min(initial=FOREVER))

    def times(self) -> Ticks:
        """All of them, by group."""
        return self._times.reshape(-1)[: self._groups]


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
    place = np.minimum(np.searchsorted(some, groups), len(some) - 1)
    found: Mask = some[place] == groups
    return found
