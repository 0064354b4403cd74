"""One lazy extent for many queries: a keeper that takes readings in, and readers that coalesce what it keeps.

keeper    all columns, raw readings            written once a batch, after all readers have looked
reader    a query's columns of the same        lays the batch over what is kept, shows, writes nothing
owner     an eager extent of one query         can be filled from a keeper: one scan (ruling 36)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, empty
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.base import Chunks, Output
from recension.operators.extents.extent import Extent, Stretch
from recension.operators.extents.operator import CoalesceExtent
from recension.operators.extents.query import CoalescingQuery
from recension.operators.extents.region import Region, region_of
from recension.operators.extents.windows import SlidingWindow


class Keeper(CoalesceExtent):
    """The readings with all their columns, for others to look at; it shows nothing itself.

    A keeper that is begun while others hold readings already is *young*: it takes in only readings ``since``
    the last of those, and can be relied on when none from before can matter any more.
    """

    def __init__(self, readings: pa.Schema, window: SlidingWindow, since: int = BEGINNING) -> None:
        super().__init__(readings, readings, CoalescingQuery(readings.names, []), window, "lazy")
        self.since = since

    @property
    def extent(self) -> Extent:
        """What is kept."""
        return self._extent

    @property
    def watermark(self) -> int:
        """The greatest start or CTI seen."""
        return self._watermark

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if self.since > BEGINNING:
            batch = batch.filter(batch.vs > self.since)
        return super().on_batch(port, batch)

    def _step(self, batch: EventBatch, changed: tuple[Index, Index], watermark: int) -> EventBatch:
        marks = self._marks(batch, changed, watermark)
        self._watermark = watermark
        if not marks.is_quiet:
            stretch = self._extent.between(marks.first, marks.last)
            region, payload = region_of(
                self._extent, self._query, stretch, batch, changed, links_kept=False, ties=False
            )
            self._write(stretch, region, payload)
        return empty(self.schema)

    def on_cti(self, port: int, t: int) -> Output:
        """Readings of one time go together: which of them comes first, every query says for itself."""
        self._watermark = max(self._watermark, t)
        if t == FOREVER:
            self._extent.clear()
        elif (rows := self._window.passed(self._extent, t)) > 0:
            is_all = rows >= len(self._extent)
            kept = len(self._extent) if is_all else self._extent.count_before(self._extent.time_at(rows))
            self._extent.forget(kept)
        return self.promise(t)

    def grown_up(self, owner: Owner) -> None:
        """It has all readings now that a query by itself holds, and perhaps some of the same time before."""
        more = len(self._extent) - len(owner.extent)
        self.since, self._watermark = BEGINNING, owner.watermark
        self._extent.forgotten = owner.extent.forgotten - more

    def state_chunks(self) -> Chunks:
        return {**super().state_chunks(), "since": pa.table({"t": [self.since]})}

    def load_chunks(self, chunks: Chunks) -> None:
        super().load_chunks(chunks)
        self.since = chunks["since"]["t"][0].as_py()


class Reader(CoalesceExtent):
    """A lazy query over what a keeper keeps."""

    def __init__(
        self, schema: pa.Schema, query: CoalescingQuery, window: SlidingWindow, keeper: Keeper
    ) -> None:
        super().__init__(schema, _columns(keeper.schema, query), query, window, "lazy")
        self._keeper, self._extent = keeper, _Narrowed(keeper.extent, query.columns)
        self._watermark, self.out_cti = keeper.watermark, keeper.out_cti

    def on_cti(self, port: int, t: int) -> Output:
        """What has passed is the keeper's to forget."""
        none = np.zeros(0, np.int64)
        return self.promise(t, self._step(self._no_readings, (none, none), max(self._watermark, t)))

    def _step(self, batch: EventBatch, changed: tuple[Index, Index], watermark: int) -> EventBatch:
        self._extent.forgotten = self._keeper.extent.forgotten
        return super()._step(batch, changed, watermark)

    def _write(self, stretch: Stretch, region: Region, payload: pa.RecordBatch) -> None:
        """Nothing: the keeper does."""

    def state_rows(self) -> int:
        return 0

    def state_bytes(self) -> int:
        return 0

    def state_chunks(self) -> Chunks:
        return {"watermark": pa.table({"t": [self._watermark]})}

    def load_chunks(self, chunks: Chunks) -> None:
        self._watermark = chunks["watermark"]["t"][0].as_py()


class Owner(CoalesceExtent):
    """An eager query with an extent of its own."""

    def __init__(
        self, schema: pa.Schema, readings: pa.Schema, query: CoalescingQuery, window: SlidingWindow
    ) -> None:
        super().__init__(schema, readings, query, window, "eager")

    @property
    def extent(self) -> Extent:
        """What it holds."""
        return self._extent

    @property
    def watermark(self) -> int:
        """The greatest start or CTI seen."""
        return self._watermark

    def fill(self, keeper: Keeper) -> None:
        """Take over from a reader of the keeper: coalesce everything that is kept, once."""
        kept = _Narrowed(keeper.extent, self._query.columns)
        none, all_of_it = np.zeros(0, np.int64), kept.between(BEGINNING, FOREVER)
        region, payload = region_of(
            kept,
            self._query,
            all_of_it,
            self._no_readings,
            (none, none),
            links_kept=False,
            ties=self._window.ties,
        )
        self._write(self._extent.between(BEGINNING, FOREVER), region, payload)
        self._extent.forgotten = keeper.extent.forgotten
        self._watermark, self.out_cti = keeper.watermark, keeper.out_cti


class _Narrowed(Extent):
    """Some columns of an extent that another keeps."""

    def __init__(self, kept: Extent, names: Sequence[str]) -> None:
        self._table, self._store, self._names = kept._table, kept._store, list(names)
        self.forgotten = kept.forgotten

    def payload(self, rows: Index) -> pa.RecordBatch:
        return super().payload(rows).select(self._names)

    def around(self, low: int, high: int, before: int, after: int) -> Stretch:
        """Not parting readings of one time: their order is not that of the query."""
        while True:
            found = super().around(low, high, before, after)
            times = found.columns["time"]
            if not len(times):
                return found
            head = found.first - self.count_before(int(times[0]))
            tail = self.count_before(int(times[-1]) + 1) - (found.first + len(times))
            if head <= 0 and tail <= 0:
                return found
            before, after = before + max(head, 0), after + max(tail, 0)


def _columns(readings: pa.Schema, query: CoalescingQuery) -> pa.Schema:
    return pa.schema([readings.field(name) for name in query.columns])
