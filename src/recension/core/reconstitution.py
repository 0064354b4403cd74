"""Reconstitution: from a physical stream to its history.

Assumes     nothing of order or CTIs; every retraction must meet an event that was announced.
Guarantees  the history is the bag of events left when every retraction is applied.
State       the announced events not yet cancelled, compacted when two thirds have cancelled out.
Cost        O(n log n) in the elements retractions touch, O(n) in the others; amortised over batches.
Source      Operator Algorithm Design for Speculative Stream Processing, §2.1; LMerge, §III-A.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from recension.core.batch import RETRACT, EventBatch, Index, Mask, concat, new_end, take_rows
from recension.core.errors import RecensionError, StreamError
from recension.core.history import History
from recension.core.netting import cancel
from recension.core.rowhash import Hashes, combine, row_hash, rows_equal
from recension.core.ticks import FOREVER

_COMPACT_AT = 1 << 28
_MULTIPLE = 3
_CONTROL_BYTES = 33
_LONGEST = 1 << 30


def reconstitute(batches: Iterable[EventBatch], schema: pa.Schema) -> History:
    """The canonical history of a stream."""
    builder = HistoryBuilder(schema)
    for batch in batches:
        builder.add(batch)
    return builder.build()


class HistoryBuilder:
    """Collects elements and cancels them against each other from time to time.

    That is when they are ``compact_at`` bytes and several times as many as the events that they leave.
    """

    def __init__(self, schema: pa.Schema, compact_at: int = _COMPACT_AT) -> None:
        self._schema, self._compact_at = schema, compact_at
        self._pending: list[EventBatch] = []
        self._elements = self._events = self._bytes = 0

    def __len__(self) -> int:
        """How many events the history has, if the stream is valid."""
        return self._events

    def add(self, batch: EventBatch) -> None:
        """Take in the next elements of the stream."""
        data = batch.filter(batch.is_data())
        if len(data):
            self._pending.append(data)
            self._elements += len(data)
            self._events += _count_inserts(data) - _count_removals(data)
            self._bytes += _size(data)
        if self._elements >= _MULTIPLE * self._events and self._bytes >= self._compact_at:
            self._compact()

    def build(self) -> History:
        """The history of everything taken in so far."""
        self._compact()
        parts = self._pending
        payload = pa.Table.from_batches([p.payload for p in parts], self._schema)
        none = np.zeros(0, np.int64)
        return History(
            np.concatenate([none, *(p.vs for p in parts)]),
            np.concatenate([none, *(new_end(p) for p in parts)]),
            payload,
        )

    def _compact(self) -> None:
        """Keep only the elements whose announced lifetime still stands."""
        if not any(bool((p.kind == RETRACT).any()) for p in self._pending):
            return
        # As one batch while that is possible: text of more than 2 GiB does not fit into one Arrow array.
        if sum(p.payload.nbytes for p in self._pending) < _LONGEST:
            self._pending = [concat(self._pending)]
        lifetimes = [_identities(p) for p in self._pending]
        # A removal announces nothing: its new end is its start.
        announces = [new_end(p) > p.vs for p in self._pending]
        retracts = [p.kind == RETRACT for p in self._pending]
        added = np.concatenate([after[a] for (_, after), a in zip(lifetimes, announces, strict=True)])
        removed = np.concatenate([before[r] for (before, _), r in zip(lifetimes, retracts, strict=True)])
        survives, cancelled, by = cancel(added, removed)
        self._refuse_unmatched(len(removed), by)
        self._verify(
            np.flatnonzero(np.concatenate(announces))[cancelled], np.flatnonzero(np.concatenate(retracts))[by]
        )
        keep = np.concatenate(announces)
        keep[keep] = survives
        self._keep(keep)

    def _refuse_unmatched(self, removals: int, matched: Index) -> None:
        if len(matched) == removals:
            return
        unmatched = np.ones(removals, np.bool_)
        unmatched[matched] = False
        retractions = concat([p.filter(p.kind == RETRACT) for p in self._pending])
        first = retractions.take(np.flatnonzero(unmatched)[:1]).to_elements()[0]
        raise StreamError(f"no such event to retract: {first}")

    def _verify(self, added: Index, removed: Index) -> None:
        """Equal hashes must mean equal events; see rowhash for the odds."""
        bounds = np.cumsum([0, *map(len, self._pending)])
        vs, ve = (np.concatenate([getattr(p, name) for p in self._pending]) for name in ("vs", "ve"))
        end = np.concatenate([new_end(p) for p in self._pending])
        left, right = (_gather(self._pending, bounds, rows) for rows in (added, removed))
        same = (vs[added] == vs[removed]) & (end[added] == ve[removed])
        if not bool((same & rows_equal(left, right, len(added))).all()):
            raise RecensionError("two different payloads share a 64-bit hash; the history would be wrong")

    def _keep(self, keep: Mask) -> None:
        bounds = np.cumsum([0, *map(len, self._pending)])
        kept = [p.filter(keep[a:b]) for p, a, b in zip(self._pending, bounds, bounds[1:], strict=False)]
        self._pending = [_to_inserts(p) for p in kept if len(p)]
        self._elements = self._events = sum(map(len, self._pending))
        self._bytes = sum(map(_size, self._pending))


def _count_inserts(batch: EventBatch) -> int:
    return len(batch) - int(np.count_nonzero(batch.kind))


def _count_removals(batch: EventBatch) -> int:
    """How many elements take an event away altogether: only of a retraction can the new end be the start."""
    return int(np.count_nonzero(batch.new_ve == batch.vs))


def _size(batch: EventBatch) -> int:
    """How many bytes it takes."""
    return _CONTROL_BYTES * len(batch) + int(batch.payload.nbytes)


def _identities(batch: EventBatch) -> tuple[Hashes, Hashes]:
    """Hashes of the lifetime an element takes away and of the one it announces."""
    start = combine(row_hash(batch.payload, len(batch)), batch.vs)
    return combine(start, batch.ve), combine(start, new_end(batch))


def _to_inserts(batch: EventBatch) -> EventBatch:
    forever = np.full(len(batch), FOREVER)
    return EventBatch(
        np.zeros(len(batch), np.uint8), batch.vs, new_end(batch), forever, batch.count, batch.payload
    )


def _gather(batches: list[EventBatch], bounds: Index, rows: Index) -> pa.RecordBatch:
    """Payloads by position over all batches, in the order asked for."""
    if len(batches) == 1:
        return take_rows(batches[0].payload, rows)
    order = np.argsort(rows, kind="stable")
    cuts = np.searchsorted(rows[order], bounds)
    parts = [
        take_rows(batch.payload, rows[order[a:b]] - start)
        for batch, a, b, start in zip(batches, cuts, cuts[1:], bounds, strict=False)
        if b > a
    ]
    if not parts:
        return batches[0].payload.slice(0, 0)
    back = np.empty(len(rows), np.int64)
    back[order] = np.arange(len(rows))
    return take_rows(pa.concat_batches(parts), back)
