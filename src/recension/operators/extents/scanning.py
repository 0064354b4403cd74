"""The scan of an eager extent: what a window says, from what is known of each reading in it.

It is known which readings begin a run. Of all others only the first of each group is looked at: it leads
what the window still holds of its run. No neighbours are compared, and payloads are of runs, not of readings.

Source      Temporal Coalescing on Window Extents over Data Streams, §5.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, take_rows
from recension.core.ticks import BEGINNING, Ticks, add
from recension.operators.extents.extent import Extent, Stretch
from recension.operators.extents.laid import Hashed, distinct_rows
from recension.operators.extents.query import CoalescingQuery
from recension.operators.extents.region import numbered
from recension.operators.extents.windows import RangeWindow
from recension.operators.transition import first_shown


def scanned(
    extent: Extent, query: CoalescingQuery, window: RangeWindow, slides: Sequence[int], schema: pa.Schema
) -> EventBatch:
    """The answers of these slides, in order."""
    stretch = extent.between(max(slides[0] - window.span, BEGINNING), slides[-1])
    rows, place = distinct_rows(stretch.columns["row"])
    facts = extent.payload(rows).select(query.columns)
    group = numbered(Hashed(facts).of(query.group_by))[place]
    found = [_runs(stretch, group, max(y - window.span, BEGINNING), y) for y in slides]
    at, end = (np.concatenate(part) for part in zip(*found, strict=True))
    vs = np.repeat(np.array(slides, np.int64), [len(leads) for leads, _ in found])
    start = stretch.columns["time"][at]

    def payload(rows: Index) -> pa.RecordBatch:
        columns = take_rows(facts, place[at[rows]]).columns
        return pa.RecordBatch.from_arrays(
            [*columns, pa.array(start[rows]), pa.array(end[rows])], schema=schema
        )

    return first_shown(vs, add(vs, window.slide), payload)


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
