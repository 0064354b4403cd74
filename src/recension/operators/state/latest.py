"""The latest time that each group has seen; of groups that a time told to all has passed nothing is kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch
from recension.core.rowhash import Hashes, row_hash
from recension.core.ticks import BEGINNING, Ticks


class Latest:
    """Groups are known by their hashes."""

    def __init__(self) -> None:
        self.all = BEGINNING
        self._group = np.zeros(0, np.uint64)
        self._time = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._group)

    def nbytes(self) -> int:
        """Memory taken."""
        return 16 * len(self)

    def see(self, group: Hashes, time: Ticks) -> tuple[Hashes, Ticks]:
        """These times have been seen; the groups that saw them, and their latest."""
        seen, inverse = np.unique(group, return_inverse=True)
        latest = np.full(len(seen), self.all)
        np.maximum.at(latest, inverse, time)
        latest = np.maximum(latest, self.of(seen))
        at = np.searchsorted(self._group, seen)
        is_known = np.isin(seen, self._group)
        self._time[at[is_known]] = latest[is_known]
        fresh = np.flatnonzero(~is_known)
        self._group = np.insert(self._group, at[fresh], seen[fresh])
        self._time = np.insert(self._time, at[fresh], latest[fresh])
        return seen, latest

    def tell_all(self, t: int) -> None:
        """Every group has seen ``t``, those to come too."""
        self.all = max(self.all, t)
        later = self._time > self.all
        self._group, self._time = self._group[later], self._time[later]

    def of(self, group: Hashes) -> Ticks:
        """The latest time of each group."""
        if not len(self._group):
            return np.full(len(group), self.all)
        at = np.minimum(np.searchsorted(self._group, group), len(self._group) - 1)
        return np.where(self._group[at] == group, self._time[at], np.int64(self.all))

    def trace(self) -> tuple[int, ...]:
        """All that it remembers."""
        return self.all, *self._group.tolist(), *self._time.tolist()

    def snapshot(self) -> pa.Table:
        """The state; the first row is of all groups."""
        group = np.append(np.zeros(1, np.uint64), self._group)
        return pa.table({"group": group, "time": np.append(np.int64(self.all), self._time)})

    def restore(self, table: pa.Table) -> None:
        """Become what `snapshot` gave."""
        group, time = table["group"].to_numpy(), table["time"].to_numpy()
        self.all, self._group, self._time = int(time[0]), group[1:].copy(), time[1:].copy()


def group_hash(batch: EventBatch, by: Sequence[str]) -> Hashes:
    """What tells groups apart by the values of some columns; without columns all are one."""
    return row_hash(batch.payload.select(list(by))) if by else np.zeros(len(batch), np.uint64)
