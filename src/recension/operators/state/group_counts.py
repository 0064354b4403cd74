"""How many rows each group has, and which groups have none: their numbers are to spare."""

from __future__ import annotations

from typing import Final

import numpy as np

from recension.core.batch import Index
from recension.operators.state.arena import Arena
from recension.operators.state.leaf_table import unique_numbers

_PAGE: Final = 256
_REUSE_AT: Final = 1024


class GroupCounts:
    """Counts by group; the first groups without rows are found without looking at all of them."""

    def __init__(self) -> None:
        self._rows = Arena({"rows": np.int64})
        # How many groups of each page of numbers have no rows.
        self._idle = np.zeros(0, np.int64)
        self.in_use = 0

    def __len__(self) -> int:
        return len(self._rows)

    def make_room(self, groups: int) -> None:
        """For so many groups."""
        known = len(self)
        self._rows.append({"rows": np.zeros(groups - known, np.int64)})
        pages = -(-groups // _PAGE)
        if pages > len(self._idle):
            self._idle = np.append(self._idle, np.zeros(pages, np.int64))
        first, last = known // _PAGE, (groups - 1) // _PAGE
        starts = np.arange(first, last + 1) * _PAGE
        self._idle[first : last + 1] += np.minimum(starts + _PAGE, groups) - np.maximum(starts, known)

    def set(self, groups: Index, counts: Index) -> None:
        """Some groups, each named once, have so many rows now."""
        rows = self._rows["rows"]
        had, has = rows[groups] > 0, counts > 0
        rows[groups] = counts
        at = (had != has).nonzero()[0]
        if len(at):
            step = 2 * has[at].astype(np.int64) - 1
            self.in_use += int(step.sum())
            np.subtract.at(self._idle, groups[at] // _PAGE, step)

    def groups_in_use(self) -> Index:
        """The groups that have rows."""
        return np.flatnonzero(self._rows["rows"])

    def find_spare(self, count: int, taken: Index) -> Index:
        """The first groups without rows, up to so many, if such groups are the majority; none of those taken.

        Which ones depends on nothing but the counts, so that a stream that is restored numbers as before.
        """
        rows = self._rows["rows"]
        if len(rows) < _REUSE_AT or 2 * self.in_use > len(rows):
            return taken[:0]
        taken = unique_numbers(taken.take((rows.take(taken) == 0).nonzero()[0]))
        pages = np.flatnonzero(self._idle)
        enough = int(np.searchsorted(np.cumsum(self._idle[pages]), count + len(taken))) + 1
        groups = (pages[:enough, None] * _PAGE + np.arange(_PAGE)).reshape(-1)
        groups = groups[: int(groups.searchsorted(len(rows)))]
        groups = groups.take((rows.take(groups) == 0).nonzero()[0])[: count + len(taken)]
        # All that are taken, as far as these pages go, are among them.
        spare: Index = np.delete(groups, np.searchsorted(groups, taken[taken <= groups[-1:]]))[:count]
        return spare

    def is_forgettable(self) -> bool:
        """Were there many groups, none of which is in use?"""
        return len(self) >= _REUSE_AT and not self.in_use
