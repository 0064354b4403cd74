"""Count aggregate: for each group, one result per run of n consecutive moments at which events start (end).

Assumes     a valid physical stream.
Guarantees  ``eager``: after every batch the output history is the aggregate over the count windows of the
            input so far. Otherwise a window is shown once it has ended by the watermark; perfect input then
            gives perfect output, in order if it is not grouped.
State       moments from the last CTI on and n - 1 before it per group, with the sums of the events there;
            those events themselves for aggregates that are not sums.
Cost        O(m log n) for m moments: those the batch changes, n to either side, and the rest of their blocks.
Source      The Extensibility Framework in Microsoft StreamInsight, §III.B and §V; rulings G1–G3, G5, G7, G8.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np

from recension.core.batch import EventBatch, Index, empty
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Output, new_end, old_end
from recension.operators.snapshot.emission import Results
from recension.operators.snapshot.grouped import Asked, GroupedAggregate
from recension.operators.snapshot.selections import FunctionError
from recension.operators.windows.consecutive import Consecutive, windows_on
from recension.operators.windows.count_emission import emit_counted
from recension.operators.windows.kept_moments import KeptMoments
from recension.operators.windows.moments import Axis, Changes, changes_at, merged


class CountAggregate(GroupedAggregate[KeptMoments]):
    """Grouped or not; when it counts ends, no aggregate may break ties."""

    def __init__(self, asked: Asked, n: int, by: Literal["start", "end"]) -> None:
        super().__init__(asked, KeptMoments, self._place)
        self._n, self._by = n, by
        self._watermark = FOREVER if asked.variant == "eager" else BEGINNING

    def _moment(self, vs: Ticks, end: Ticks) -> Ticks:
        """Where an event counts; FOREVER if it is not there, or counts by an end it never reaches."""
        return np.where(end == vs, np.int64(FOREVER), vs if self._by == "start" else end)

    def _place(self, vs: Ticks, end: Ticks) -> tuple[Ticks, Ticks]:
        """The tick in which an event counts; empty if there is none."""
        moment = self._moment(vs, end)
        return moment, moment + (moment < FOREVER)

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        group, watermark = self._groups(batch), self._watermark_after(batch)
        old, new = (self._moment(batch.vs, end(batch)) for end in (old_end, new_end))
        amounts, due = self._measures.contributions(batch), self._upcoming.pop_before(watermark)
        changes = changes_at(group, old, new, amounts, due, in_place=self._breaks_ties)
        return self._step(changes, watermark, partial(self._remember, batch, group))

    def on_cti(self, port: int, t: int) -> Output:
        watermark = max(self._watermark, t)
        due = self._upcoming.pop_before(watermark)
        none = np.zeros(0, np.int64)
        changes = changes_at(none, none, none, self._measures.nothing(), due, in_place=False)
        shown = self._step(changes, watermark)
        if t == FOREVER:
            self._forget_all()
            return self.promise(t, shown)
        return self.promise(self._forget_before(self._settled(t, t)), shown)

    def _step(
        self, changes: Changes, watermark: int, remember: Callable[[], None] = lambda: None
    ) -> EventBatch:
        """Lay the changes over the moments, keep the result, and say what changed in what is shown."""
        if not len(changes.time):
            remember()
            self._watermark = watermark
            return empty(self.schema)
        extract = self._points.around(changes.group, changes.time, self._n)
        axis = merged(extract, changes)

        def after(windows: Consecutive) -> Results:
            remember()
            return self._results(windows)

        old = windows_on(axis, axis.old, self._n, self._watermark, due=False)
        new = windows_on(axis, axis.new, self._n, watermark, due=True)
        out = emit_counted(len(axis.time), old, new, self._results, after)
        self._keep(axis, extract.blocks, watermark)
        self._watermark = watermark
        return out

    def _keep(self, axis: Axis, blocks: Index, watermark: int) -> None:
        born, gone = ~axis.is_known & (axis.new.n > 0), axis.is_known & (axis.new.n == 0)
        self._points.replace(blocks, axis.columns(), (axis.group[born], axis.time[born]), axis.group[gone])
        later = born & (axis.time >= watermark)
        self._upcoming.push(axis.time[later], axis.group[later])

    def _results(self, windows: Consecutive) -> Results:
        events = None
        if self._events is not None:
            group_hash = self._points.group_hash
            events = self._events.within(group_hash, windows.group, windows.start, windows.end)
        keys, rows = self._points.keys_of(windows.group), np.arange(len(windows))
        try:
            return self._measures.results(keys, windows.side, rows, events)
        except FunctionError as why:
            raise why.in_window(int(windows.start[why.row]), int(windows.end[why.row])) from why

    def _forget_before(self, t: int) -> int:
        """Forget what no window that can still change needs; gives back where the first of those begins."""
        group, time = self._points.forget(t, self._n - 1)
        first_open = min(t, self._points.earliest_held())
        if self._events is not None:
            self._events.drop(self._points.group_hash(group), time)
            self._events.forget_before(first_open + 1)
        self._retire_groups()
        return first_open
