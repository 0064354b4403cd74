"""Temporal equijoin: pairs of events whose keys match, alive while both are.

Assumes     each input is a valid physical stream; in a step port 0 comes before port 1.
Guarantees  after every batch the output history is the join of the input histories; an output CTI is the
            least of the input CTIs; one change at most per pair of events and batch.
State       both inputs' events, by (key, lifetime), until the other input's CTI has passed their end.
Cost        O((n + m) log s) for n inputs and m outputs, s events in state.
Source      Consistency Sensitive Streaming Operators in CEDR, §4.3; rulings C1–C7.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, inserts, take_rows
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING
from recension.operators.base import Chunks, Operator, Output, changes
from recension.operators.join_columns import LEFT, RIGHT, JoinedColumn, JoinedPayload, Predicate, Side
from recension.operators.state.live_events import LiveEvents
from recension.operators.state.net_changes import NetChanges, net_changes


class Join(Operator):
    """The symmetric join of two inputs on equal keys, overlap and a predicate over the joined payload."""

    def __init__(
        self, left: Side, right: Side, columns: Sequence[JoinedColumn], where: Predicate | None = None
    ) -> None:
        self._joined = JoinedPayload(left.schema, right.schema, columns)
        super().__init__(self._joined.schema)
        self._sides = (left, right)
        self._where = where
        self._sources = [self._joined.sources(side) for side in (LEFT, RIGHT)]
        self._live = [
            LiveEvents(pa.schema([side.schema.field(name) for name in names]))
            for side, names in zip(self._sides, self._sources, strict=True)
        ]
        self._cti = [BEGINNING, BEGINNING]

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        batch = batch.filter(self._sides[port].has_keys(batch.payload, len(batch)))
        change = net_changes(batch)
        group = self._sides[port].groups(batch.payload, len(batch))[change.row]
        kept = batch.payload.select(self._sources[port])
        output = self._meet(port, change, group, kept)
        self._live[port].apply(change, group, kept, ending_after=self._cti[1 - port])
        return output

    def _meet(self, port: int, change: NetChanges, group: Hashes, payload: pa.RecordBatch) -> EventBatch:
        """The changes of all pairs with an event x of the other side.

        #   change     vs |=====| old      | new         the part between old and new appears or vanishes,
        #   x               |-----------|                where x is alive
        """
        other = self._live[1 - port]
        at, x = other.overlapping(
            group, np.minimum(change.old, change.new), np.maximum(change.old, change.new)
        )
        rows = [take_rows(payload, change.row.take(at)), other.payload(x)]
        joined = self._joined.of(rows if port == LEFT else rows[::-1])
        x_ve = other.column("ve", x)
        start = np.maximum(change.vs.take(at), other.column("vs", x))
        new = np.maximum(start, np.minimum(change.new.take(at), x_ve))
        if change.is_insert_only:
            return inserts(start, new, joined)
        old = np.maximum(start, np.minimum(change.old[at], x_ve))
        return changes(start, old, new, joined)

    def on_cti(self, port: int, t: int) -> Output:
        self._cti[port] = max(self._cti[port], t)
        self._live[1 - port].expire(t)
        return self.promise(min(self._cti))
