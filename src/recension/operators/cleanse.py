"""Cleanse: only what is final, without retractions and in order.

Assumes     a valid physical stream.
Guarantees  events come out by (vs, payload, ve). At a CTI all come out up to the first that can still change;
            the output CTI is the start of that one, or the input's CTI if that is earlier. After the last CTI
            the output history is the input history.
State       the events that did not come out yet: one that lives long holds back all that start after it.
Cost        O(n log n) in the batch and in what comes out, and once in all events that start together; again
            when a batch changes one of those that start first whose payload another has too.
Source      Physically Independent Stream Merging, §V; LMerge ruling 31.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, empty, inserts
from recension.core.ticks import FOREVER, Ticks
from recension.operators.base import Chunks, Operator, Output
from recension.operators.changes import NetChanges, net_changes
from recension.operators.state.events_by_start import EventsByStart, Front, is_open_at
from recension.operators.value_order import order_by_payload


class Cleanse(Operator):
    """Keeps the reconstituted history until it is final.

    The events that start with the first one held back stand apart, in ``_front``.
    """

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._held = EventsByStart(schema)
        self._front: Front | None = None

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if len(batch):
            changed = net_changes(batch)
            if self._front is not None:
                changed = self._change_front(self._front, changed)
            self._held.apply(changed, batch.payload)
        return empty(self.schema)

    def _change_front(self, front: Front, changed: NetChanges) -> NetChanges:
        """Change the front; the changes that are not of it. If it cannot take its own, it is dissolved."""
        is_front = changed.vs == front.start
        is_behind = bool((changed.vs < front.start).any())
        gone = None if is_behind else front.change(changed.take(is_front))
        if gone is None:
            self._held.add(front.rows())
            self._front = None
            return changed
        self._held.drop(gone)
        return changed.take(~is_front)

    def on_cti(self, port: int, t: int) -> Output:
        front = self._front
        if front is not None and t <= front.first_end and t < FOREVER:
            return self.emit(min(t, front.start))
        parts: list[tuple[Ticks, Ticks, Index]] = []
        if front is not None:
            end, row = front.release(t)
            parts.append((np.full(len(end), front.start), end, row))
            self._front = front if front.at < len(front.end) else None
        if self._front is None and len(self._held):
            parts.append(self._release(t))
        reached = t if self._front is None else min(t, self._front.start)
        return self.emit(reached, self._make_inserts(parts))

    def _release(self, t: int) -> tuple[Ticks, Ticks, Index]:
        """Take out the events up to the first that is not final; those of its start are the new front."""
        head = self._held.read_until_open(t)
        columns = [head.columns[name][~head.follower] for name in ("group", "end", "row", "time")]
        is_open = is_open_at(columns[1], t)
        first = int(columns[0][is_open].min(initial=FOREVER))
        out = (columns[0] <= first).nonzero()[0]
        starts, ends, rows = (column[out] for column in columns[:3])
        out = out[order_by_payload([starts], ends, lambda tied: self._held.payload(rows[tied]))]
        size = int(is_open[out].argmax()) if bool(is_open[out].any()) else len(out)
        if size < len(out):
            _, end, row, payload_hash = (column[out[size:]] for column in columns)
            self._front = Front(first, end, row, payload_hash.view(np.uint64))
        kept = ~head.follower
        kept[out] = False
        self._held.keep(head, kept)
        vs, ve, row, _ = (column[out[:size]] for column in columns)
        return vs, ve, row

    def _make_inserts(self, parts: list[tuple[Ticks, Ticks, Index]]) -> EventBatch:
        if not sum(len(row) for _, _, row in parts):
            return empty(self.schema)
        vs, ve, row = (np.concatenate(column) for column in zip(*parts, strict=True))
        given = inserts(vs, ve, self._held.payload(row))
        self._held.drop(row)
        return given

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """Lifetimes stay; an event that is not there holds back no other."""
        return [t]

    def is_endless(self) -> bool:
        front = () if self._front is None else self._front.end[self._front.at :]
        return self._held.is_endless() or FOREVER in front

    def trace(self) -> tuple[int, ...] | None:
        return ()

    def state_rows(self) -> int:
        return len(self._held) + (0 if self._front is None else len(self._front))

    def state_bytes(self) -> int:
        return self._held.nbytes() + (0 if self._front is None else self._front.nbytes())

    def snapshot_state(self) -> Chunks:
        front = (
            {"front": pa.table(self._front.rows())} if self._front is not None and len(self._front) else {}
        )
        return front | self._held.parts("held")

    def restore_state(self, chunks: Chunks) -> None:
        self._held.restore("held", chunks)
        front = chunks.get("front", ())
        self._front = Front.restore(front) if len(front) else None
