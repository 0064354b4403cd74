"""External CTIs, and how far they prove a stream complete.

An external CTI says how many elements with sync times in ``[vs, ve)`` there are. Once as many have come,
the interval is complete; the frontier is the end of the complete intervals that follow each other.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from recension.core.ticks import BEGINNING


@dataclass(slots=True, order=True)
class _Interval:
    vs: int
    ve: int
    expected: int
    received: int


class ExternalCtis:
    """Intervals may come in any order, before or after the elements they count, but may not overlap.

    ``since`` is where they begin: nothing is asked about the time before it.
    """

    def __init__(self, since: int) -> None:
        self.frontier = BEGINNING
        self._since = since
        self._intervals: list[_Interval] = []
        self._uncounted: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._intervals) + len(self._uncounted)

    def count(self, sync: int) -> None:
        """An element with this sync time has come."""
        at = bisect_right(self._intervals, sync, key=lambda interval: interval.vs) - 1
        if at >= 0 and sync < self._intervals[at].ve:
            self._intervals[at].received += 1
        elif sync >= self.frontier:
            self._uncounted[sync] += 1

    def add(self, vs: int, ve: int, expected: int) -> None:
        """An external CTI has come; elements that came before it count."""
        inside = [sync for sync in self._uncounted if vs <= sync < ve]
        received = sum(self._uncounted.pop(sync) for sync in inside)
        insort(self._intervals, _Interval(vs, ve, expected, received))

    def settle(self) -> bool:
        """Move the frontier over complete intervals; did it move?"""
        before = self.frontier
        while self._intervals and self._intervals[0].vs <= max(self.frontier, self._since):
            first = self._intervals[0]
            if first.received != first.expected:
                break
            self.frontier = max(self.frontier, first.ve)
            self._intervals.pop(0)
        return self._moved(before)

    def advance(self, t: int) -> bool:
        """Everything before ``t`` is taken as complete; did the frontier move?"""
        before, self.frontier = self.frontier, max(self.frontier, t)
        self._intervals = [interval for interval in self._intervals if interval.ve > self.frontier]
        return self._moved(before)

    def _moved(self, before: int) -> bool:
        if self.frontier > before and self._uncounted:
            later = {sync: n for sync, n in self._uncounted.items() if sync >= self.frontier}
            self._uncounted = Counter(later)
        return self.frontier > before

    def chunks(self) -> dict[str, pa.Table]:
        """The state as named tables."""
        rows = [(i.vs, i.ve, i.expected, i.received) for i in self._intervals]
        counted = [(sync, n) for sync, n in self._uncounted.items()]
        return {
            "frontier": pa.table({"frontier": pa.array([self.frontier], pa.int64())}),
            "intervals": _table(rows, ("vs", "ve", "expected", "received")),
            "uncounted": _table(counted, ("sync", "n")),
        }

    def load(self, chunks: dict[str, pa.Table]) -> None:
        """Become what gave these chunks."""
        self.frontier = chunks["frontier"]["frontier"][0].as_py()
        self._intervals = [_Interval(**row) for row in chunks["intervals"].to_pylist()]
        self._uncounted = Counter({row["sync"]: row["n"] for row in chunks["uncounted"].to_pylist()})


def _table(rows: Sequence[tuple[int, ...]], names: tuple[str, ...]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[] for _ in names]
    return pa.table([pa.array(column, pa.int64()) for column in columns], names=list(names))
