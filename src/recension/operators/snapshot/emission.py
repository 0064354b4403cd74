"""What changed in what is shown: the difference of two views as retractions and inserts.

Unchanged snapshots are not touched (ruling B16). One whose value stays and whose end moves is a single
retraction; moving it later needs a variant that may lengthen, otherwise it is taken back and shown anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, RETRACT, EventBatch, Index, Mask, take_rows
from recension.core.rowhash import rows_equal
from recension.core.ticks import FOREVER
from recension.operators.snapshot.views import Variant, may_lengthen, shown
from recension.operators.snapshot.working_set import WorkingSet
from recension.operators.state.ranges import expand


@dataclass(frozen=True, slots=True)
class Results:
    """The rows of some snapshots, in order; ``counts`` tells how many each has, one if it is not given."""

    rows: pa.RecordBatch
    counts: Index | None = None


Compute: TypeAlias = Callable[[Index], Results]


@dataclass(frozen=True, slots=True)
class Slots:
    """The k-th row of a snapshot before and its k-th row after, side by side."""

    at: Index
    was: Mask
    now: Mask
    old_row: Index
    new_row: Index


def emit(
    work: WorkingSet, variant: Variant, watermarks: tuple[int, int], before: Compute, after: Compute
) -> EventBatch:
    """Retractions and inserts that take the old view to the new one.

    ``before`` and ``after`` give the results of the snapshots at some positions, in that order of calls.
    """
    was, old_end = shown(variant, watermarks[0], work.time, work.old)
    now, new_end = shown(variant, watermarks[1], work.time, work.new)
    same = was & now & (old_end == new_end) & ~work.is_changed
    unclear = np.flatnonzero((was | now) & ~same & ~work.is_context)
    old = before(unclear[was[unclear]])
    new = after(unclear[now[unclear]])
    slots = slots_of(unclear, was[unclear], now[unclear], old, new)
    vs, old_end, new_end = work.time[slots.at], old_end[slots.at], new_end[slots.at]
    stays = slots.was & slots.now
    stays[stays] = equal_rows(old.rows, slots.old_row[stays], new.rows, slots.new_row[stays])
    same_end = stays & (old_end == new_end)
    moves = stays & ~same_end & (may_lengthen(variant) | (new_end < old_end))
    retracts = slots.was & ~same_end
    inserts = slots.now & ~same_end & ~moves
    at_retract, at_insert = _places(retracts, inserts)
    size = len(at_retract) + len(at_insert)
    row, start, end, moved = np.empty(size, np.int64), *(np.full(size, FOREVER) for _ in range(3))
    row[at_retract], row[at_insert] = slots.old_row[retracts], old.rows.num_rows + slots.new_row[inserts]
    start[at_retract], start[at_insert] = vs[retracts], vs[inserts]
    end[at_retract], end[at_insert] = old_end[retracts], new_end[inserts]
    moved[at_retract] = np.where(moves, new_end, vs)[retracts]
    kind = np.full(size, INSERT, np.uint8)
    kind[at_retract] = RETRACT
    rows = take_rows(pa.concat_batches([old.rows, new.rows]), row)
    out = EventBatch(kind, start, end, moved, np.zeros(size, np.int64), rows)
    return _in_order(out) if variant == "ordered" else out


def slots_of(unclear: Index, was: Mask, now: Mask, old: Results, new: Results) -> Slots:
    """The rows of the snapshots at these positions; ``was`` and ``now`` tell which have any."""
    if old.counts is None or new.counts is None:
        return Slots(unclear, was, now, np.cumsum(was) - 1, np.cumsum(now) - 1)
    had, has = np.zeros(len(unclear), np.int64), np.zeros(len(unclear), np.int64)
    had[was], has[now] = old.counts, new.counts
    owner, k = expand(np.zeros(len(unclear), np.int64), np.maximum(had, has))
    first_old, first_new = np.cumsum(had) - had, np.cumsum(has) - has
    return Slots(unclear[owner], k < had[owner], k < has[owner], first_old[owner] + k, first_new[owner] + k)


def equal_rows(old: pa.RecordBatch, old_row: Index, new: pa.RecordBatch, new_row: Index) -> Mask:
    """Row by row: is it the same?"""
    return rows_equal(take_rows(old, old_row), take_rows(new, new_row), len(old_row))


def _places(retracts: Mask, inserts: Mask) -> tuple[Index, Index]:
    """Where in the output each row goes: in order of time, at each point the retraction first."""
    count = retracts.astype(np.int64) + inserts
    place = np.cumsum(count) - count
    return place[retracts], (place + retracts)[inserts]


def _in_order(out: EventBatch) -> EventBatch:
    """Groups interleaved by sync time, retractions before inserts."""
    return out.take(np.lexsort((out.kind == INSERT, out.sync())))
