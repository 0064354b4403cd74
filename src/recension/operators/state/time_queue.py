"""Times that are taken out as time passes: things to look at again, and bags of times."""

from __future__ import annotations

import numpy as np

from recension.core.batch import Index
from recension.core.sorted_runs import Columns, SortedRuns
from recension.core.ticks import Ticks


class TimeQueue(SortedRuns):
    """Pairs (time, group): look at the group when its time has come.

    Pairs may repeat, and may no longer matter when they come out: the taker looks.
    """

    def __init__(self) -> None:
        super().__init__({"time": np.int64, "group": np.int64})

    def pop_before(self, t: int) -> tuple[Ticks, Index]:
        """Take out every pair with a time before ``t``."""
        out = self.pop(t)
        return out["time"], out["group"]

    def pop_until(self, t: int) -> tuple[Ticks, Index]:
        """Take out every pair with a time at or before ``t``."""
        out = self.pop(t, "right")
        return out["time"], out["group"]

    def renumber(self, new_groups: Index) -> None:
        """Groups got new numbers; -1 means the group is gone."""

        def renumber_rows(rows: Columns) -> Columns:
            groups = new_groups[rows["group"]]
            return {"time": rows["time"][groups >= 0], "group": groups[groups >= 0]}

        self.rewrite(renumber_rows)


class TimeBag(SortedRuns):
    """A bag of times; counts those in an interval, and gives up the earliest."""

    def __init__(self) -> None:
        super().__init__({"time": np.int64})

    def count_within(self, low: int, high: int) -> int:
        """How many are in ``[low, high)``."""
        return sum(int(np.diff(np.searchsorted(run.key, (low, high)))[0]) for run in self)

    def pop_before(self, t: int) -> Ticks:
        """Take out the times before ``t``, in order."""
        return np.sort(self.pop(t)["time"])

    def pop_until(self, t: int) -> Ticks:
        """Take out the times up to ``t``, itself included, in order."""
        return np.sort(self.pop(t, "right")["time"])
