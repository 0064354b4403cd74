"""Cleanse: only what is final, without retractions and in order.

Assumes     a valid physical stream.
Guarantees  at every CTI the longest run of events, by (vs, payload, ve), of which none can change any more is
            put out; the output CTI is the start of the first event held back, if that is before the input's.
            After the last CTI the output history is the input history.
State       the events that were not put out: one that lives long holds back all that start after it.
Cost        O(n log n) in the batch and in what comes out; when the first event held back has become final, a
            look at all that start with the next one.
Source      Physically Independent Stream Merging, §V; LMerge ruling 31.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, empty, inserts
from recension.core.rowhash import row_hash
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks, Operator, Output
from recension.operators.snapshot.events import payload_keys
from recension.operators.state.events_by_start import EventsByStart, is_open_at
from recension.operators.state.net_changes import NetChanges, net_changes


class Cleanse(Operator):
    """Keeps the reconstituted history until it is final."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._held = EventsByStart(schema)
        self._nothing_held_back()

    def _nothing_held_back(self) -> None:
        """The first event held back, with the hash of its payload: nothing comes out before a CTI passes
        its end."""
        self._first_start, self._first_end, self._first_hash = FOREVER, BEGINNING, 0

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if len(batch):
            changed = net_changes(batch)
            if bool(self._may_lead(changed).any()):
                self._first_end = BEGINNING
            self._held.apply(changed, batch.payload)
        return empty(self.schema)

    def _may_lead(self, changed: NetChanges) -> Mask:
        """Which changes are of the first event held back, or may be of one before it."""
        is_like_first = (changed.old == changed.vs) | (changed.hash == np.uint64(self._first_hash))
        may_lead: Mask = (changed.vs < self._first_start) | (changed.vs == self._first_start) & is_like_first
        return may_lead

    def on_cti(self, port: int, t: int) -> Output:
        if t <= self._first_end and t < FOREVER:
            return self.promise(min(t, self._first_start))
        self._nothing_held_back()
        released = self._released(t) if len(self._held) else empty(self.schema)
        return self.promise(min(t, self._first_start), released)

    def _released(self, t: int) -> EventBatch:
        """Take out the longest run of events that are final; note the first that is not."""
        head = self._held.until_open(t)
        vs, ve, row = (head.columns[name][~head.follower] for name in ("group", "end", "row"))
        is_open = is_open_at(ve, t)
        self._first_start = int(vs[is_open].min(initial=FOREVER))
        candidates = np.flatnonzero(vs <= self._first_start)
        order = candidates[self._order(row[candidates], vs[candidates], ve[candidates])]
        size = int(is_open[order].argmax()) if bool(is_open[order].any()) else len(order)
        if size < len(order):
            first = order[size : size + 1]
            self._first_end = int(ve[first[0]])
            self._first_hash = int(row_hash(self._held.payload(row[first]), 1)[0])
        out, kept = order[:size], ~head.follower
        released = inserts(vs[out], ve[out], self._held.payload(row[out])) if size else empty(self.schema)
        kept[out] = False
        self._held.keep(head, kept)
        return released

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """Lifetimes stay; an event that is not there holds back no other."""
        return [t]

    def _order(self, row: Index, vs: Ticks, ve: Ticks) -> Index:
        """By start, payload and end; payloads are compared where starts are equal."""
        order = np.lexsort((ve, vs))
        tied = np.append(False, vs[order][1:] == vs[order][:-1])
        tied |= np.append(tied[1:], False)
        rows = order[tied]
        if len(rows):
            keys = payload_keys(self._held.payload(row[rows]))
            order[tied] = rows[np.lexsort((ve[rows], *keys[::-1], vs[rows]))]
        return order

    def state_rows(self) -> int:
        return len(self._held)

    def state_bytes(self) -> int:
        return self._held.nbytes()

    def state_chunks(self) -> Chunks:
        columns = {"start": pa.array([self._first_start], pa.int64()), "end": [self._first_end]}
        first = pa.table(columns | {"hash": pa.array([self._first_hash], pa.uint64())})
        return {"first": first, **self._held.chunks("held")}

    def load_chunks(self, chunks: Chunks) -> None:
        first = chunks["first"].to_pylist()[0]
        self._first_start, self._first_end, self._first_hash = first["start"], first["end"], first["hash"]
        self._held.load("held", chunks)
