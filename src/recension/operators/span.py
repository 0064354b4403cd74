"""Span: each event is kept or dropped, and its payload mapped, by itself; lifetimes stay.

Assumes     a valid physical stream; the same payload always gets the same answer, or a retraction would miss.
Guarantees  the output history is the input history filtered and mapped, after every batch; elements keep
            their order, and CTIs pass unchanged.
State       none.
Cost        O(n) in the batch.
Source      Consistency Sensitive Streaming Operators in CEDR, §4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, Literal, TypeAlias

import pyarrow as pa

from recension.core.batch import EventBatch, Mask, empty
from recension.core.ticks import Ticks
from recension.operators.base import Looked, Operator, Orphans, Output

Transform: TypeAlias = Callable[[pa.RecordBatch], tuple[Mask | None, pa.RecordBatch]]


class Span(Operator):
    """One pass over a batch: ``transform`` gives which rows to keep (None: all) and their new payload."""

    changes_on_cti = False
    external_ctis: ClassVar[Literal["stop", "pass", "take"]] = "pass"
    shards_share_ctis = True
    is_all_rows = True

    def __init__(self, schema: pa.Schema, transform: Transform) -> None:
        super().__init__(schema)
        self._transform = transform
        self._looked = Looked[EventBatch]()

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        found = self._looked.take(batch)
        return self._rewrite(batch) if found is None else found

    def look(self, port: int, batch: EventBatch) -> EventBatch | None:
        return self._looked.keep(batch, self._rewrite(batch))

    def forget_looked(self) -> None:
        self._looked.clear()

    def _rewrite(self, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        keep, payload = self._apply(batch)
        if keep is None or bool(keep.all()):
            return replace(batch, payload=payload)
        kind, vs, ve, new_ve = batch.kind[keep], batch.vs[keep], batch.ve[keep], batch.new_ve[keep]
        return EventBatch(kind, vs, ve, new_ve, batch.count[keep], payload)

    def _apply(self, batch: EventBatch) -> tuple[Mask | None, pa.RecordBatch]:
        return self._transform(_with_length(batch))

    def on_cti(self, port: int, t: int) -> Output:
        return self.emit(t)

    def check_last(self, batch: EventBatch) -> EventBatch | None:
        with suppress(Exception):  # of a user's function: the step itself will tell
            return self._rewrite(batch)
        return None

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """Lifetimes stay: what ends before ``t`` does so on both sides."""
        return [t]

    def no_effect_before(self, port: int, t: int) -> int:
        return t

    def orphans(self, port: int) -> Orphans:
        return "pass"


class StartSpan(Span):
    """A span whose transform also sees where each event starts: that stays as long as the event does."""

    def __init__(
        self, schema: pa.Schema, transform: Callable[[pa.RecordBatch, Ticks], tuple[Mask, pa.RecordBatch]]
    ) -> None:
        super().__init__(schema, lambda payload: (None, payload))
        self._of_starts = transform

    def _apply(self, batch: EventBatch) -> tuple[Mask | None, pa.RecordBatch]:
        return self._of_starts(batch.payload, batch.vs)


def _with_length(batch: EventBatch) -> pa.RecordBatch:
    """The payload. One without columns is given its length, so that literals can be repeated as often."""
    if batch.payload.num_columns:
        return batch.payload
    rows = pa.StructArray.from_buffers(pa.struct([]), len(batch), [None])
    return pa.RecordBatch.from_struct_array(rows)
