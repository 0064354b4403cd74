"""How far a stream has got: the latest time of each group, and of all, by the wall clock.

clock              10        12           17
latest time seen    40        55           90
5 ago, at clock 16:           ^ 12 is not yet 5 ago: the stream had reached 40
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch
from recension.core.rowhash import Hashes, row_hash
from recension.core.ticks import BEGINNING, Ticks

# How many steps within the length are kept apart: more would cost memory for every push.
_GRAINS: Final = 1 << 12
# A tuple of two integers.
_BYTES: Final = 128


class LatestTimes:
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

    def note_times(self, group: Hashes, time: Ticks) -> tuple[Hashes, Ticks]:
        """These times have been seen; the groups that saw them, and their latest."""
        seen, inverse = np.unique(group, return_inverse=True)
        latest = np.full(len(seen), self.all)
        np.maximum.at(latest, inverse, time)
        latest = np.maximum(latest, self.times_of(seen))
        at = self._group.searchsorted(seen)
        is_known = np.isin(seen, self._group)
        self._time[at[is_known]] = latest[is_known]
        fresh = (~is_known).nonzero()[0]
        self._group = np.insert(self._group, at[fresh], seen[fresh])
        self._time = np.insert(self._time, at[fresh], latest[fresh])
        return seen, latest

    def advance_all(self, t: int) -> None:
        """Every group has seen ``t``, those to come too."""
        self.all = max(self.all, t)
        later = self._time > self.all
        self._group, self._time = self._group[later], self._time[later]

    def times_of(self, group: Hashes) -> Ticks:
        """The latest time of each group."""
        if not len(self._group):
            return np.full(len(group), self.all)
        at = np.minimum(self._group.searchsorted(group), len(self._group) - 1)
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


class ClockHistory:
    """Remembers for ``length`` microseconds when the latest time seen grew. A clock set back stands still.

    Of the steps in the same 4096th part of the length only the last is kept. So an answer may be that much
    late, but never early.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._grain = max(1, length // _GRAINS)
        self._now = BEGINNING
        self._reached = BEGINNING
        self._steps: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._steps)

    def nbytes(self) -> int:
        """Memory taken."""
        return _BYTES * len(self._steps)

    @property
    def time_reached(self) -> int:
        """Where the stream had got to ``length`` before the clock's last reading."""
        return self._reached

    def tick(self, now: int) -> int:
        """The clock shows ``now``; where the stream had got to ``length`` before."""
        self._now = max(self._now, now)
        while self._steps and self._steps[0][0] + self._length <= self._now:
            self._reached = self._steps.popleft()[1]
        return self._reached

    def note(self, latest: int) -> None:
        """The stream has got to ``latest`` by the clock's last reading."""
        if latest <= (self._steps[-1][1] if self._steps else self._reached):
            return
        if self._steps and self._steps[-1][0] // self._grain == self._now // self._grain:
            self._steps.pop()
        self._steps.append((self._now, latest))

    def trace(self) -> tuple[int, ...]:
        """All that it remembers."""
        return self._reached, *(moment for step in self._steps for moment in step)

    def snapshot(self) -> pa.Table:
        """The state; the first row is the clock's last reading, with what was reached in time."""
        rows = [(self._now, self._reached), *self._steps]
        at, latest = (pa.array(column, pa.int64()) for column in zip(*rows, strict=True))
        return pa.table({"at": at, "latest": latest})

    def restore(self, table: pa.Table) -> None:
        """Become what `snapshot` gave."""
        rows = zip(table["at"].to_pylist(), table["latest"].to_pylist(), strict=True)
        (self._now, self._reached), *steps = rows
        self._steps = deque(steps)
