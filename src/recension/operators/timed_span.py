"""TimedSpan: each event is kept or dropped, and its payload and lifetime computed, from both of them.

Assumes     a valid physical stream; equal events always get equal answers.
Guarantees  the output history is the input history rewritten event by event, after every batch. If a moved
            end changes the payload or the start, the event is removed and inserted anew; if it changes the
            end alone, that is moved; if it changes nothing, nothing is emitted. An output CTI is what the
            rule makes of the input's CTI and, where it must wait, of the first start of an event whose end is
            not final.
State       where CTIs wait: the lifetimes of the events whose ends are not final. Else none.
Cost        O(n) in the batch, O(n log s) where CTIs wait, for s lifetimes.
Source      Consistency Sensitive Streaming Operators in CEDR, §4.2; rulings D8–D15.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Index, Mask, empty, new_end, old_end, take_rows
from recension.core.rowhash import row_hash
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks, Looked, Operator, Orphans, Output
from recension.operators.changes import changes
from recension.operators.state.open_starts import OpenStarts

Gate: TypeAlias = Callable[[pa.RecordBatch, Ticks], Mask]
Rewrite: TypeAlias = Callable[[pa.RecordBatch, Ticks, Ticks], tuple[Mask, pa.RecordBatch, Ticks, Ticks]]
CtiRule: TypeAlias = Callable[[int, int], int]


@dataclass(frozen=True, slots=True)
class _Shown:
    """Events as they are shown; ``row`` is the element of the batch that each comes from."""

    row: Index
    payload: pa.RecordBatch
    start: Ticks
    end: Ticks


class TimedSpan(Operator):
    """``gate`` says which events can be shown at all, ``rewrite`` what becomes of the others.

    ``holds``: CTIs wait for the first start of an event whose end is not final; without ``may_lengthen`` an
    event that ends at the CTI is.
    """

    changes_on_cti = False
    is_all_rows = True

    def __init__(
        self,
        schema: pa.Schema,
        gate: Gate | None,
        rewrite: Rewrite,
        rule: CtiRule,
        *,
        holds: bool,
        may_lengthen: bool,
    ) -> None:
        super().__init__(schema)
        self._gate, self._rewrite, self._rule = gate, rewrite, rule
        self._open = OpenStarts() if holds else None
        self._may_lengthen = may_lengthen
        self._looked = Looked[tuple[EventBatch, EventBatch]]()
        self.shards_share_ctis = not holds

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        batch, output = self._looked.take(batch) or self._compute(batch)  # first: it may refuse an event
        if self._open is not None and len(batch):
            self._open.change(batch.vs, old_end(batch), new_end(batch))
        return output

    def look(self, port: int, batch: EventBatch) -> EventBatch | None:
        return self._looked.keep(batch, self._compute(batch))[1]

    def forget_looked(self) -> None:
        self._looked.clear()

    def _compute(self, batch: EventBatch) -> tuple[EventBatch, EventBatch]:
        """The elements that pass the gate, and what becomes of them."""
        if self._gate is not None and len(batch):
            batch = batch.filter(self._gate(batch.payload, batch.vs))
        if not len(batch):
            return batch, empty(self.schema)
        return batch, self._change(batch, old_end(batch), new_end(batch))

    def _change(self, batch: EventBatch, was: Ticks, now: Ticks) -> EventBatch:
        if bool((batch.kind == INSERT).all()):
            shown = self._show(batch, np.arange(len(batch)), now)
            return changes(shown.start, shown.start, shown.end, shown.payload)
        old = self._show(batch, (was != batch.vs).nonzero()[0], was)
        new = self._show(batch, (now != batch.vs).nonzero()[0], now)
        return _make_changes(old, new)

    def _show(self, batch: EventBatch, rows: Index, end: Ticks) -> _Shown:
        payload = batch.payload if len(rows) == len(batch) else take_rows(batch.payload, rows)
        shown, payload, start, until = self._rewrite(payload, batch.vs[rows], end[rows])
        return _Shown(rows[shown], payload, start, until)

    def on_cti(self, port: int, t: int) -> Output:
        """At the end of time all is final (ruling A8)."""
        if t == FOREVER:
            if self._open is not None:
                self._open.clear()
            return self.emit(t)
        since = t
        if self._open is not None:
            # What never ends is never final before the end of time.
            final = t if self._may_lengthen else min(t + 1, FOREVER - 1)
            since = min(t, self._open.first_open(final))
        return self.emit(self._rule(t, since))

    def orphans(self, port: int) -> Orphans:
        """An orphan would become an insert."""
        return "stop"

    def no_effect_before(self, port: int, t: int) -> int:
        return BEGINNING

    def state_rows(self) -> int:
        return 0 if self._open is None else len(self._open)

    def state_bytes(self) -> int:
        return 0 if self._open is None else self._open.nbytes()

    def snapshot_state(self) -> Chunks:
        return {} if self._open is None else {"open": self._open}

    def restore_state(self, chunks: Chunks) -> None:
        if self._open is not None:
            self._open.restore(chunks["open"])


def _make_changes(old: _Shown, new: _Shown) -> EventBatch:
    """Where payload and start are the same, the end moves; else one event goes and another comes.

    Of each element in order of time, and at one time what goes first.
    """
    _, was, now = np.intersect1d(old.row, new.row, assume_unique=True, return_indices=True)
    stays = old.start[was] == new.start[now]
    stays &= row_hash(take_rows(old.payload, was), len(was)) == row_hash(
        take_rows(new.payload, now), len(now)
    )
    was, now = was[stays], now[stays]
    moves = old.end[was] != new.end[now]
    goes, comes = np.delete(np.arange(len(old.row)), was), np.delete(np.arange(len(new.row)), now)
    was, now = was[moves], now[moves]
    rows = np.concatenate([old.row[was], old.row[goes], new.row[comes]])
    start = np.concatenate([new.start[now], old.start[goes], new.start[comes]])
    before = np.concatenate([old.end[was], old.end[goes], new.start[comes]])
    after = np.concatenate([new.end[now], old.start[goes], new.end[comes]])
    order = np.lexsort((start, rows))
    payload = pa.concat_batches([old.payload, new.payload])
    at = np.concatenate([was, goes, len(old.row) + comes])[order]
    return changes(start[order], before[order], after[order], take_rows(payload, at))
