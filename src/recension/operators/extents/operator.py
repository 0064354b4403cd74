"""Coalescing over a window extent: at every slide, what the readings in the window say, coalesced.

Assumes     a valid physical stream in which no group has two readings at one time.
Guarantees  after every batch the output history is that of the readings so far, up to the greatest start or
            CTI seen: at every slide passed a row (group, values, valid_start, valid_end) for each maximal run
            of readings of a group that continue each other. Late readings correct the answers shown; CTIs
            pass unchanged, for an answer depends on no reading after it. Ordered input gives ordered output.
State       the readings that a window of a slide from the last CTI on holds, by time; an eager extent keeps
            one payload for a run of equal ones.
Cost        O((n + r) log r + a) for n elements, a rows of answers that may change, and r readings looked at:
            those from a window before the first change or slide due up to the last, none of them where a
            lazy extent takes in readings that change no answer shown yet.
Source      Temporal Coalescing on Window Extents over Data Streams, §4 and §5; coalescing rulings 1–23.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Index, empty, take_rows
from recension.core.rowhash import Hashes, combine
from recension.core.ticks import BEGINNING, FOREVER, Ticks, add
from recension.operators.base import Chunks, Operator, Output
from recension.operators.changes import EventRows, insert_rows, transition
from recension.operators.extents.extent import Extent, HashedPayload, MergedReadings, Stretch, distinct_rows
from recension.operators.extents.query import CoalescingQuery, Region, find_region, number_hashes
from recension.operators.extents.windows import Marks, RangeWindow, SlideAnswers, SlidingWindow
from recension.operators.state.readings import find_come_and_gone

_REACH: Final = 64
_SCANS: Final = 4
"""So many slides at once are scanned one by one; the answers of more are written out together."""


class CoalesceExtent(Operator):
    """One query over one extent, by the eager or the lazy scheme."""

    shards_share_ctis = True

    def __init__(
        self,
        schema: pa.Schema,
        readings: pa.Schema,
        query: CoalescingQuery,
        window: SlidingWindow,
        scheme: Literal["eager", "lazy"],
    ) -> None:
        """``schema``: of the answers. ``readings``: what a lazy extent keeps of them."""
        super().__init__(schema)
        self._query, self._window, self._is_eager = query, window, scheme == "eager"
        names = query.columns if self._is_eager else readings.names
        self._kept = pa.schema([readings.field(name) for name in names])
        self._shares = self._is_eager and query.equivalent is None
        self._extent = Extent(
            self._kept, shares_payloads=self._shares, has_order_in_ties=window.has_order_in_ties
        )
        self._watermark = BEGINNING
        self._no_readings = empty(self._kept)

    @property
    def extent(self) -> Extent:
        """What it holds."""
        return self._extent

    @property
    def watermark(self) -> int:
        """The greatest start or CTI seen."""
        return self._watermark

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        return self._step(*self._prepare(batch)) if len(batch) else empty(self.schema)

    def _prepare(self, batch: EventBatch) -> tuple[EventBatch, tuple[Index, Index], int]:
        """What is kept of readings, which of them come and go, and up to when they are."""
        payload = batch.payload.select(self._kept.names)
        batch = EventBatch(batch.kind, batch.vs, batch.ve, batch.new_ve, batch.count, payload)
        started = int(batch.vs[batch.kind == INSERT].max(initial=BEGINNING))
        return batch, find_come_and_gone(batch), max(self._watermark, started)

    def on_cti(self, port: int, t: int) -> Output:
        none = np.zeros(0, np.int64)
        shown = self._step(self._no_readings, (none, none), max(self._watermark, t))
        if t == FOREVER:
            self._extent.clear()
        else:
            self._extent.drop_first(min(self._window.count_forgettable(self._extent, t), len(self._extent)))
        return self.emit(t, shown)

    def _step(self, batch: EventBatch, changed: tuple[Index, Index], watermark: int) -> EventBatch:
        marks = self._marks(batch, changed, watermark)
        if slides := self._slides_to_scan(marks):
            return self._update_and_scan(batch, changed, marks, slides)
        looked = self._window.find_stretch(self._extent, marks, links=self._is_eager)
        if looked is None:
            self._watermark = watermark
            return empty(self.schema)
        stretch, shows = looked
        if self._is_eager and not shows:
            merged = self._with_neighbours(batch, changed, marks)
        else:
            merged = MergedReadings(self._extent, stretch, batch, changed)
        region = self._region(merged)
        self._watermark = watermark  # only now: a batch that is refused changes nothing
        if not marks.is_quiet:
            self._write(merged, region)
        if not shows:
            return empty(self.schema)
        before = self._extent.forgotten + stretch.first
        return emit_answers(
            self.schema, self._query, merged, region, self._window.answers(region, before, marks)
        )

    def _update_and_scan(
        self, batch: EventBatch, changed: tuple[Index, Index], marks: Marks, slides: Sequence[int]
    ) -> EventBatch:
        """As the paper has it: first what comes and goes is coalesced, then the extent is scanned."""
        if not marks.is_quiet:
            merged = self._with_neighbours(batch, changed, marks)
            self._write(merged, self._region(merged))
        self._watermark = marks.new
        assert isinstance(self._window, RangeWindow), "only time-based windows are scanned"
        return scan_extent(self._extent, self._query, self._window, slides, self.schema)

    def _slides_to_scan(self, marks: Marks) -> Sequence[int]:
        """The slides that are due, if an eager extent is updated first and scanned for each of them."""
        if self._is_eager and isinstance(self._window, RangeWindow):
            return self._window.find_due_slides(marks, _SCANS)
        return ()

    def _with_neighbours(
        self, batch: EventBatch, changed: tuple[Index, Index], marks: Marks
    ) -> MergedReadings:
        """Also the readings before and after each change in its group: mostly they are near."""
        names, reach = self._query.group_by, _REACH
        merged = MergedReadings(
            self._extent, self._extent.read_between(marks.first, marks.last), batch, changed
        )
        while not merged.has_neighbours(
            names, self._window.has_all_neighbours(merged.stretch, marks), len(self._extent)
        ):
            stretch = self._extent.read_around(marks.first, marks.last, reach, reach)
            merged, reach = MergedReadings(self._extent, stretch, batch, changed), reach * 8
        return merged

    def _region(self, merged: MergedReadings) -> Region:
        has_links = self._is_eager and self._query.equivalent is not None
        return find_region(merged, self._query, links_kept=has_links, ties=self._window.has_order_in_ties)

    def _marks(self, batch: EventBatch, changed: tuple[Index, Index], watermark: int) -> Marks:
        comes, goes = (batch.vs[rows] for rows in changed)
        times = np.concatenate([comes, goes])
        if not len(times):
            return Marks(self._watermark, watermark)
        sign = np.repeat([1, -1], [len(comes), len(goes)])
        more, passed = (int(sign[times < mark].sum()) for mark in (self._watermark, watermark))
        return Marks(self._watermark, watermark, int(times.min()), int(times.max()), more, passed - more)

    def _write(self, merged: MergedReadings, region: Region, *, elsewhere: bool = False) -> None:
        """Keep the readings that there are now; an eager extent gives equal neighbours one payload."""
        source = region.source.copy()
        if self._shares:
            runs = region.runs(region.is_new, region.begins, region.time)
            head = np.maximum.accumulate(np.where(runs.begins, np.arange(len(runs)), 0))
            source[runs.at] = source[runs.at[head]]
        at = np.flatnonzero(region.is_new)
        merged.write(self._extent, region.time[at], source[at], region.begins[at], elsewhere=elsewhere)

    def trace(self) -> tuple[int, ...] | None:
        return (self._watermark, self._extent.forgotten)

    def state_rows(self) -> int:
        return len(self._extent)

    def state_bytes(self) -> int:
        return self._extent.nbytes()

    def snapshot_state(self) -> Chunks:
        return {"watermark": pa.table({"t": [self._watermark]}), **self._extent.parts("extent")}

    def restore_state(self, chunks: Chunks) -> None:
        self._watermark = chunks["watermark"]["t"][0].as_py()
        self._extent.restore("extent", chunks)


def emit_answers(
    schema: pa.Schema,
    query: CoalescingQuery,
    merged: MergedReadings,
    region: Region,
    shown: tuple[SlideAnswers, SlideAnswers],
) -> EventBatch:
    """The elements that take the answers shown before to those to be shown."""
    old, new = shown
    at, end = np.append(old.at, new.at), np.append(old.end, new.end)
    start, facts = region.time[at], merged.payload.select(query.columns)

    payload = partial(_answer_rows, schema, facts, region.source[at], start, end)
    if not len(old.at):
        return insert_rows(new.vs, new.ve, payload)
    hashes: Hashes = combine(combine(region.fact[at], start), end)
    was = EventRows(old.vs, old.ve, hashes[: len(old.at)])
    return transition(was, EventRows(new.vs, new.ve, hashes[len(old.at) :]), payload)


def scan_extent(
    extent: Extent, query: CoalescingQuery, window: RangeWindow, slides: Sequence[int], schema: pa.Schema
) -> EventBatch:
    """The answers of these slides, in order, from what an eager extent knows of its readings (§5).

    It knows which readings begin a run. Of all others only the first of each group is looked at: it leads
    what the window still holds of its run. No neighbours are compared, and payloads are of runs.
    """
    stretch = extent.read_between(max(slides[0] - window.span, BEGINNING), slides[-1])
    rows, place = distinct_rows(stretch.columns["row"])
    facts = extent.payload(rows).select(query.columns)
    group = number_hashes(HashedPayload(facts).hash_columns(query.group_by))[place]
    found = [_runs(stretch, group, max(y - window.span, BEGINNING), y) for y in slides]
    at, end = (np.concatenate(part) for part in zip(*found, strict=True))
    vs = np.repeat(np.array(slides, np.int64), [len(leads) for leads, _ in found])
    start = stretch.columns["time"][at]
    payload = partial(_answer_rows, schema, facts, place[at], start, end)
    return insert_rows(vs, add(vs, window.slide), payload)


def _answer_rows(
    schema: pa.Schema, facts: pa.RecordBatch, source: Index, start: Ticks, end: Ticks, rows: Index
) -> pa.RecordBatch:
    """Some rows of answers: the facts of the reading that leads each, and the interval where they hold."""
    columns = take_rows(facts, source[rows]).columns
    return pa.RecordBatch.from_arrays([*columns, pa.array(start[rows]), pa.array(end[rows])], schema=schema)


def _runs(stretch: Stretch, group: Index, low: int, high: int) -> tuple[Index, Ticks]:
    """The readings that lead a run in ``[low, high]``, by group, and up to when each run is valid there."""
    time = stretch.columns["time"]
    first, last = int(np.searchsorted(time, low)), int(np.searchsorted(time, high, "right"))
    inside, of = np.arange(first, last), group[first:last]
    size = int(of.max(initial=0)) + 1
    earliest, latest = np.full(size, -1), np.full(size, -1)
    earliest[of[::-1]], latest[of] = (
        inside[::-1],
        inside,
    )  # of readings of one group, the last one written stays
    leads = stretch.columns["begins"][first:last].copy()
    leads[earliest[earliest >= 0] - first] = True
    at = first + np.flatnonzero(leads)
    at = at[np.argsort(group[at], kind="stable")]
    is_last = np.append(group[at[1:]] != group[at[:-1]], True)[: len(at)]
    return at, time[np.where(is_last, latest[group[at]], np.append(at[1:], -1)[: len(at)])]
