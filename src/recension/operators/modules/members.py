"""The events of many windows at once, in the order in which modules get them: by (vs, payload, ve).

Where events neither outlast each other nor count by their ends, the members of a window lie together:

    events by start     a  b  c  d  e  f  g
    windows             |--------|
                              |--------|          slices, nothing is copied

Otherwise every (window, event) pair is written out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, take_rows
from recension.core.ticks import Ticks
from recension.operators.snapshot.events import CoveringEvents, payload_order


@dataclass(frozen=True, slots=True)
class Members:
    """Window ``w`` has the rows ``low[w]`` to ``high[w]``."""

    low: Index
    high: Index
    vs: Ticks
    ve: Ticks
    payload: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.low)


def members_of(found: CoveringEvents, *, by_start: bool, in_order: bool) -> Members:
    """The members of each window; ``in_order`` if the order among those that start together matters."""
    order = by_start_and_payload(found.first, found.vs, found.ve, found.payload, in_order=in_order)
    first, stop = found.first[order], found.stop[order]
    windows = np.arange(found.snapshots)
    if by_start and bool((stop[1:] >= stop[:-1]).all()):
        rows, low, high = (
            order,
            np.searchsorted(stop, windows, "right"),
            np.searchsorted(first, windows, "right"),
        )
        high = np.maximum(low, high)
    else:
        if not by_start:
            order = by_start_and_payload(
                np.zeros(len(order), np.int64), found.vs, found.ve, found.payload, in_order=in_order
            )
        window, rows = found.incidence_in(order)
        low, high = np.searchsorted(window, windows), np.searchsorted(window, windows, "right")
    return Members(low, high, found.vs[rows], found.ve[rows], take_rows(found.payload, rows))


def by_start_and_payload(
    first: Index, vs: Ticks, ve: Ticks, payload: pa.RecordBatch, *, in_order: bool
) -> Index:
    """Rows by (first, vs); and where those are equal by payload and end, if that matters."""
    order = np.lexsort((vs, first)) if len(vs) else np.zeros(0, np.int64)
    if not in_order:
        return order
    a, b = first[order], vs[order]
    tied = np.append(False, (a[1:] == a[:-1]) & (b[1:] == b[:-1]))[: len(order)]
    tied |= np.append(tied[1:], False)[: len(order)]
    if bool(tied.any()):
        rows = order[tied]
        by_payload = payload_order_with(ve[rows], take_rows(payload, rows))
        rank = np.empty(len(rows), np.int64)
        rank[by_payload] = np.arange(len(rows))
        order[tied] = rows[np.lexsort((rank, vs[rows], first[rows]))]
    return order


def payload_order_with(ve: Ticks, payload: pa.RecordBatch) -> Index:
    """Row numbers by (payload, ve)."""
    by_end = np.argsort(ve, kind="stable")
    return by_end[payload_order(take_rows(payload, by_end), len(by_end))]
