"""The ends of events that are alive, by the hash of (payload, start).

Kept as a few runs sorted by (start, end) with signed counts, each run at least twice as long as the next,
as in `core.bag`; here all ends of one start can be found too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from recension.core.batch import Index
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING, FOREVER, Ticks

_GRACE = 16


@dataclass(frozen=True, slots=True)
class _Run:
    start: Hashes
    end: Ticks
    count: Index

    def find(self, start: Hashes, end: Ticks) -> Index:
        """How often each (start, end) is in the run: by start, then by halving among equal starts."""
        low, high = np.searchsorted(self.start, start), np.searchsorted(self.start, start, "right")
        stop = high
        while bool((is_open := low < high).any()):
            middle = (low + high) // 2
            is_less = is_open & (self.end[np.minimum(middle, len(self.end) - 1)] < end)
            low, high = np.where(is_less, middle + 1, low), np.where(is_open & ~is_less, middle, high)
        at = np.minimum(low, len(self.end) - 1)
        return np.where((low < stop) & (self.end[at] == end), self.count[at], 0)


class LiveEnds:
    """A bag of (start, end); ends before the last CTI are forgotten."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._frontier = BEGINNING
        self._unchecked = 0

    def __len__(self) -> int:
        return sum(len(run.start) for run in self._runs)

    def nbytes(self) -> int:
        """Memory taken."""
        return 24 * len(self)

    def count(self, start: Hashes, end: Ticks) -> Index:
        """How often each (start, end) is there."""
        total = np.zeros(len(start), np.int64)
        for run in self._runs:
            total += run.find(start, end)
        return total

    def ends_of(self, starts: Hashes) -> dict[int, dict[int, int]]:
        """For each start the ends that are there, and how often."""
        found: dict[int, dict[int, int]] = {int(start): {} for start in starts}
        for run in self._runs:
            low, high = np.searchsorted(run.start, starts), np.searchsorted(run.start, starts, "right")
            for start, i, j in zip(starts.tolist(), low.tolist(), high.tolist(), strict=True):
                for end, n in zip(run.end[i:j].tolist(), run.count[i:j].tolist(), strict=True):
                    found[start][end] = found[start].get(end, 0) + n
        since = self._frontier
        return {start: {e: n for e, n in ends.items() if n and e >= since} for start, ends in found.items()}

    def change(self, start: Hashes, end: Ticks, delta: Index) -> None:
        """Add, or with a negative delta take away."""
        self._push(_summed(start, end, delta))
        self._unchecked += len(start)

    def _push(self, run: _Run) -> None:
        if len(run.start):
            self._runs.append(run)
        while len(self._runs) > 1 and 2 * len(self._runs[-1].start) >= len(self._runs[-2].start):
            both = [self._runs.pop(), self._runs.pop()]
            start, end, count = (
                np.concatenate([getattr(r, n) for r in both]) for n in ("start", "end", "count")
            )
            if len((merged := self._kept(_summed(start, end, count, kind="stable"))).start):
                self._runs.append(merged)

    def forget_before(self, t: int) -> None:
        """No end before ``t`` will be asked for again; at the end of time none at all."""
        self._frontier = t
        if t == FOREVER:
            self._runs = []
        elif 4 * (self._unchecked + _GRACE) > len(self) > 0:
            # Looking through everything is paid for by what has come since the last time, or costs nothing.
            self._unchecked = 0
            runs, self._runs = [self._kept(run) for run in self._runs], []
            for run in sorted(runs, key=lambda run: -len(run.start)):
                self._push(run)

    def _kept(self, run: _Run) -> _Run:
        keep = run.end >= self._frontier
        return run if bool(keep.all()) else _Run(run.start[keep], run.end[keep], run.count[keep])

    def to_arrow(self) -> pa.Table:
        """Everything there."""
        none = _Run(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64))
        runs = [none, *self._runs]
        return pa.table({n: np.concatenate([getattr(r, n) for r in runs]) for n in ("start", "end", "count")})

    def load(self, table: pa.Table, frontier: int) -> None:
        """Become what `to_arrow` gave, with everything before ``frontier`` forgotten."""
        self._runs, self._frontier = [], frontier
        self.change(*(table[name].to_numpy() for name in ("start", "end", "count")))


def _summed(start: Hashes, end: Ticks, delta: Index, kind: Literal["stable"] | None = None) -> _Run:
    """Sorted by (start, end), one row for equal ones, without those that sum to nothing."""
    order = np.argsort(start, kind=kind)
    start, end, delta = start[order], end[order], delta[order]
    is_tie = start[1:] == start[:-1]
    if bool(is_tie.any()):
        tied = np.flatnonzero(np.append(is_tie, False) | np.append(False, is_tie))
        order = tied[np.lexsort((end[tied], start[tied]))]
        end[tied], delta[tied] = end[order], delta[order]
        first = np.flatnonzero(np.append(True, ~is_tie | (end[1:] != end[:-1])))
        start, end, delta = start[first], end[first], np.add.reduceat(delta, first)
    keep = delta != 0
    return _Run(start[keep], end[keep], delta[keep])
