"""The sessions of each group that are not final.

A session is a row at its first start: its latest end, how many events it has, what they add up to. That is
all that inserts need: what they reach becomes one session, and its sums are added up.
"""

from __future__ import annotations

import numpy as np

from recension.core.batch import Index
from recension.core.sorted_runs import Columns, take_columns
from recension.core.ticks import FOREVER, Ticks
from recension.operators.state.end_points import EndPoints, Points, is_among
from recension.operators.state.leaf_table import LeafExtract, unique_numbers


class SessionRows(EndPoints):
    """Rows (group, time, end, n, ...), one a session."""

    def replace(self, extract: LeafExtract, columns: Columns, born: Points, gone: Points) -> None:
        """Write an extract back. Of the sessions that are new and of those that are gone, group and end."""
        super().replace(extract, columns, born, gone)
        groups = extract.leaves
        if len(extract.blocks):
            groups = unique_numbers(np.concatenate([groups, born[0], gone[0]]))
        self._hold_first(groups)

    def _hold_first(self, groups: Index) -> None:
        self._held.set(groups, self._table.first_times(groups))

    def look_again(self, time: Ticks, group: Index) -> None:
        """Groups that `forget_until` is to give when it has come to a time."""
        self._expiring.push(time, group)

    def forget_until(self, t: int) -> tuple[Index, Columns]:
        """Drop the sessions that end by ``t``; gives the groups that were looked at, and those sessions."""
        groups = unique_numbers(self._expiring.pop_until(t)[1])
        extract = self._extract_past(groups, t, ("group", "time", "end"))
        columns = extract.columns
        if not len(groups):
            return groups, columns
        is_gone = (columns["end"] <= t) & ~extract.follower & is_among(columns["group"], groups)
        self._table.forget(extract, is_gone)
        self._count(groups)
        self._hold_first(groups)
        return groups, take_columns(columns, is_gone)

    def _recount(self, groups: Index, endless: Index) -> None:
        """The last session of a group is the one that may never end."""
        last = np.full(len(groups), FOREVER)
        found = self._table.extract(groups, last, last).columns
        is_endless = self._is_endless["is"]
        self._endless -= int(np.count_nonzero(is_endless[groups]))
        self._counts.set(groups, self._table.count_rows(groups))
        is_endless[groups] = np.isin(groups, found["group"][found["end"] == FOREVER])
        self._endless += int(np.count_nonzero(is_endless[groups]))
