"""Union: all events of all inputs, as a bag.

Assumes     each input is a valid physical stream; all have the same columns, in any order.
Guarantees  the output history is the bag union of the input histories, after every batch; the output CTI is
            the least of the input CTIs.
State       the last CTI of each input.
Cost        O(1) a batch whose columns come in the order of the output.
Source      Consistency Sensitive Streaming Operators in CEDR, §3; rulings, section C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch
from recension.core.ticks import BEGINNING
from recension.operators.base import Chunks, Operator, Orphans, Output


class Union(Operator):
    """Elements pass as they come; external CTIs too, each about the input it comes from."""

    changes_on_cti = False
    external_ctis: ClassVar[Literal["stop", "pass", "take"]] = "pass"
    shards_share_ctis = True
    is_all_rows = True

    def __init__(self, schema: pa.Schema, ports: int) -> None:
        super().__init__(schema)
        self._ctis = np.full(ports, BEGINNING)

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if batch.schema.names == self.schema.names:
            return batch
        return replace(batch, payload=batch.payload.select(self.schema.names))

    def look(self, port: int, batch: EventBatch) -> EventBatch | None:
        return self.on_batch(port, batch)

    def on_cti(self, port: int, t: int) -> Output:
        self._ctis[port] = max(int(self._ctis[port]), t)
        return self.emit(int(self._ctis.min()))

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """Lifetimes stay: what ends before ``t`` does so on both sides."""
        return [t] * len(self._ctis)

    def no_effect_before(self, port: int, t: int) -> int:
        return t

    def orphans(self, port: int) -> Orphans:
        return "pass"

    def snapshot_state(self) -> Chunks:
        return {"ctis": pa.table({"cti": self._ctis.copy()})}

    def restore_state(self, chunks: Chunks) -> None:
        self._ctis = chunks["ctis"]["cti"].to_numpy().copy()
