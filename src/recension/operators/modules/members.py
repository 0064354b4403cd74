"""The events of many windows at once, in the order in which modules get them: by (vs, payload, ve).

Where events neither outlast each other nor count by their ends, the members of a window lie together:

    events by start     a  b  c  d  e  f  g
    windows             |--------|
                              |--------|          slices, nothing is copied

Otherwise every (window, event) pair is written out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, take_rows
from recension.core.ticks import Ticks
from recension.operators.value_order import payload_order
from recension.operators.windowed.events import CoveringEvents


@dataclass(frozen=True, slots=True)
class WindowList:
    """Windows in order of (group, low): ``[low, high)`` on the axis, ``[start, end)`` in time."""

    group: Index
    low: Index
    high: Index
    start: Ticks
    end: Ticks

    def __len__(self) -> int:
        return len(self.group)


Order: TypeAlias = Literal["payload", "start", "any"]
"""By start and payload; by start alone, those that start together anyhow; or all of them anyhow."""


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


def members_of(found: CoveringEvents, *, by_start: bool, order: Order) -> Members:
    """The members of each window, in the order that matters."""
    windows, in_order = np.arange(found.snapshots), order == "payload"
    if order == "any" and _never_falls(found.first) and _never_falls(found.stop):
        low, high = _slices(found.first, found.stop, windows)
        return Members(low, high, found.vs, found.ve, found.payload)
    by = by_start_and_payload(found.first, found.vs, found.ve, found.payload, in_order=in_order)
    first, stop = found.first[by], found.stop[by]
    if by_start and _never_falls(stop):
        rows = by
        low, high = _slices(first, stop, windows)
    else:
        if not by_start:
            nowhere = np.zeros(len(by), np.int64)
            by = by_start_and_payload(nowhere, found.vs, found.ve, found.payload, in_order=in_order)
        window, rows = found.incidence_in(by)
        low, high = np.searchsorted(window, windows), np.searchsorted(window, windows, "right")
    return Members(low, high, found.vs[rows], found.ve[rows], take_rows(found.payload, rows))


def _never_falls(places: Index) -> bool:
    return bool((places[1:] >= places[:-1]).all())


def _slices(first: Index, stop: Index, windows: Index) -> tuple[Index, Index]:
    """Where the members of each window lie, if events begin and end in the order in which they are."""
    low = np.searchsorted(stop, windows, "right")
    return low, np.maximum(low, np.searchsorted(first, windows, "right"))


def by_start_and_payload(
    first: Index, vs: Ticks, ve: Ticks, payload: pa.RecordBatch, *, in_order: bool
) -> Index:
    """Rows by (first, vs); and where those are equal by payload and end, if that matters."""
    order = _by_start(first, vs)
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


def _by_start(first: Index, vs: Ticks) -> Index:
    """Rows by (first, vs); as they are found they often lie so, window by window."""
    apart, together = first[1:] > first[:-1], first[1:] == first[:-1]
    if bool((apart | (together & (vs[1:] >= vs[:-1]))).all()):
        return np.arange(len(vs))
    return np.lexsort((vs, first))


def payload_order_with(ve: Ticks, payload: pa.RecordBatch) -> Index:
    """Row numbers by (payload, ve)."""
    by_end = np.argsort(ve, kind="stable")
    return by_end[payload_order(take_rows(payload, by_end), len(by_end))]
