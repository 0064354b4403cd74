"""External CTIs, and how far they prove a stream complete.

An external CTI says how many elements with sync times in ``[vs, ve)`` there are. Once as many have come,
the interval is complete; the frontier (``complete_until``) is the end of the complete intervals that follow
each other.

    intervals     [-- 3 --)[-- 5 --)[-- 2 --)
    have come       3        4        2
    frontier               ^                      the last is complete, but is not reached

Sources may not let them overlap. Where they do, the one that begins first is asked, of several the one that
ends first: whatever is behind it waits until it is complete or the frontier is past its end.

First `prove` tells what a batch proves, which changes nothing: the frontier after each row. Then the proof
is adopted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import EXTERNAL_CTI, EventBatch, Index
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.state.sync_counts import SyncCounts
from recension.operators.state.time_queue import TimeBag

# Three integers in a tuple, its place in the heap, and its start and end in the bags.
_BYTES = 184
_SLACK = 64
_COLUMNS = ("vs", "ve", "expected")
# (vs, ve, expected)
Interval: TypeAlias = tuple[int, int, int]
_NEVER = 2**62


class ExternalCtis:
    """Intervals may come in any order, before or after the elements they count.

    ``since`` is where they begin: nothing is asked about the time before it.
    """

    def __init__(self, since: int) -> None:
        self.complete_until = BEGINNING
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

    def prove(self, batch: EventBatch, sync: Ticks, aged: Ticks, last: int) -> Proof:
        """What the batch will have proven after each row; changes nothing yet.

        ``aged``: up to where the past is closed after each row whatever is proven. ``last``: the last CTI
        before the batch. External CTIs about the time before the last CTI cannot be verified (F8).
        """
        arrivals = Arrivals.from_batch(batch, sync, aged)
        walk = ProofWalk(self._waiting, self._counts, self.complete_until, self._since, arrivals)
        for at in np.flatnonzero(batch.kind == EXTERNAL_CTI).tolist():
            walk.advance_to(at)
            if batch.vs[at] >= (walk.closed_until() if at else last):
                walk.add((int(batch.vs[at]), int(batch.ve[at]), int(batch.count[at])))
        walk.advance_to(len(batch))
        return walk.proof()

    def adopt(self, proof: Proof) -> None:
        """Take over what `prove` has found."""
        for _ in range(proof.left):
            heappop(self._waiting)
        self.complete_until = (
            int(proof.complete_until[-1]) if len(proof.complete_until) else self.complete_until
        )
        for interval in proof.fresh:
            heappush(self._waiting, interval)
        self._ends.push(np.sort(np.array([ve for _, ve, _ in proof.fresh], np.int64)))
        self._counts.open_intervals(np.sort(np.array([vs for vs, _, _ in proof.fresh], np.int64)))
        self._counts.push(proof.syncs)

    def advance(self, t: int) -> None:
        """Everything before ``t`` is taken as complete, and what follows as far as it is proven."""
        self.complete_until = max(self.complete_until, t)
        while self._waiting and self._waiting[0][0] <= max(self.complete_until, self._since):
            vs, ve, expected = self._waiting[0]
            if ve > self.complete_until and self._counts.count_within(vs, ve) != expected:
                break
            self.complete_until = max(self.complete_until, ve)
            heappop(self._waiting)

    def forget_before(self, last: int) -> None:
        """Forget what is not needed after a CTI at ``last``: later elements are all from there on."""
        self._ends.pop_until(self.complete_until)
        while self._waiting and self._waiting[0][1] <= self.complete_until:
            heappop(self._waiting)
        if len(self._waiting) > 2 * len(self._ends) + _SLACK:
            # What the frontier has passed behind an interval that lasts is the majority.
            self._waiting = [interval for interval in self._waiting if interval[1] > self.complete_until]
            heapify(self._waiting)
            self._counts.keep_starts(self._starts())
        self._counts.fold_before(last, self._waiting[0][0] if self._waiting else FOREVER)

    def _starts(self) -> Ticks:
        return np.sort(np.array([vs for vs, _, _ in self._waiting], np.int64))

    def snapshot(self) -> dict[str, pa.Table]:
        """The state as named tables."""
        held = np.array(self._waiting, np.int64).reshape(-1, 3)
        held = held[held[:, 1] > self.complete_until]
        return {
            "frontier": pa.table({"frontier": pa.array([self.complete_until], pa.int64())}),
            "intervals": pa.table(dict(zip(_COLUMNS, held.T, strict=True))),
        } | self._counts.snapshot()

    def restore(self, chunks: dict[str, pa.Table]) -> None:
        """Become what gave these chunks."""
        self.complete_until = chunks["frontier"]["frontier"][0].as_py()
        self._clear()
        columns = [chunks["intervals"][name].to_pylist() for name in _COLUMNS]
        self._waiting = list(zip(*columns, strict=True))
        heapify(self._waiting)
        self._ends.push(np.sort(chunks["intervals"]["ve"].to_numpy()))
        self._counts.restore(chunks, self._starts())


@dataclass(frozen=True, slots=True)
class Proof:
    """What a batch proves: the frontier after each of its rows.

    ``left``: how many of the first intervals that waited are behind it then; ``fresh``: those that have
    come and wait now; ``syncs``: the sync times that have come, sorted.
    """

    complete_until: Ticks
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
    def from_batch(batch: EventBatch, sync: Ticks, aged: Ticks) -> Arrivals:
        """Those of a batch."""
        rows = np.flatnonzero(batch.is_data())
        rows = rows[np.argsort(sync[rows], kind="stable")]
        return Arrivals(rows, sync[rows], aged)

    def count_within(self, vs: int, ve: int) -> Index:
        """The rows with sync times in ``[vs, ve)``, in order."""
        low, high = np.searchsorted(self.sync, (vs, ve))
        return np.sort(self.row[low:high])

    def first_row_aged_to(self, t: int) -> int:
        """The first row after which age has closed the past up to ``t``."""
        return int(np.searchsorted(self.aged, t))


class ProofWalk:
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
        self._in_order, self._fresh = _iterate_heap(waiting), list[Interval]()
        self._old, self._left = next(self._in_order, None), 0
        self._asked: tuple[Interval, tuple[int, int]] | None = None

    def closed_until(self) -> int:
        """Up to where the past is closed before the current row."""
        aged = self._arrivals.aged
        return max(self._proven, int(aged[self._row - 1])) if self._row else self._frontier

    def add(self, interval: Interval) -> None:
        """An external CTI comes with the current row."""
        heappush(self._fresh, interval)

    def advance_to(self, to: int) -> None:
        """Take in the rows before ``to``."""
        while (first := self._first_interval()) is not None:
            if first[1] > self._proven:
                complete, expired = self._find_due_rows(first)
                if min(complete, expired) >= to:
                    break
                self._row = min(complete, expired)
                if complete <= expired:
                    self._proven = first[1]
                    self._passed.append((complete, first[1]))
            self._pop(first)
        self._row = to

    def _first_interval(self) -> Interval | None:
        """The interval that begins first, of those the one that ends first."""
        if self._fresh and (self._old is None or self._fresh[0] < self._old):
            return self._fresh[0]
        return self._old

    def _pop(self, first: Interval) -> None:
        if first is self._old:
            self._old, self._left = next(self._in_order, None), self._left + 1
        else:
            heappop(self._fresh)

    def _find_due_rows(self, first: Interval) -> tuple[int, int]:
        """After which row the interval is complete, and after which row age has closed the past beyond it.

        They stand for as long as it is first, since only what is left behind moves what is proven.
        """
        if self._asked is None or self._asked[0] is not first:
            self._asked = (
                first,
                (self._find_completing_row(*first), self._arrivals.first_row_aged_to(first[1])),
            )
        return self._asked[1]

    def _find_completing_row(self, vs: int, ve: int, expected: int) -> int:
        """The first row from here on after which an interval is reached and complete."""
        reached = self._row
        if vs > max(self._proven, self._since):
            reached = max(reached, self._arrivals.first_row_aged_to(vs))
        rows, missing = self._arrivals.count_within(vs, ve), expected - self._counts.count_within(vs, ve)
        come = int(np.searchsorted(rows, reached, "right"))
        if come == missing:
            return reached
        return int(rows[missing - 1]) if come < missing <= len(rows) else _NEVER

    def proof(self) -> Proof:
        """What the rows so far prove."""
        frontier = np.maximum(self._arrivals.aged, self._frontier)
        for row, ve in self._passed:
            frontier[row] = max(int(frontier[row]), ve)
        if self._passed:
            frontier = np.maximum.accumulate(frontier)
        return Proof(frontier, self._left, self._fresh, self._arrivals.sync)


def _iterate_heap(heap: Sequence[Interval]) -> Iterator[Interval]:
    """The items of a heap in order, without removing any; looks only at those given and their children."""
    border = [(heap[0], 0)] if heap else []
    while border:
        item, at = heappop(border)
        yield item
        for heir in (2 * at + 1, 2 * at + 2):
            if heir < len(heap):
                heappush(border, (heap[heir], heir))
