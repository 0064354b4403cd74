"""Cleanse, each group by itself: only what is final in it, without retractions and in order.

Assumes     a valid physical stream.
Guarantees  events of a group come out by (vs, payload, ve). At a CTI all come out up to the first of the
            group that can still change; the output CTI is the first such start of any group, or the input's
            CTI if that is earlier. After the last CTI the output history is the input history.
State       the events that did not come out yet: one that lives long holds back all that start after it.
Cost        O(n log n) in the batch; at the CTI after it a look at all events held.
Source      Physically Independent Stream Merging, §V; LMerge ruling 31.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, empty, inserts
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks, Operator, Output
from recension.operators.changes import net_changes
from recension.operators.state.event_store import EventStore
from recension.operators.state.progress import group_hash
from recension.operators.value_order import order_by_payload


class GroupedCleanse(Operator):
    """Keeps the reconstituted history until it is final.

    ``by`` names the columns whose values tell groups apart, each cleansed by itself.
    """

    def __init__(self, schema: pa.Schema, by: Sequence[str]) -> None:
        super().__init__(schema)
        self._by = by
        self._held = EventStore(schema)
        # The first start of any group's first event held back, and the first end of these: nothing comes out
        # before a CTI passes that.
        self._first_start, self._first_end = FOREVER, BEGINNING

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if len(batch):
            changed = net_changes(batch)
            self._first_end = BEGINNING
            group = group_hash(batch, self._by)[changed.row]
            self._held.apply(changed, group, batch.payload)
        return empty(self.schema)

    def on_cti(self, port: int, t: int) -> Output:
        if t <= self._first_end and t < FOREVER:
            return self.emit(min(t, self._first_start))
        at = self._held.positions()
        if not len(at):
            self._first_start, self._first_end = FOREVER, BEGINNING
            return self.emit(t)
        vs, ve = self._held.column("vs", at), self._held.column("ve", at)
        is_open = (ve >= t) & (t < FOREVER)
        group = self._groups(at)
        first = np.full(int(group.max()) + 1, FOREVER)
        np.minimum.at(first, group[is_open], vs[is_open])
        candidates = (vs <= first[group]).nonzero()[0]
        order = candidates[
            order_by_payload(
                [vs[candidates], group[candidates]],
                ve[candidates],
                lambda tied: self._held.payload(at[candidates[tied]]),
            )
        ]
        before = _count_open_before(group[order], is_open[order])
        self._first_start = int(first.min())
        ends = ve[order[(before == 0) & is_open[order]]]
        self._first_end = int(ends.min()) if len(ends) else BEGINNING
        free = order[(before == 0) & ~is_open[order]]
        released = free[vs[free].argsort(kind="stable")]
        return self.emit(min(t, self._first_start), self._release(at[released], vs[released], ve[released]))

    def _groups(self, at: Index) -> Index:
        """Small numbers for the groups of the events at these positions."""
        return np.unique(self._held.column("group", at), return_inverse=True)[1]

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """Lifetimes stay; an event that is not there holds back no other."""
        return [t]

    def _release(self, at: Index, vs: Ticks, ve: Ticks) -> EventBatch:
        if not len(at):
            return empty(self.schema)
        out = inserts(vs, ve, self._held.payload(at))
        self._held.remove(at)
        self._held.expire(BEGINNING)
        return out

    def trace(self) -> tuple[int, ...] | None:
        return self._first_start, self._first_end

    def state_rows(self) -> int:
        return self._held.count_live()

    def state_bytes(self) -> int:
        return self._held.nbytes()

    def snapshot_state(self) -> Chunks:
        first = pa.table({"start": [self._first_start], "end": [self._first_end]})
        return {"first": first, **self._held.parts("held")}

    def restore_state(self, chunks: Chunks) -> None:
        first = chunks["first"].to_pylist()[0]
        self._first_start, self._first_end = first["start"], first["end"]
        self._held.restore("held", chunks)


def _count_open_before(group: Index, is_open: Mask) -> Index:
    """How many open events lie before each, in its group; groups lie one after the other."""
    before: Index = is_open.cumsum() - is_open
    first = np.append(True, group[1:] != group[:-1]).nonzero()[0]
    return before - before[first].repeat(np.diff(np.append(first, len(group))))
