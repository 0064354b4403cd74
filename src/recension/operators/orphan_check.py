"""Retractions of events that are not there are dropped, for readers that cannot mend them.

Assumes     a valid stream but for such retractions.
Guarantees  a valid stream; what is dropped is counted and kept.
State       the events that a later retraction may still name.
Cost        O(n log n) in the batch.
Source      Operator Algorithm Design for Speculative Stream Processing, §2.2.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Literal

import pyarrow as pa

from recension.core.batch import EventBatch, cti
from recension.core.validity import Checker
from recension.operators.base import Chunks, Operator, Orphans, Output


class OrphanCheck(Operator):
    """Stands on a source that Finalize or a merge reads as it comes, below its other readers."""

    changes_on_cti = False
    external_ctis: ClassVar[Literal["stop", "pass", "take"]] = "pass"

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._checker = Checker("drop")

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        return self._checker.check(batch)

    def on_cti(self, port: int, t: int) -> Output:
        self._checker.check(cti(t, self.schema))
        return self.emit(t)

    def no_effect_before(self, port: int, t: int) -> int:
        """What has no effect on readers need not be checked either."""
        self._checker.forget_before(t)
        return t

    def orphans(self, port: int) -> Orphans:
        return "take"

    def counts(self) -> Counter[str]:
        return self._checker.counts

    def take_dropped(self) -> list[tuple[str, EventBatch]]:
        return self._checker.take_dropped()

    def state_rows(self) -> int:
        return self._checker.state_rows()

    def state_bytes(self) -> int:
        return self._checker.state_bytes()

    def snapshot_state(self) -> Chunks:
        return self._checker.snapshot()

    def restore_state(self, chunks: Chunks) -> None:
        self._checker.restore(chunks)
