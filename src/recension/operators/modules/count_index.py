"""Count windows: every run of ``n`` consecutive moments at which events of a group start (or end)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index
from recension.core.ticks import FOREVER, Ticks
from recension.operators.base import new_end, old_end
from recension.operators.modules.window_index import (
    Affected,
    Ends,
    Settled,
    View,
    WindowIndex,
    WindowList,
    in_view,
    nothing_affected,
)
from recension.operators.snapshot.events import Place
from recension.operators.snapshot.steps import Contributions
from recension.operators.snapshot.working_set import state_columns
from recension.operators.windows.kept_moments import KeptMoments
from recension.operators.windows.moments import Axis, Sums, changes_at, merged

_NOTHING = Contributions([], [])


class CountIndex(WindowIndex):
    """Count windows, by start or by end."""

    def __init__(
        self, n: int, by: Literal["start", "end"], key_schema: pa.Schema, view: View, ends: Ends
    ) -> None:
        self._kept = KeptMoments(state_columns(0, 0), key_schema)
        super().__init__(self._kept, view, ends)
        self._n, self._by = n, by
        self.by_start = by == "start"  # type: ignore[misc]

    @property
    def place(self) -> Place | None:
        return self._place

    def _place(self, vs: Ticks, end: Ticks) -> tuple[Index, Index]:
        """The tick in which an event counts; empty if there is none."""
        moment = self._moment(vs, end)
        return moment, moment + (moment < FOREVER)

    def _moment(self, vs: Ticks, end: Ticks) -> Ticks:
        return np.where(end == vs, np.int64(FOREVER), vs if self._by == "start" else end)

    def affected(self, batch: EventBatch, group: Index, watermark: int) -> Affected:
        due = self._upcoming.pop_until(watermark)
        old, new = (self._moment(batch.vs, end(batch)) for end in (old_end, new_end))
        changes = changes_at(group, old, new, _NOTHING, due, in_place=self._ends != "unseen")
        if not len(changes.time):
            self.watermark = watermark
            return nothing_affected()
        extract = self._kept.around(changes.group, changes.time, self._n)
        axis = merged(extract, changes)
        shown = (
            self._listed(axis, axis.old, self.watermark, None),
            self._listed(axis, axis.new, watermark, self.watermark),
        )

        def keep() -> None:
            born, gone = ~axis.is_known & (axis.new.n > 0), axis.is_known & (axis.new.n == 0)
            points = (axis.group[born], axis.time[born])
            self._points.replace(extract.blocks, axis.columns(), points, axis.group[gone])
            if self._view != "all":
                # A window comes into view one tick after its last moment, or at its first.
                later = born & (axis.time + (self._view == "ended") > watermark)
                self._upcoming.push(axis.time[later] + (self._view == "ended"), axis.group[later])
            self.watermark = watermark

        return Affected(*shown, keep)

    def _listed(self, axis: Axis, sums: Sums, watermark: int, before: int | None) -> WindowList:
        """The windows in view that hold a changed moment; or that were not in view at ``before``."""
        at = np.flatnonzero(sums.n)
        size = max(0, len(at) - self._n + 1)
        first, last = at[:size], at[len(at) - size :]
        changed = np.append(0, np.cumsum(axis.is_changed))
        start, end = axis.time[first], axis.time[last] + 1
        wanted = changed[last + 1] > changed[first]
        if before is not None:
            wanted |= ~in_view(self._view, before, start, end)
        wanted &= (axis.group[first] == axis.group[last]) & in_view(self._view, watermark, start, end)
        keep = np.flatnonzero(wanted)
        start, end = start[keep], end[keep]
        return WindowList(axis.group[first][keep], start, end, start, end)

    def settle(self, t: int, earliest: int) -> Settled:
        # Counted by end, an event whose end may still move is in no window that has ended.
        closed = min(t, earliest) if self._by == "start" else t
        gone = self._kept.forget(closed, self._n - 1)
        first_open = min(closed, self._kept.earliest_held())
        return Settled(first_open, closed, first_open, gone)
