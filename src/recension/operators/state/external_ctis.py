"""External CTIs, and how far they prove a stream complete.

An external CTI says how many elements with sync times in ``[vs, ve)`` there are. Once as many have come,
the interval is complete; the frontier is the end of the complete intervals that follow each other.

    intervals     [-- 3 --)[-- 5 --)[-- 2 --)
    have come       3        4        2
    frontier               ^                      the last is complete, but is not reached

Sources may not let them overlap. Where they do, the one that begins first is asked, of several the one that
ends first: whatever is behind it waits until it is complete or the frontier is past its end.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
import pyarrow as pa

from recension.core.batch import EXTERNAL_CTI, EventBatch
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.state.proof import Arrivals, Interval, Proof, Walk
from recension.operators.state.sync_counts import SyncCounts
from recension.operators.state.time_queue import TimeBag

# Three integers in a tuple, its place in the heap, and its start and end in the bags.
_BYTES = 184
_SLACK = 64
_COLUMNS = ("vs", "ve", "expected")


class ExternalCtis:
    """Intervals may come in any order, before or after the elements they count.

    ``since`` is where they begin: nothing is asked about the time before it.
    """

    def __init__(self, since: int) -> None:
        self.frontier = BEGINNING
        self._since = since
        self._clear()
        self._counts = SyncCounts()

    def _clear(self) -> None:
        self._waiting: list[Interval] = []
        # Ends after the frontier: as many as intervals that can still prove something.
        self._ends = TimeBag()

    def __len__(self) -> int:
        return len(self._ends) + len(self._counts)

    def nbytes(self) -> int:
        """Memory taken."""
        return _BYTES * len(self._waiting) + self._counts.nbytes()

    def weigh(self, batch: EventBatch, sync: Ticks, aged: Ticks, last: int) -> Proof:
        """What the batch will have proven after each row; changes nothing yet.

        ``aged``: up to where the past is closed after each row whatever is proven. ``last``: the last CTI
        before the batch. External CTIs about the time before the last CTI cannot be verified (F8).
        """
        arrivals = Arrivals.of(batch, sync, aged)
        walk = Walk(self._waiting, self._counts, self.frontier, self._since, arrivals)
        for at in np.flatnonzero(batch.kind == EXTERNAL_CTI).tolist():
            walk.go_on(at)
            if batch.vs[at] >= (walk.closed() if at else last):
                walk.add((int(batch.vs[at]), int(batch.ve[at]), int(batch.count[at])))
        walk.go_on(len(batch))
        return walk.proof()

    def adopt(self, proof: Proof) -> None:
        """Make what was weighed so."""
        for _ in range(proof.left):
            heappop(self._waiting)
        self.frontier = int(proof.frontier[-1]) if len(proof.frontier) else self.frontier
        for interval in proof.fresh:
            heappush(self._waiting, interval)
        self._ends.push(np.sort(np.array([ve for _, ve, _ in proof.fresh], np.int64)))
        self._counts.open(np.sort(np.array([vs for vs, _, _ in proof.fresh], np.int64)))
        self._counts.push(proof.syncs)

    def advance(self, t: int) -> None:
        """Everything before ``t`` is taken as complete, and what follows as far as it is proven."""
        self.frontier = max(self.frontier, t)
        while self._waiting and self._waiting[0][0] <= max(self.frontier, self._since):
            vs, ve, expected = self._waiting[0]
            if ve > self.frontier and self._counts.within(vs, ve) != expected:
                break
            self.frontier = max(self.frontier, ve)
            heappop(self._waiting)

    def forget_before(self, last: int) -> None:
        """The last CTI is ``last``: whatever comes to be known is about the time from there on."""
        self._ends.pop_until(self.frontier)
        while self._waiting and self._waiting[0][1] <= self.frontier:
            heappop(self._waiting)
        if len(self._waiting) > 2 * len(self._ends) + _SLACK:
            # What the frontier has passed behind an interval that lasts is the majority.
            self._waiting = [interval for interval in self._waiting if interval[1] > self.frontier]
            heapify(self._waiting)
            self._counts.keep_starts(self._starts())
        self._counts.fold_before(last, self._waiting[0][0] if self._waiting else FOREVER)

    def _starts(self) -> Ticks:
        return np.sort(np.array([vs for vs, _, _ in self._waiting], np.int64))

    def snapshot(self) -> dict[str, pa.Table]:
        """The state as named tables."""
        held = np.array(self._waiting, np.int64).reshape(-1, 3)
        held = held[held[:, 1] > self.frontier]
        return {
            "frontier": pa.table({"frontier": pa.array([self.frontier], pa.int64())}),
            "intervals": pa.table(dict(zip(_COLUMNS, held.T, strict=True))),
        } | self._counts.snapshot()

    def restore(self, chunks: dict[str, pa.Table]) -> None:
        """Become what gave these chunks."""
        self.frontier = chunks["frontier"]["frontier"][0].as_py()
        self._clear()
        columns = [chunks["intervals"][name].to_pylist() for name in _COLUMNS]
        self._waiting = list(zip(*columns, strict=True))
        heapify(self._waiting)
        self._ends.push(np.sort(chunks["intervals"]["ve"].to_numpy()))
        self._counts.restore(chunks, self._starts())
