"""Coalesce by an equivalence: a run of events, each of which continues the one before it, is one event.

Assumes     a valid physical stream in which no two events of a group start together.
Guarantees  after every batch the output history has one event for each maximal run of neighbours of a group,
            none of which starts after the run so far has ended; it shows the values of the first. CTIs pass
            unchanged: a change moves ends, and beginnings from its own time on.
State       the events of each group from the first on that lives at the last CTI, the one before the CTI
            among them, and how far the run reaches at each.
Cost        O(n log s) for n elements and s events of state, and the events between each change and the next
            event that belongs to the same run as before and is reached as far.
Source      Temporal Coalescing on Window Extents over Data Streams, Appendix B; coalescing ruling 23.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, empty
from recension.core.rowhash import row_hash
from recension.operators.base import Output, SingleStateOperator
from recension.operators.changes import EventRows, net_changes, transition
from recension.operators.state.chains import ChainEnds, Chains, Equivalent


class Coalesce(SingleStateOperator):
    """``schema`` has the group's columns and those that the equivalence compares."""

    changes_on_cti = False
    shards_share_ctis = True

    def __init__(
        self, schema: pa.Schema, group_by: Sequence[str], on: Sequence[str], equivalent: Equivalent
    ) -> None:
        self._group_by = list(group_by)
        self._chains = Chains(schema, self._group_by, list(on), equivalent)
        super().__init__(schema, self._chains)

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        payload = batch.payload.select(self.schema.names)
        batch = EventBatch(batch.kind, batch.vs, batch.ve, batch.new_ve, batch.count, payload)
        change = net_changes(batch)
        if not len(change):
            return empty(self.schema)
        keys = payload.select(self._group_by)
        group = self._chains.number(keys, len(batch))[change.row]
        out = self._make_changes(*self._chains.apply(change, group, payload))
        self._chains.tidy()
        return out

    def _make_changes(self, old: ChainEnds, new: ChainEnds) -> EventBatch:
        heads = np.concatenate([old.head, new.head])
        distinct, place = np.unique(heads, return_inverse=True)
        hashes = row_hash(self._chains.payload(distinct), len(distinct))[place]
        before = EventRows(old.start, old.end, hashes[: len(old.head)])
        after = EventRows(new.start, new.end, hashes[len(old.head) :])

        def payload(at: Index) -> pa.RecordBatch:
            return self._chains.payload(heads[at])

        return transition(before, after, payload)

    def on_cti(self, port: int, t: int) -> Output:
        self._chains.advance(t)
        return self.emit(t)
