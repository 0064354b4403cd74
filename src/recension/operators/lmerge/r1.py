"""R1: the merge of insert-only streams in order of start, with ties in the same order everywhere.

Assumes     every input is insert-only and in order of start; all send the events of one start in one order,
            and lose none of them (ruling 15: where elements may be lost, R2 is the case).
Guarantees  of the events of the furthest start as many as any input has sent; of later ones all.
State       the furthest start and how many of its events were shown; for each input its last start and how
            many of its events it has sent (ruling 14).
Cost        O(log n) a batch beyond the check of its order; what is shown is a slice of it.
Source      Physically Independent Stream Merging, §IV-B; rulings 5, 13–16.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch
from recension.core.ticks import BEGINNING
from recension.operators.base import Chunks
from recension.operators.lmerge.in_order import InOrderMerge


class R1(InOrderMerge):
    """Positions within a start tell what is new."""

    case = "R1"

    def __init__(self, schema: pa.Schema, ports: int, *, remembers: bool = False) -> None:
        super().__init__(schema, ports, remembers=remembers)
        self._shown = 0
        self._sent = [(BEGINNING, 0)] * ports

    def select_new(self, port: int, batch: EventBatch) -> EventBatch:
        low, high = (int(np.searchsorted(batch.vs, self.max_vs, side=side)) for side in ("left", "right"))
        own_vs, own_count = self._sent[port]
        sent = own_count if own_vs == self.max_vs else 0
        first = min(low + max(0, self._shown - sent), high)
        first = max(first, int(np.searchsorted(batch.vs, self.out_cti)))
        self._count(port, batch, first)
        return batch.slice(first, len(batch))

    def _count(self, port: int, batch: EventBatch, first: int) -> None:
        last = int(batch.vs[-1])
        tied = len(batch) - int(np.searchsorted(batch.vs, last))
        own_vs, own_count = self._sent[port]
        self._sent[port] = (last, tied + (own_count if own_vs == last else 0))
        if last > self.max_vs:
            self.max_vs, self._shown = last, 0
        if last == self.max_vs:
            self._shown = max(self._shown, self._sent[port][1])

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """Events of the furthest start are known by their position: all of them are needed (ruling 47)."""
        return [min(t, self.out_cti)] * len(self.inputs)

    def on_attach(self, port: int) -> None:
        super().on_attach(port)
        self._sent.append((BEGINNING, 0))

    def snapshot_state(self) -> Chunks:
        sent = {"vs": [vs for vs, _ in self._sent], "count": [count for _, count in self._sent]}
        kinds = pa.schema([("vs", pa.int64()), ("count", pa.int64())])
        counts = {"sent": pa.table(sent, kinds), "shown": pa.table({"count": [self._shown]})}
        return {**super().snapshot_state(), **counts}

    def restore_state(self, chunks: Chunks) -> None:
        super().restore_state(chunks)
        self._shown = chunks["shown"]["count"][0].as_py()
        sent = chunks["sent"]
        self._sent = list(zip(sent["vs"].to_pylist(), sent["count"].to_pylist(), strict=True))
