"""From the rows shown to those to show: retractions and inserts of what differs.

Rows that stay are not touched. A row that differs is taken back whole and shown anew; where revisions must
not reach back (time_bound, ruling G9), one whose end alone differs is shortened or lengthened instead.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, RETRACT, EventBatch, empty, take_rows
from recension.core.netting import surviving
from recension.core.rowhash import row_hash
from recension.core.ticks import FOREVER
from recension.operators.base import changes
from recension.operators.modules.answers import Rows
from recension.operators.state.net_changes import identity, net_changes


def difference(old: Rows, new: Rows, *, moves_ends: bool) -> EventBatch:
    """What takes the one to the other, in order of start; at each start what goes before what comes."""
    if not len(old.owner) and not len(new.owner):
        return empty(new.payload.schema)
    both = _as_batch(old, new)
    if moves_ends:
        net = net_changes(both)
        net = net.take(net.old != net.new)
        moved = changes(net.vs, net.old, net.new, take_rows(both.payload, net.row))
        return moved.take(np.lexsort((moved.kind == INSERT, moved.sync())))
    hashes = identity(row_hash(both.payload, len(both)), both.vs, both.ve)
    gone = np.arange(len(old.owner))
    stays, _, cancelled = surviving(hashes[len(gone) :], hashes[: len(gone)])
    rows = np.concatenate([np.delete(gone, cancelled), np.flatnonzero(stays) + len(gone)])
    out = both.take(rows)
    return out.take(np.lexsort((out.kind == INSERT, out.vs)))


def _as_batch(old: Rows, new: Rows) -> EventBatch:
    """All of the old rows taken back, then all of the new."""
    kind = np.repeat(np.array([RETRACT, INSERT], np.uint8), [len(old.owner), len(new.owner)])
    vs, ve = np.concatenate([old.vs, new.vs]), np.concatenate([old.ve, new.ve])
    payload = pa.concat_batches([old.payload, new.payload])
    new_ve = np.where(kind == RETRACT, vs, np.int64(FOREVER))
    return EventBatch(kind, vs, ve, new_ve, np.zeros(len(vs), np.int64), payload)
