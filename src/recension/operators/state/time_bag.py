"""A bag of times: a few sorted runs, each at least twice as long as the next."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.ticks import Ticks


class TimeBag:
    """Counts its times in an interval, and gives up the earliest."""

    def __init__(self) -> None:
        self._runs: list[Ticks] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def push(self, times: Ticks) -> None:
        """Add sorted times."""
        if not len(times):
            return
        self._runs.append(times)
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) >= len(self._runs[-2]):
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            merged.sort(kind="stable")
            self._runs.append(merged)

    def within(self, low: int, high: int) -> int:
        """How many are in ``[low, high)``."""
        return sum(int(np.diff(np.searchsorted(run, (low, high)))[0]) for run in self._runs)

    def pop_before(self, t: int) -> Ticks:
        """Take out the times before ``t``, in order."""
        return self._pop([int(np.searchsorted(run, t)) for run in self._runs])

    def pop_until(self, t: int) -> Ticks:
        """Take out the times up to ``t``, itself included, in order."""
        return self._pop([int(np.searchsorted(run, t, "right")) for run in self._runs])

    def _pop(self, cuts: list[int]) -> Ticks:
        due = [np.zeros(0, np.int64), *(run[:cut] for run, cut in zip(self._runs, cuts, strict=True))]
        # What is left shares its memory with what is taken out until it is merged, or is the lesser part.
        self._runs = [_own(run[cut:]) for run, cut in zip(self._runs, cuts, strict=True) if cut < len(run)]
        return np.sort(np.concatenate(due))

    def to_arrow(self) -> pa.Table:
        """All times."""
        return pa.table({"time": np.concatenate([np.zeros(0, np.int64), *self._runs])})

    def load(self, table: pa.Table) -> None:
        """Become what `to_arrow` gave."""
        self._runs = []
        self.push(np.sort(table["time"].to_numpy()))


def _own(run: Ticks) -> Ticks:
    """The run itself, as a copy once it is the lesser part of the memory it keeps."""
    whole = run.base
    return run.copy() if isinstance(whole, np.ndarray) and 2 * len(run) < len(whole) else run
