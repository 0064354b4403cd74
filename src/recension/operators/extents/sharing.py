"""One lazy extent for many queries: a keeper that takes readings in, and readers that coalesce what it keeps.

keeper    all columns, raw readings            merges a batch with what is kept, once for all readers, and
                                               takes it in after they have read it
reader    a query, without state               emits what changes in its answers
owner     an eager extent of one query         can be filled from a keeper: one scan (ruling 36)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, empty
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.base import Chunks, Output
from recension.operators.extents.extent import Extent, MergedReadings, Stretch
from recension.operators.extents.operator import CoalesceExtent, emit_answers
from recension.operators.extents.query import CoalescingQuery, find_region, find_staying
from recension.operators.extents.windows import Marks, SlidingWindow


@dataclass(frozen=True, slots=True)
class KeeperView:
    """A batch, or a CTI, merged with what is kept, for readers; ``before``: how many stand before it."""

    merged: MergedReadings
    marks: Marks
    shows: bool
    before: int


class Keeper(CoalesceExtent):
    """The readings with all their columns, for others to look at; it shows nothing itself.

    A keeper that begins while others hold readings already is *young*: it takes in only readings after
    ``since``. It is complete when no reading from before can matter any more.
    """

    def __init__(self, readings: pa.Schema, window: SlidingWindow, since: int = BEGINNING) -> None:
        super().__init__(readings, readings, CoalescingQuery(readings.names, []), window, "lazy")
        self._extent = _SharedExtent(readings)
        self.since = since

    def view(self, batch: EventBatch) -> KeeperView | None:
        """What readers see of a batch that is not taken in yet; None if there is nothing to see."""
        batch, changed, watermark = self._prepare(batch)
        return self._view(batch, changed, watermark)

    def view_at(self, t: int) -> KeeperView | None:
        """What readers see when time has come so far."""
        none = np.zeros(0, np.int64)
        return self._view(self._no_readings, (none, none), max(self._watermark, t))

    def _view(self, batch: EventBatch, changed: tuple[Index, Index], watermark: int) -> KeeperView | None:
        marks = self._marks(batch, changed, watermark)
        looked = self._window.find_stretch(self._extent, marks, links=False)
        if looked is None:
            return None
        stretch, shows = looked
        merged = MergedReadings(self._extent, stretch, batch, changed)
        return KeeperView(merged, marks, shows, self._extent.forgotten + stretch.first)

    def merge_all(self) -> MergedReadings:
        """Everything that is kept."""
        none = np.zeros(0, np.int64)
        return MergedReadings(
            self._extent, self._extent.read_between(BEGINNING, FOREVER), self._no_readings, (none, none)
        )

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if self.since > BEGINNING:
            batch = batch.filter(batch.vs > self.since)
        return super().on_batch(port, batch)

    def _step(self, batch: EventBatch, changed: tuple[Index, Index], watermark: int) -> EventBatch:
        """Readings are kept by time, whatever their groups."""
        marks = self._marks(batch, changed, watermark)
        if not marks.is_quiet:
            merged = MergedReadings(
                self._extent, self._extent.read_between(marks.first, marks.last), batch, changed
            )
            at = merged.order
            if len(merged.gone_at):
                stays = np.ones(len(merged.time), np.bool_)
                stays[: merged.kept] = find_staying(
                    merged.hashed.hash_columns(self._query.group_by), merged, self._query
                )
                at = at[stays[at]]
            merged.write(self._extent, merged.time[at], merged.source[at], merged.began[at])
        self._watermark = watermark
        return empty(self.schema)

    def on_cti(self, port: int, t: int) -> Output:
        """Readings of one time go together: which of them comes first, every query says for itself."""
        self._watermark = max(self._watermark, t)
        if t == FOREVER:
            self._extent.clear()
        elif (rows := self._window.count_forgettable(self._extent, t)) > 0:
            is_all = rows >= len(self._extent)
            kept = len(self._extent) if is_all else self._extent.count_before(self._extent.time_at(rows))
            self._extent.drop_first(kept)
        return self.emit(t)

    def become_complete(self, owner: Owner) -> None:
        """The keeper now has every reading that a query of its own would hold."""
        more = len(self._extent) - len(owner.extent)
        self.since, self._watermark = BEGINNING, owner.watermark
        self._extent.forgotten = owner.extent.forgotten - more

    def snapshot_state(self) -> Chunks:
        return {**super().snapshot_state(), "since": pa.table({"t": [self.since]})}

    def restore_state(self, chunks: Chunks) -> None:
        super().restore_state(chunks)
        self.since = chunks["since"]["t"][0].as_py()


class LazyReader:
    """A lazy query over what a keeper keeps."""

    def __init__(self, schema: pa.Schema, query: CoalescingQuery, window: SlidingWindow) -> None:
        """``schema``: of the answers."""
        self.schema, self._query, self._window = schema, query, window

    def show(self, view: KeeperView | None) -> EventBatch:
        """What a batch, or a CTI, changes in the answers."""
        if view is None:
            return empty(self.schema)
        # Also where nothing is shown: what contradicts itself is refused before it is kept.
        region = find_region(view.merged, self._query, links_kept=False, ties=self._window.has_order_in_ties)
        if not view.shows:
            return empty(self.schema)
        shown = self._window.answers(region, view.before, view.marks)
        return emit_answers(self.schema, self._query, view.merged, region, shown)


class Owner(CoalesceExtent):
    """An eager query with an extent of its own."""

    def __init__(
        self, schema: pa.Schema, readings: pa.Schema, query: CoalescingQuery, window: SlidingWindow
    ) -> None:
        super().__init__(schema, readings, query, window, "eager")

    def fill(self, keeper: Keeper) -> None:
        """Take over from a reader of the keeper: coalesce everything that is kept, once."""
        merged = keeper.merge_all()
        region = find_region(merged, self._query, links_kept=False, ties=self._window.has_order_in_ties)
        self._write(merged, region, elsewhere=True)
        self._extent.forgotten = keeper.extent.forgotten
        self._watermark, self.out_cti = keeper.watermark, keeper.out_cti


class _SharedExtent(Extent):
    """An extent that queries with orders of their own read."""

    def read_around(self, low: int, high: int, before: int, after: int) -> Stretch:
        """Never splits readings of the same time."""
        while True:
            found = super().read_around(low, high, before, after)
            times = found.columns["time"]
            if not len(times):
                return found
            head = found.first - self.count_before(int(times[0]))
            tail = self.count_before(int(times[-1]) + 1) - (found.first + len(times))
            if head <= 0 and tail <= 0:
                return found
            before, after = before + max(head, 0), after + max(tail, 0)
