"""How many elements have come, by sync time: a few sorted runs, each at least twice as long as the next."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.ticks import Ticks


class SyncTimes:
    """A bag of times."""

    def __init__(self) -> None:
        self._runs: list[Ticks] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def push(self, times: Ticks) -> None:
        """Elements with these sync times, sorted, have come."""
        if not len(times):
            return
        self._runs.append(times)
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) >= len(self._runs[-2]):
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            merged.sort(kind="stable")
            self._runs.append(merged)

    def within(self, low: int, high: int) -> int:
        """How many have a time in ``[low, high)``."""
        return sum(int(np.diff(np.searchsorted(run, (low, high)))[0]) for run in self._runs)

    def forget_before(self, t: int) -> None:
        """Forget what is before ``t``."""
        cuts = [(run, int(np.searchsorted(run, t))) for run in self._runs]
        # What is forgotten is freed when what is left is merged with what comes.
        self._runs = [run[cut:] for run, cut in cuts if cut < len(run)]

    def to_arrow(self) -> pa.Table:
        """All times."""
        return pa.table({"time": np.concatenate([np.zeros(0, np.int64), *self._runs])})

    def load(self, table: pa.Table) -> None:
        """Become what `to_arrow` gave."""
        self._runs = []
        self.push(np.sort(table["time"].to_numpy()))
