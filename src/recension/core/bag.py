"""Bags of events known by hash, for asking "is it still there?" at a cost that grows with the question."""

from __future__ import annotations

import numpy as np

from recension.core.batch import Index
from recension.core.rowhash import Hashes
from recension.core.sorted_runs import SortedRuns
from recension.core.ticks import BEGINNING, Ticks


class EventBag(SortedRuns):
    """How often each event is present; events that ended before the last CTI are forgotten."""

    def __init__(self) -> None:
        types = {"key": np.uint64, "count": np.int64, "end": np.int64}
        super().__init__(types, equal="sum", expiry="end")

    def count(self, keys: Hashes) -> Index:
        """How often each of the keys is present now."""
        return self.total(keys)

    def change(self, keys: Hashes, deltas: Index, ends: Ticks) -> None:
        """Add (or with a negative delta remove) events; ``ends`` tells when they can be forgotten."""
        self.push(keys, deltas, ends)

    def latest_end(self) -> int:
        """The last end of any event present, BEGINNING if there is none."""
        return int(self.unite()["end"].max(initial=BEGINNING))


class LiveEnds(SortedRuns):
    """The ends of events, by the hash of (payload, start); ends before the last CTI are forgotten."""

    def __init__(self) -> None:
        types = {"start": np.uint64, "end": np.int64, "count": np.int64}
        super().__init__(types, keys=2, equal="sum", expiry="end")

    def count(self, start: Hashes, end: Ticks) -> Index:
        """How often each (start, end) is there."""
        return self.total(start, end)

    def ends_of(self, starts: Hashes) -> dict[int, dict[int, int]]:
        """For each of the (distinct) starts the ends that are there, and how often."""
        found: dict[int, dict[int, int]] = {start: {} for start in starts.tolist()}
        rows = [column.tolist() for column in self.matching(np.sort(starts)).values()]
        for start, end, count in zip(*rows, strict=True):
            found[start][end] = count
        return found

    def change(self, start: Hashes, end: Ticks, delta: Index) -> None:
        """Add, or with a negative delta take away."""
        self.push(start, end, delta)
