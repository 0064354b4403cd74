"""Things to look at again when time has passed: (time, group) pairs, taken out in order of time.

Kept as a few sorted runs, each at least twice as long as the next.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from recension.core.batch import Index
from recension.core.ticks import Ticks


class TimeQueue:
    """Pairs may repeat, and may no longer matter when they come out: the taker looks."""

    def __init__(self) -> None:
        self._runs: list[tuple[Ticks, Index]] = []

    def __len__(self) -> int:
        return sum(len(times) for times, _ in self._runs)

    def push(self, times: Ticks, groups: Index) -> None:
        """Remember to look at each group when its time has come."""
        if not len(times):
            return
        self._runs.append(_sorted(times, groups))
        while len(self._runs) > 1 and 2 * len(self._runs[-1][0]) >= len(self._runs[-2][0]):
            (t1, g1), (t2, g2) = self._runs.pop(), self._runs.pop()
            # Two sorted runs: a stable sort merges them.
            self._runs.append(_sorted(np.concatenate([t2, t1]), np.concatenate([g2, g1]), "stable"))

    def pop_before(self, t: int) -> tuple[Ticks, Index]:
        """Take out every pair with a time before ``t``."""
        return self._pop(t, "left")

    def pop_until(self, t: int) -> tuple[Ticks, Index]:
        """Take out every pair with a time at or before ``t``."""
        return self._pop(t, "right")

    def _pop(self, t: int, side: str) -> tuple[Ticks, Index]:
        cuts = [int(np.searchsorted(times, t, side)) for times, _ in self._runs]  # type: ignore[call-overload]
        due = [(times[:c], groups[:c]) for (times, groups), c in zip(self._runs, cuts, strict=True)]
        rest = [(times[c:], groups[c:]) for (times, groups), c in zip(self._runs, cuts, strict=True)]
        self._runs = [run for run in rest if len(run[0])]
        none = np.zeros(0, np.int64)
        return np.concatenate([none, *(d[0] for d in due)]), np.concatenate([none, *(d[1] for d in due)])

    def renumber(self, new_groups: Index) -> None:
        """Groups got new numbers; -1 means the group is gone."""
        kept = [(times, new_groups[groups]) for times, groups in self._runs]
        self._runs = [(t[g >= 0], g[g >= 0]) for t, g in kept if bool((g >= 0).any())]

    def to_arrow(self) -> pa.Table:
        """All pairs."""
        times, groups = (np.concatenate([np.zeros(0, np.int64), *(r[i] for r in self._runs)]) for i in (0, 1))
        return pa.table({"time": times, "group": groups})

    def load(self, table: pa.Table) -> None:
        """Become the queue that `to_arrow` gave."""
        self._runs = []
        self.push(table["time"].to_numpy(), table["group"].to_numpy())


def _sorted(times: Ticks, groups: Index, kind: Literal["stable"] | None = None) -> tuple[Ticks, Index]:
    order = np.argsort(times, kind=kind)
    return times[order], groups[order]
