"""The starts of events whose ends may still move, and the first of them.

Events are counted by (start, end), as a log of what came and went. No event comes before a CTI, and an event
that has ended before it stays as it is: so the first start that is open only moves on, and what lies before
it is forgotten.

Cost        O(log n) a change, over time; a CTI: the events that it makes final, once each, and a few others.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import Mask
from recension.core.change_log import Change
from recension.core.sorted_runs import Columns, SortedRuns, take_columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks

_FIRST_LOOK: Final = 64


class OpenStarts(SortedRuns):
    """A bag of lifetimes."""

    key: Final = ("start", "end")

    def __init__(self) -> None:
        types = {"start": np.int64, "end": np.int64, "count": np.int64}
        super().__init__(types, keys=2, equal="sum", expiry="end")

    def clear(self) -> None:
        super().clear()
        # The lifetimes that were named since the last checkpoint; None: all may have been.
        self._changed: list[Columns] | None = None

    def change(self, start: Ticks, old: Ticks, new: Ticks) -> None:
        """The ends of events move; one that is the start means that the event is not there."""
        goes, comes = np.flatnonzero(old != start), np.flatnonzero(new != start)
        starts = np.concatenate([start[goes], start[comes]])
        ends = np.concatenate([old[goes], new[comes]])
        self._add(starts, ends, np.repeat([-1, 1], [len(goes), len(comes)]))

    def _add(self, start: Ticks, end: Ticks, count: Ticks) -> None:
        self.push(start, end, count)
        if self._changed is not None:
            self._changed.append({"start": start, "end": end})

    def first_open(self, since: int) -> int:
        """The first start of an event that ends at ``since`` or later, FOREVER if there is none."""
        self.forget_before(since)
        width = _FIRST_LOOK
        while len(self):
            bounds = [int(run.key[width]) for run in self if len(run.key) > width]
            rows = self._merge_parts([run.part(0, width) for run in self])
            if bounds:
                rows = take_columns(rows, rows["start"] < min(bounds))
            is_open = (rows["end"] >= since) & (rows["count"] > 0)
            if bool(is_open.any()):
                first = int(rows["start"][np.argmax(is_open)])
                self.pop(first)
                return first
            if not bounds:
                changed = self._changed
                self.clear()
                self._changed = changed
                return FOREVER
            self.pop(min(bounds))
            width *= 2
        return FOREVER

    def restore(self, table: pa.Table | Change, expired_before: int = BEGINNING) -> None:
        """Become what `snapshot` gave, or take over changes."""
        if not isinstance(table, Change):
            super().restore(table, expired_before)
            return
        rows = {name: table.rows[name].to_numpy() for name in self._types}
        if table.is_whole:
            super().restore(table.rows, expired_before)
        else:
            gone = [table.gone[name].to_numpy() for name in self.key]
            self.push(*gone, -self.total(*gone))
            self.push(rows["start"], rows["end"], rows["count"] - self.total(rows["start"], rows["end"]))
        self._changed = []

    def take_changes(self, version: int) -> Change:
        """See `Logged.take_changes`."""
        changed, self._changed = self._changed, []
        if changed is None:
            rows = pa.table(self.unite())
            return Change(rows, rows.select(self.key).slice(0, 0), is_whole=True)
        none = np.zeros(0, np.int64)
        keys = np.array([np.concatenate([none, *(each[name] for each in changed)]) for name in self.key])
        start, end = np.unique(keys, axis=1)
        count = self.total(start, end)
        is_open = end >= self.expired_before
        there, gone = np.flatnonzero(is_open & (count > 0)), np.flatnonzero(is_open & (count <= 0))
        rows = pa.table({"start": start[there], "end": end[there], "count": count[there]})
        return Change(rows, pa.table({"start": start[gone], "end": end[gone]}))

    def find_current(self, change: Change, version: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        start, end, count = (change.rows[name].to_numpy() for name in self._types)
        rows: Mask = (end >= self.expired_before) & (self.total(start, end) == count)
        start, end = (change.gone[name].to_numpy() for name in self.key)
        gone: Mask = (end >= self.expired_before) & (self.total(start, end) == 0)
        return rows, gone
