"""What changed in what is shown: the difference of two views as retractions and inserts.

Unchanged snapshots are not touched (ruling B16). One whose value stays and whose end moves is a single
retraction; moving it later needs a variant that may lengthen, otherwise it is taken back and shown anew.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, RETRACT, EventBatch, Index, Mask
from recension.core.rowhash import rows_equal
from recension.core.ticks import FOREVER
from recension.operators.snapshot.views import Variant, may_lengthen, shown
from recension.operators.snapshot.working_set import Side, WorkingSet

Payload = Callable[[Side, Index], pa.RecordBatch]


def emit(work: WorkingSet, variant: Variant, watermarks: tuple[int, int], payload: Payload) -> EventBatch:
    """Retractions and inserts that take the old view to the new one."""
    was, old_end = shown(variant, watermarks[0], work.time, work.old)
    now, new_end = shown(variant, watermarks[1], work.time, work.new)
    same_end = was & now & (old_end == new_end)
    unclear = (was | now) & ~(same_end & ~work.is_changed) & ~work.is_context
    before, after = np.flatnonzero(unclear & was), np.flatnonzero(unclear & now)
    old_rows, new_rows = payload(work.old, before), payload(work.new, after)
    stays = unclear & was & now
    stays[stays] = _equal(old_rows, stays[before], new_rows, stays[after])
    moves = stays & ~same_end & (may_lengthen(variant) | (new_end < old_end))
    retracts = unclear & was & ~(stays & same_end)
    inserts = unclear & now & ~(stays & (same_end | moves))
    at_retract, at_insert = _places(retracts, inserts)
    source = np.empty(len(at_retract) + len(at_insert), np.int64)
    source[at_retract] = np.flatnonzero(retracts[before])
    source[at_insert] = len(before) + np.flatnonzero(inserts[after])
    vs, ve, new_ve = (np.full(len(source), FOREVER) for _ in range(3))
    vs[at_retract], vs[at_insert] = work.time[retracts], work.time[inserts]
    ve[at_retract], ve[at_insert] = old_end[retracts], new_end[inserts]
    new_ve[at_retract] = np.where(moves, new_end, work.time)[retracts]
    kind = np.full(len(source), INSERT, np.uint8)
    kind[at_retract] = RETRACT
    rows = pa.concat_batches([old_rows, new_rows]).take(pa.array(source))
    out = EventBatch(kind, vs, ve, new_ve, np.zeros(len(source), np.int64), rows)
    return _in_order(out) if variant == "ordered" else out


def _equal(old: pa.RecordBatch, of_old: Mask, new: pa.RecordBatch, of_new: Mask) -> Mask:
    """Of the snapshots shown before and after: which have the same value?"""
    return rows_equal(old.filter(pa.array(of_old)), new.filter(pa.array(of_new)), int(of_old.sum()))


def _places(retracts: Mask, inserts: Mask) -> tuple[Index, Index]:
    """Where in the output each row goes: in order of time, at each point the retraction first."""
    count = retracts.astype(np.int64) + inserts
    place = np.cumsum(count) - count
    return place[retracts], (place + retracts)[inserts]


def _in_order(out: EventBatch) -> EventBatch:
    """Groups interleaved by sync time, retractions before inserts."""
    return out.take(np.lexsort((out.kind == INSERT, out.sync())))
