"""The sessions of each group that are not final, with their sums; and the points at which one may split.

A session is a row at its first start: its latest end, how many events it has, what they add up to. That is
all that inserts need: what they reach becomes one session, and its sums are added up.

Retractions can split a session. For them there are also the points of time at which its events begin or end,
each with what begins there and how many events end there:

    events         |------|      |----|
                       |-------------------|
    points         1   1  -1     1    -1   -1      alive: summed up from the right
                   a   b         c                 what each start adds to the sums

Nothing splits before the CTI, less the gap: points up to there go. The part of a session that reaches back
beyond them is what all of it adds up to, less what its later parts do.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index
from recension.core.sorted_runs import Columns, take_columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks
from recension.operators.state.end_points import EndPoints, Points, is_among
from recension.operators.state.leaf_table import LeafExtract, LeafTable, unique_numbers


class SessionRows(EndPoints):
    """Rows (group, time, end, n, ...), and points (group, time, n, ends, ...) if events may be taken back."""

    def __init__(
        self, columns: Mapping[str, npt.DTypeLike], key_schema: pa.Schema, *, insert_only: bool
    ) -> None:
        self.points = None if insert_only else LeafTable({"ends": np.int64, **columns})
        super().__init__({"end": np.int64, **columns}, key_schema)

    def clear(self) -> None:
        super().clear()
        if self.points is not None:
            self.points.clear()

    def __len__(self) -> int:
        return super().__len__() + (0 if self.points is None else len(self.points))

    def nbytes(self) -> int:
        return super().nbytes() + (0 if self.points is None else self.points.nbytes())

    def replace(self, extract: LeafExtract, columns: Columns, born: Points, gone: Points) -> None:
        """Write an extract back. Of the sessions that are new and of those that are gone, group and end."""
        super().replace(extract, columns, born, gone)
        self._hold_first(unique_numbers(np.concatenate([extract.leaves, born[0], gone[0]])))

    def _hold_first(self, groups: Index) -> None:
        self._held.set(groups, self._table.first_times(groups))

    def look_again(self, time: Ticks, group: Index) -> None:
        """Points of these groups may go when the time has come."""
        self._expiring.push(time, group)

    def forget_until(self, t: int) -> Columns:
        """Drop the sessions that end by ``t``, and all points up to there; gives those sessions."""
        groups = unique_numbers(self._expiring.pop_until(t)[1])
        if self.points is not None and len(groups):
            _trim(self.points, groups, t)
        extract = self._extract_past(groups, t, ("group", "time", "end"))
        columns = extract.columns
        if not len(groups):
            return columns
        is_gone = (columns["end"] <= t) & ~extract.follower & is_among(columns["group"], groups)
        self._table.forget(extract, is_gone)
        self._count(groups)
        self._hold_first(groups)
        return take_columns(columns, is_gone)

    def snapshot(self) -> Chunks:
        return {**super().snapshot(), **({} if self.points is None else {"inside": self.points})}

    def restore(self, chunks: Chunks) -> None:
        super().restore(chunks)
        if self.points is not None:
            self.points.restore(chunks["inside"])

    def _recount(self, groups: Index, endless: Index) -> None:
        """The last session of a group is the one that may never end."""
        last = np.full(len(groups), FOREVER)
        found = self._table.extract(groups, last, last).columns
        is_endless = self._is_endless["is"]
        self._endless -= int(np.count_nonzero(is_endless[groups]))
        self._counts.set(groups, self._table.count_rows(groups))
        is_endless[groups] = np.isin(groups, found["group"][found["end"] == FOREVER])
        self._endless += int(np.count_nonzero(is_endless[groups]))


def _trim(points: LeafTable, groups: Index, t: int) -> None:
    """Take out the points of groups up to ``t``."""
    leaves, long = points.part_groups(groups)
    if len(leaves):
        points.trim(leaves, points.look_before(leaves, t + 1)[0])
    if len(long):
        extract = points.extract(long, np.full(len(long), BEGINNING), np.full(len(long), t))
        columns = extract.columns
        is_past = (columns["time"] <= t) & ~extract.follower & is_among(columns["group"], long)
        points.forget(extract, is_past)
