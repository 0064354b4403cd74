"""How far the rows of a batch, one after the other, prove a stream complete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np

from recension.core.batch import EventBatch, Index
from recension.core.ticks import Ticks
from recension.operators.state.sync_counts import SyncCounts

# (vs, ve, expected)
Interval: TypeAlias = tuple[int, int, int]

NEVER = 2**62


@dataclass(frozen=True, slots=True)
class Proof:
    """What a batch proves: the frontier after each of its rows.

    ``left``: how many of the first intervals that waited are behind it then; ``fresh``: those that have
    come and wait now; ``syncs``: the sync times that have come, sorted.
    """

    frontier: Ticks
    left: int
    fresh: list[Interval]
    syncs: Ticks


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The inserts and retractions of a batch by sync time, and up to where age closes the past after each
    row of the batch."""

    row: Index
    sync: Ticks
    aged: Ticks

    @staticmethod
    def of(batch: EventBatch, sync: Ticks, aged: Ticks) -> Arrivals:
        """Those of a batch."""
        rows = np.flatnonzero(batch.is_data())
        rows = rows[np.argsort(sync[rows], kind="stable")]
        return Arrivals(rows, sync[rows], aged)

    def within(self, vs: int, ve: int) -> Index:
        """The rows with sync times in ``[vs, ve)``, in order."""
        low, high = np.searchsorted(self.sync, (vs, ve))
        return np.sort(self.row[low:high])

    def aged_to(self, t: int) -> int:
        """The first row after which age has closed the past up to ``t``."""
        return int(np.searchsorted(self.aged, t))


class Walk:
    """Goes from row to row, but stops only where an external CTI comes or is left behind.

    ``waiting`` is a heap, ``frontier`` where it stood before the batch; before ``since`` nothing is asked.
    """

    def __init__(
        self, waiting: Sequence[Interval], counts: SyncCounts, frontier: int, since: int, arrivals: Arrivals
    ) -> None:
        self._counts, self._arrivals = counts, arrivals
        self._frontier = self._proven = frontier
        self._since = since
        self._row = 0
        self._passed: list[tuple[int, int]] = []
        self._in_order, self._fresh = _ascending(waiting), list[Interval]()
        self._old, self._left = next(self._in_order, None), 0
        self._asked: tuple[Interval, tuple[int, int]] | None = None

    def closed(self) -> int:
        """Up to where the past is closed before the row that was gone on to."""
        aged = self._arrivals.aged
        return max(self._proven, int(aged[self._row - 1])) if self._row else self._frontier

    def add(self, interval: Interval) -> None:
        """An external CTI comes with the row that was gone on to."""
        heappush(self._fresh, interval)

    def go_on(self, to: int) -> None:
        """Take in the rows before ``to``."""
        while (first := self._first()) is not None:
            if first[1] > self._proven:
                complete, expired = self._due(first)
                if min(complete, expired) >= to:
                    break
                self._row = min(complete, expired)
                if complete <= expired:
                    self._proven = first[1]
                    self._passed.append((complete, first[1]))
            self._leave(first)
        self._row = to

    def _first(self) -> Interval | None:
        """The interval that begins first, of those the one that ends first."""
        if self._fresh and (self._old is None or self._fresh[0] < self._old):
            return self._fresh[0]
        return self._old

    def _leave(self, first: Interval) -> None:
        if first is self._old:
            self._old, self._left = next(self._in_order, None), self._left + 1
        else:
            heappop(self._fresh)

    def _due(self, first: Interval) -> tuple[int, int]:
        """The rows after which the interval is complete, and is behind what age has closed.

        They stand for as long as it is first, since only what is left behind moves what is proven.
        """
        if self._asked is None or self._asked[0] is not first:
            self._asked = first, (self._complete(*first), self._arrivals.aged_to(first[1]))
        return self._asked[1]

    def _complete(self, vs: int, ve: int, expected: int) -> int:
        """The first row from here on after which an interval is reached and complete."""
        reached = self._row
        if vs > max(self._proven, self._since):
            reached = max(reached, self._arrivals.aged_to(vs))
        rows, missing = self._arrivals.within(vs, ve), expected - self._counts.within(vs, ve)
        come = int(np.searchsorted(rows, reached, "right"))
        if come == missing:
            return reached
        return int(rows[missing - 1]) if come < missing <= len(rows) else NEVER

    def proof(self) -> Proof:
        """What the rows gone through prove."""
        frontier = np.maximum(self._arrivals.aged, self._frontier)
        for row, ve in self._passed:
            frontier[row] = max(int(frontier[row]), ve)
        if self._passed:
            frontier = np.maximum.accumulate(frontier)
        return Proof(frontier, self._left, self._fresh, self._arrivals.sync)


def _ascending(heap: Sequence[Interval]) -> Iterator[Interval]:
    """What a heap holds in order, nothing taken out: only what is given out, and its heirs, is looked at."""
    border = [(heap[0], 0)] if heap else []
    while border:
        item, at = heappop(border)
        yield item
        for heir in (2 * at + 1, 2 * at + 2):
            if heir < len(heap):
                heappush(border, (heap[heir], heir))
