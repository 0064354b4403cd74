"""R0: the merge of insert-only streams whose starts strictly increase.

Assumes     every input is insert-only with strictly increasing starts; an element that is not is an error.
Guarantees  every element that goes beyond the furthest start and the output's stable, once; the output is
            of the same kind. An element that an input lacks is shown if another sends it first.
State       the furthest start; the last start of each input.
Cost        O(log n) a batch beyond the check of its order; what is shown is a slice of it.
Source      Physically Independent Stream Merging, §IV-A; rulings 5, 13, 16.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch
from recension.operators.base import Chunks
from recension.operators.lmerge.in_order import InOrderMerge


class R0(InOrderMerge):
    """Beyond the furthest start everything is new."""

    case = "R0"
    strict = True

    def __init__(self, schema: pa.Schema, ports: int, *, remembers: bool = False) -> None:
        super().__init__(schema, ports, remembers=remembers)
        # Until then the furthest start is that of nothing; an event may start there.
        self._has_begun = False

    def select_new(self, port: int, batch: EventBatch) -> EventBatch:
        first = int(np.searchsorted(batch.vs, self.max_vs, side="right" if self._has_begun else "left"))
        self._has_begun = True
        first = max(first, int(np.searchsorted(batch.vs, self.out_cti)))
        self.max_vs = max(self.max_vs, int(batch.vs[-1]))
        return batch.slice(first, len(batch))

    def snapshot_state(self) -> Chunks:
        return {**super().snapshot_state(), "begun": pa.table({"begun": [self._has_begun]})}

    def restore_state(self, chunks: Chunks) -> None:
        super().restore_state(chunks)
        self._has_begun = chunks["begun"]["begun"][0].as_py()
