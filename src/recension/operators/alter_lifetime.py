"""AlterLifetime: each event gets a lifetime computed from its own; an empty one drops it.

Assumes     a valid physical stream.
Guarantees  the output history is the altered input history, after every batch; a change that leaves the
            output as it was is not passed on, and a removal stays a removal (rulings D1–D3). An event that is
            shifted out of time is dropped and counted.
State       none.
Cost        O(n) in the batch.
Source      Consistency Sensitive Streaming Operators in CEDR, §4.2, as corrected by rulings D1–D7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Mask, new_end, old_end, take_rows
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Looked, Operator, Orphans, Output
from recension.operators.changes import changes
from recension.operators.lifetimes import Lifetime

BEYOND_TIME: Final = "moved beyond the ends of time"


class AlterLifetime(Operator):
    """Every element takes an event's end from one time to another; so does what it becomes."""

    changes_on_cti = False
    shards_share_ctis = True
    is_all_rows = True

    def __init__(self, schema: pa.Schema, lifetime: Lifetime) -> None:
        super().__init__(schema)
        self._lifetime = lifetime
        self._looked = Looked[tuple[EventBatch, Mask]]()

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        output, is_empty = self._looked.take(batch) or self._compute(batch)
        self._count_lost(batch, is_empty)
        return output

    def look(self, port: int, batch: EventBatch) -> EventBatch | None:
        return self._looked.keep(batch, self._compute(batch))[0]

    def forget_looked(self) -> None:
        self._looked.clear()

    def _compute(self, batch: EventBatch) -> tuple[EventBatch, Mask]:
        """What becomes of the elements, and which of them bring an event that comes to nothing."""
        if bool((batch.kind == INSERT).all()):
            start, end = self._alter(batch.vs, batch.ve)
            return _make_changes(start, start, end, batch.payload, end > start), end <= start
        was, now = old_end(batch), new_end(batch)
        # "Not there" has no lifetime to alter: it starts and ends where the event it turns into starts.
        is_new, is_gone = was == batch.vs, now == batch.vs
        old_start, old = self._alter(batch.vs, np.where(is_new, now, was))
        new_start, new = self._alter(batch.vs, np.where(is_gone, was, now))
        is_empty = is_new & (new <= new_start)
        old, new = np.where(is_new, old_start, old), np.where(is_gone, new_start, new)
        if bool((old_start == new_start).all()):
            return _make_changes(new_start, old, new, batch.payload, old != new), is_empty
        return _make_moves(old_start, old, new_start, new, batch.payload), is_empty

    def _count_lost(self, batch: EventBatch, is_empty: Mask) -> None:
        """Events that would begin or end beyond time are dropped, and counted."""
        if self._lifetime.may_leave_time and bool(is_empty.any()):
            lost = batch.filter(is_empty)
            self._counts[BEYOND_TIME] += len(lost)
            self._dropped.append((BEYOND_TIME, lost))

    def _alter(self, vs: Ticks, ve: Ticks) -> tuple[Ticks, Ticks]:
        start = self._lifetime.start(vs, ve)
        return start, np.maximum(start, self._lifetime.end(vs, ve))

    def on_cti(self, port: int, t: int) -> Output:
        """Only forward, and the end of time is the end of time (rulings D5, A8)."""
        reached = t if t == FOREVER else self._lifetime.cti(t)
        return self.emit(self.out_cti if reached is None else reached)

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        return [self._lifetime.feedback(t)]

    def no_effect_before(self, port: int, t: int) -> int:
        """At most ``t``: to lengthen a lifetime that was empty is an insert, with effect from its start."""
        since = self._lifetime.feedback(t)
        return BEGINNING if since is None else min(since, t)

    def orphans(self, port: int) -> Orphans:
        """The order of changes does not matter, but an orphan must not become an insert."""
        return "pass" if self._lifetime.keeps_retractions else "stop"


def _make_changes(start: Ticks, old: Ticks, new: Ticks, payload: pa.RecordBatch, matters: Mask) -> EventBatch:
    """The changes that matter."""
    if bool(matters.all()):
        return changes(start, old, new, payload)
    rows = matters.nonzero()[0]
    return changes(start[rows], old[rows], new[rows], take_rows(payload, rows))


def _make_moves(
    old_start: Ticks, old: Ticks, new_start: Ticks, new: Ticks, payload: pa.RecordBatch
) -> EventBatch:
    """Where the start moved too, one event goes and another comes, the earlier of them first."""
    stays = old_start == new_start
    row = np.arange(len(old))
    goes, comes = ~stays & (old > old_start), (new > new_start) & ~stays
    moves = stays & (old != new)
    rows = np.concatenate([row[moves], row[goes], row[comes]])
    start = np.concatenate([new_start[moves], old_start[goes], new_start[comes]])
    before = np.concatenate([old[moves], old[goes], new_start[comes]])
    after = np.concatenate([new[moves], old_start[goes], new[comes]])
    order = np.lexsort((start, rows))
    return changes(start[order], before[order], after[order], take_rows(payload, rows[order]))
