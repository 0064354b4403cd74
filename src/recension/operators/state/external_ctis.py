"""External CTIs, and how far they prove a stream complete.

An external CTI says how many elements with sync times in ``[vs, ve)`` there are. Once as many have come,
the interval is complete; the frontier is the end of the complete intervals that follow each other.

    intervals     [-- 3 --)[-- 5 --)[-- 2 --)
    have come       3        4        2
    frontier               ^                      the last is complete, but is not reached
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import EXTERNAL_CTI, EventBatch, Index
from recension.core.ticks import BEGINNING, Ticks
from recension.operators.state.sync_times import SyncTimes

NEVER = 2**62


@dataclass(slots=True, order=True)
class _Interval:
    """``at`` is the row of the batch in which it came, -1 if it was there before."""

    vs: int
    ve: int
    expected: int
    at: int = -1


@dataclass(frozen=True, slots=True)
class Proof:
    """What a batch proves: the frontier after each of its rows, and what is open then."""

    frontier: Ticks
    open: list[_Interval]
    syncs: Ticks


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """The rows of a batch by sync time."""

    row: Index
    sync: Ticks

    def complete(self, interval: _Interval, received: int, reached: int) -> int:
        """The first row from ``reached`` on after which the interval is complete; one that never comes."""
        low, high = np.searchsorted(self.sync, (interval.vs, interval.ve))
        rows = np.sort(self.row[low:high])
        missing = interval.expected - received
        come = int(np.searchsorted(rows, reached, "right"))
        if come == missing:
            return reached
        return int(rows[missing - 1]) if come < missing <= len(rows) else NEVER


class ExternalCtis:
    """Intervals may come in any order, before or after the elements they count, but may not overlap.

    ``since`` is where they begin: nothing is asked about the time before it.
    """

    def __init__(self, since: int) -> None:
        self.frontier = BEGINNING
        self._since = since
        self._intervals: list[_Interval] = []
        self._syncs = SyncTimes()

    def __len__(self) -> int:
        return len(self._intervals) + len(self._syncs)

    def nbytes(self) -> int:
        """Memory taken."""
        return 24 * len(self._intervals) + 8 * len(self._syncs)

    def weigh(self, batch: EventBatch, sync: Ticks, aged: Ticks, last: int) -> Proof:
        """What the batch will have proven after each row; changes nothing yet.

        ``aged``: up to where the past is closed after each row whatever is proven. ``last``: the last CTI
        before the batch. External CTIs about the time before the last CTI cannot be verified (F8).
        """
        is_data = batch.is_data()
        rows = np.flatnonzero(is_data)
        rows = rows[np.argsort(sync[rows], kind="stable")]
        arrivals = _Arrivals(rows, sync[rows])
        waiting = list(self._intervals)
        for at in np.flatnonzero(batch.kind == EXTERNAL_CTI).tolist():
            insort(waiting, _Interval(int(batch.vs[at]), int(batch.ve[at]), int(batch.count[at]), at))
        passed = self._passed(waiting, arrivals, aged, last)
        frontier = np.maximum(aged, self.frontier)
        for at, ve in passed:
            frontier[at] = max(int(frontier[at]), ve)
        if passed:
            frontier = np.maximum.accumulate(frontier)
        before = np.append(np.int64(last), frontier[:-1])
        still = [i for i in waiting if i.ve > frontier[-1] and (i.at < 0 or i.vs >= before[i.at])]
        return Proof(frontier, still, arrivals.sync)

    def _passed(
        self, waiting: list[_Interval], arrivals: _Arrivals, aged: Ticks, last: int
    ) -> list[tuple[int, int]]:
        """Takes out the intervals that the frontier leaves behind; (row, end) of the complete ones."""
        passed: list[tuple[int, int]] = []
        proven, row = self.frontier, 0
        while waiting:
            first = waiting[0]
            if first.vs < self._closed_before(first.at, passed, aged, last):
                waiting.pop(0)
                continue
            reached = max(row, first.at)
            if first.vs > max(proven, self._since):
                reached = max(reached, int(np.searchsorted(aged, first.vs)))
            complete = arrivals.complete(first, self._syncs.within(first.vs, first.ve), reached)
            expired = int(np.searchsorted(aged, first.ve))
            row = min(complete, expired)
            if row >= len(aged):
                break
            if complete <= expired:
                proven = max(proven, first.ve)
                passed.append((row, proven))
            waiting.pop(0)
        return passed

    def _closed_before(self, at: int, passed: list[tuple[int, int]], aged: Ticks, last: int) -> int:
        """Up to where the past was closed when the row ``at`` came."""
        if at <= 0:
            return last if at == 0 else BEGINNING
        earlier = bisect_left(passed, (at, BEGINNING))
        return max(int(aged[at - 1]), passed[earlier - 1][1] if earlier else self.frontier)

    def adopt(self, proof: Proof) -> None:
        """Make what was weighed so."""
        self._intervals = [_Interval(i.vs, i.ve, i.expected) for i in proof.open]
        self.frontier = int(proof.frontier[-1]) if len(proof.frontier) else self.frontier
        low = self._low()
        self._syncs.push(proof.syncs[int(np.searchsorted(proof.syncs, low)) :])
        self._syncs.forget_before(low)

    def advance(self, t: int) -> None:
        """Everything before ``t`` is taken as complete, and what follows as far as it is proven."""
        self.frontier = max(self.frontier, t)
        while self._intervals and self._intervals[0].vs <= max(self.frontier, self._since):
            first = self._intervals[0]
            if first.ve > self.frontier and self._syncs.within(first.vs, first.ve) != first.expected:
                break
            self.frontier = max(self.frontier, first.ve)
            self._intervals.pop(0)
        self._syncs.forget_before(self._low())

    def _low(self) -> int:
        """From where on elements are counted: an interval the frontier has cut still counts all its own."""
        return min([self.frontier, *(i.vs for i in self._intervals[:1])])

    def chunks(self) -> dict[str, pa.Table]:
        """The state as named tables."""
        names = ("vs", "ve", "expected")
        columns = {n: pa.array([getattr(i, n) for i in self._intervals], pa.int64()) for n in names}
        return {
            "frontier": pa.table({"frontier": pa.array([self.frontier], pa.int64())}),
            "intervals": pa.table(columns),
            "syncs": self._syncs.to_arrow(),
        }

    def load(self, chunks: dict[str, pa.Table]) -> None:
        """Become what gave these chunks."""
        self.frontier = chunks["frontier"]["frontier"][0].as_py()
        self._intervals = [_Interval(**row) for row in chunks["intervals"].to_pylist()]
        self._syncs.load(chunks["syncs"])
