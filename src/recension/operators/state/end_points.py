"""The times at which events of each group begin or end, with what holds from each to the next.

Of the past, only the state that lasts into the present is kept: after a CTI ``t`` a group has the end points
at or after ``t``, and the last one before it if events live there. A group without end points loses its
number once such groups are the majority.

`KeptMoments` keeps more of the past. A window of ``n`` moments that reaches up to the present begins at most
``n - 1`` moments before it; what lies further back is final and forgotten (rulings G7, G8).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.rowhash import Hashes
from recension.core.sorted_runs import Columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks
from recension.operators.state.block_table import BlockTable, Extract
from recension.operators.state.keys import KeyIndex
from recension.operators.state.time_queue import TimeQueue

_RETIRE_AT = 1024


class EndPoints:
    """Rows (group, time, n, ...), ``n`` counting live events; a key without columns is one group."""

    def __init__(self, columns: Mapping[str, npt.DTypeLike], key_schema: pa.Schema) -> None:
        self._table = BlockTable(columns)
        self._schema = key_schema
        self._keys = KeyIndex(key_schema) if len(key_schema) else None
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._table.clear()
        self._expiring = TimeQueue()
        self._points_of = self._held = np.zeros(0, np.int64)
        if self._keys is not None:
            self._keys.restore(self._keys.no_rows())

    def __len__(self) -> int:
        return len(self._table)

    def nbytes(self) -> int:
        """Memory taken by end points and keys."""
        keys = 0 if self._keys is None else self._keys.nbytes()
        return self._table.nbytes() + 16 * (len(self._expiring) + len(self._points_of)) + keys

    def number(self, keys: pa.RecordBatch, size: int) -> Index:
        """The group of each key row."""
        numbers = np.zeros(size, np.int64) if self._keys is None else self._keys.number(keys)
        missing = int(numbers.max(initial=-1)) + 1 - len(self._points_of)
        if missing > 0:
            self._points_of = np.append(self._points_of, np.zeros(missing, np.int64))
            self._held = np.append(self._held, np.full(missing, FOREVER))
        return numbers

    def keys_of(self, groups: Index) -> pa.RecordBatch:
        """The key rows of groups."""
        if self._keys is None:
            return pa.RecordBatch.from_arrays([], schema=self._schema)
        return self._keys.rows(groups)

    def group_hash(self, groups: Index) -> Hashes:
        """A hash of each group's key, which stays when numbers change."""
        return np.zeros(len(groups), np.uint64) if self._keys is None else self._keys.hashes(groups)

    def extract(self, group: Index, low: Ticks, high: Ticks) -> Extract:
        """The end points in and next to each segment, as `BlockTable.extract`."""
        return self._table.extract(group, low, high)

    def is_endless(self) -> bool:
        """Does an event of any group never end?"""
        groups = self.groups_in_use()
        ends = np.full(len(groups), FOREVER)
        return bool((self._table.extract(groups, ends, ends).columns["time"] == FOREVER).any())

    def replace(self, blocks: Index, columns: Columns, born: tuple[Index, Ticks], gone: Index) -> None:
        """Write an extract back; ``born``: (group, time) of new end points, ``gone``: groups of lost ones."""
        self._table.replace(blocks, columns)
        group, time = born
        np.add.at(self._points_of, group, 1)
        np.subtract.at(self._points_of, gone, 1)
        self._expiring.push(time[time < FOREVER], group[time < FOREVER])

    def forget_before(self, t: int) -> Index:
        """Drop the past of every group that has any; gives back those groups.

        The test stays strict (ruling B12): the end point at ``t`` may still go, and its left neighbour is
        then needed to merge with.
        """
        _, groups = self._pop_due(t)
        if not len(groups):
            return groups
        extract = self._extract_past(groups, t)
        group, time, n = (extract.columns[name] for name in ("group", "time", "n"))
        is_past = (time < t) & ~extract.follower
        next_is_past = np.append(is_past[1:] & (group[1:] == group[:-1]), False)
        lasts = is_past & ~next_is_past & (n > 0)
        gone = is_past & ~lasts
        self._held[group[is_past]] = FOREVER
        self._held[group[lasts]] = time[lasts]
        np.subtract.at(self._points_of, group[gone], 1)
        keep = ~gone & ~extract.follower
        self._table.replace(extract.blocks, {name: column[keep] for name, column in extract.columns.items()})
        return groups

    def _pop_due(self, t: int) -> tuple[Mask, Index]:
        """Whether each group has anything before ``t``; and the groups that have."""
        is_due = np.zeros(len(self._points_of), np.bool_)
        is_due[self._expiring.pop_before(t)[1]] = True
        return is_due, np.flatnonzero(is_due)

    def _extract_past(self, groups: Index, t: int) -> Extract:
        """All end points of groups before ``t``, and what lies next to them."""
        return self._table.extract(groups, np.full(len(groups), BEGINNING), np.full(len(groups), t))

    def groups_in_use(self) -> Index:
        """The groups that have end points."""
        return np.flatnonzero(self._points_of > 0)

    def earliest_held(self) -> int:
        """The first of the end points kept from before the last CTI, FOREVER if there is none."""
        return int(self._held.min(initial=FOREVER))

    def retire(self) -> Index | None:
        """Give up the numbers of groups without end points if they are the majority.

        The new number of each group, -1 for those given up; None when nothing changed.
        """
        in_use = self._points_of > 0
        if self._keys is None or len(in_use) < _RETIRE_AT or 2 * int(in_use.sum()) > len(in_use):
            return None
        numbers = self._keys.retire(in_use)
        renumber(self._table, numbers)
        self._expiring.renumber(numbers)
        self._points_of, self._held = self._points_of[in_use], self._held[in_use]
        return numbers

    def snapshot(self) -> Chunks:
        """The whole state as named Arrow tables."""
        groups = {"points": self._points_of.copy(), "held": self._held.copy()}
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
        self._points_of, self._held = (chunks["groups"][n].to_numpy().copy() for n in ("points", "held"))
        if self._keys is not None:
            rows = chunks["keys"].combine_chunks().to_batches()
            self._keys.restore(rows[0] if rows else self._keys.no_rows())


def renumber(table: BlockTable, numbers: Index) -> None:
    """Give the rows of a table the new numbers of their groups, which keep the order of the old."""
    rows = table.snapshot()
    table.restore(rows.set_column(0, "group", pa.array(numbers[rows["group"].to_numpy()])))


class KeptMoments(EndPoints):
    """Rows (group, time, n, ...), ``n`` counting the events at that moment alone."""

    def __init__(self, columns: Mapping[str, npt.DTypeLike], key_schema: pa.Schema) -> None:
        # What refers to a moment is what counts at it: there is nothing else to remember it for.
        super().__init__({name: kind for name, kind in columns.items() if name != "refs"}, key_schema)

    def around(self, group: Index, time: Ticks, rows: int) -> Extract:
        """The moments about each (group, time), at least ``rows`` before and after it."""
        return self._table.extract_around(group, time, rows)

    def forget(self, t: int, keep: int) -> tuple[Index, Ticks]:
        """Of each group's moments before ``t`` keep the last few; gives back (group, time) of the others."""
        is_due, groups = self._pop_due(t)
        if not len(groups):
            return groups, groups
        extract = self._extract_past(groups, t)
        own = {name: column[~extract.follower] for name, column in extract.columns.items()}
        past = np.flatnonzero((own["time"] < t) & is_due[own["group"]])
        group, time = own["group"][past], own["time"][past]
        from_end = np.searchsorted(group, group, "right") - np.arange(len(past))
        goes, stays = from_end > keep, from_end <= keep
        self._held[groups] = FOREVER
        np.minimum.at(self._held, group[stays], time[stays])
        np.subtract.at(self._points_of, group[goes], 1)
        rest = np.delete(np.arange(len(own["time"])), past[goes])
        self._table.replace(extract.blocks, {name: column[rest] for name, column in own.items()})
        return group[goes], time[goes]
