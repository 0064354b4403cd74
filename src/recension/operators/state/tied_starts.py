"""Starts that several events of a group share while their ends may still move.

The ends of all events are kept by start, as a log of what was added and taken away. A start is noted when a
second event is found there, so that a CTI looks only at starts that were shared once, from the first of them
on to the first that still is.

Cost        O(log n) a change, over time; a CTI: the noted starts that are shared no longer, once each.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.rowhash import Hashes, combine
from recension.core.sorted_runs import SortedRuns
from recension.core.ticks import FOREVER, Ticks

_FIRST_LOOK = 64


class TiedStarts:
    """The ends of events by (group, start), and the starts that were shared."""

    def __init__(self) -> None:
        types = {"key": np.uint64, "end": np.int64, "count": np.int64}
        self._ends = SortedRuns(types, keys=2, equal="sum", expiry="end")
        self._start, self._key = np.zeros(0, np.int64), np.zeros(0, np.uint64)

    def change(self, group: Hashes, start: Ticks, old: Ticks, new: Ticks) -> None:
        """The ends of events move; one that is the start means that the event is not there."""
        if not len(start):
            return
        key = combine(group, start)
        goes, comes = np.flatnonzero(old != start), np.flatnonzero(new != start)
        counts = np.repeat([-1, 1], [len(goes), len(comes)])
        self._ends.push(
            np.concatenate([key[goes], key[comes]]), np.concatenate([old[goes], new[comes]]), counts
        )
        once, at = np.unique(key[comes], return_index=True)
        rows = self._ends.find_rows(once)
        is_shared = _count(once, rows["key"], rows["count"]) > 1
        self._note(start[comes[at[is_shared]]], once[is_shared])

    def _note(self, start: Ticks, key: Hashes) -> None:
        is_new = ~np.isin(key, self._key)
        start, key = np.append(self._start, start[is_new]), np.append(self._key, key[is_new])
        order = np.argsort(start, kind="stable")
        self._start, self._key = start[order], key[order]

    def earliest(self, t: int, is_alive: Callable[[Ticks, Ticks], Mask]) -> int:
        """The first start before ``t`` of two events that are alive and end at ``t`` or later, or FOREVER."""
        self._ends.forget_before(t)
        width = _FIRST_LOOK
        while len(self._start) and self._start[0] < t:
            past = int(np.searchsorted(self._start[:width], t))
            is_shared = self._count_open(self._start[:past], self._key[:past], t, is_alive) > 1
            # What starts before a CTI gets no new events: a start that is shared no longer stays so.
            gone = int(np.argmax(is_shared)) if bool(is_shared.any()) else past
            self._start, self._key = self._start[gone:], self._key[gone:]
            if gone < past:
                return int(self._start[0])
            width *= 2
        return FOREVER

    def _count_open(
        self, start: Ticks, key: Hashes, t: int, is_alive: Callable[[Ticks, Ticks], Mask]
    ) -> Index:
        order = np.argsort(key)
        rows = self._ends.find_rows(key[order])
        own = start[order][np.searchsorted(key[order], rows["key"])]
        is_open = (rows["end"] >= t) & is_alive(own, rows["end"])
        return _count(key[order], rows["key"][is_open], rows["count"][is_open])[np.argsort(order)]


def _count(keys: Hashes, key: Hashes, count: Index) -> Index:
    """The counts of each of the sorted keys added up."""
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, np.searchsorted(keys, key), count)
    return total
