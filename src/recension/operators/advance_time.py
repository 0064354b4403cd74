"""AdvanceTime: CTIs for a stream that sends none, or too few; what comes after its CTI is late.

Assumes     a valid physical stream; its own CTIs count too.
Guarantees  CTIs as the pace says, or as another stream gives them. Where a clock tells of the rows of all
            shards, it also says how far CTIs are before each row. Elements before the last CTI are dropped,
            and so are later changes of a dropped event. With `adjust` they are cut off at the CTI instead,
            and so are later changes of such an event. All are counted. The output is a valid stream.
State       the events dropped or cut off that a later retraction may still name.
Cost        O(n log n) in the batch.
Source      The Extensibility Framework in Microsoft StreamInsight, §II.A; rulings A1 to A4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core import ticks
from recension.core.batch import CTI, EventBatch, Index, Mask, concat, empty, null_payload
from recension.core.late_elements import AdjustedBatch, LateElements
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.validity import ADJUSTED, LATE, frontier_before
from recension.operators.base import Chunks, Operator, Output

Late: TypeAlias = Literal["drop", "adjust"]


@dataclass(frozen=True)
class Pace:
    """CTIs stay ``delay`` behind the greatest start seen; one after so many events, or one an interval."""

    delay: int
    events: int | None = None
    interval: int | None = None

    @property
    def is_counting(self) -> bool:
        """Does it matter how many events there were?"""
        return self.events not in (None, 1)

    def times(self, latest: Ticks) -> Ticks:
        """The CTI that could follow each event, when ``latest`` is the greatest start so far."""
        behind = ticks.add(latest, -self.delay)
        return behind if self.interval is None else ticks.floor(behind, self.interval)

    def is_turn(self, number: Index) -> Mask:
        """After which events, numbered from 1, a CTI may follow."""
        is_turn: Mask = number % (self.events or 1) == 0
        return is_turn


class AdvanceTime(Operator):
    """Port 0 is the stream; CTIs of port 1, where there is one, hold for it too.

    In a shard (``by_clock``) port 1 has, before each batch, a row for every row of the batch, whose start is
    how far the CTIs are before it. ``count`` numbers the rows of the batch from 1: some may be gone.
    """

    changes_on_cti = False
    makes_ctis: ClassVar[bool] = True

    def __init__(self, schema: pa.Schema, pace: Pace | None, late: Late, *, by_clock: bool = False) -> None:
        super().__init__(schema)
        self._pace, self._by_clock = pace, by_clock
        self.shards_share_ctis = by_clock
        self._heard = np.zeros(0, np.int64)
        self._late_elements = LateElements(adjusts=late == "adjust")
        self._latest, self._events = BEGINNING, 0

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if port or not len(batch):
            self._heard = batch.vs if port else self._heard
            return empty(self.schema)
        if self._pace is not None:
            batch = self._insert_ctis(batch, self._pace)
        before = frontier_before(batch, self.out_cti)
        if self._by_clock:
            before = np.maximum(before, self._heard[batch.count - 1])
            batch = replace(batch, count=np.zeros(len(batch), np.int64))
        adjusted = self._late_elements.adjust(batch, before)
        self._count_late(batch, adjusted)
        self._advance(int(batch.vs[batch.kind == CTI].max(initial=self.out_cti)))
        return adjusted.batch.filter(~adjusted.is_dropped)

    def _count_late(self, batch: EventBatch, adjusted: AdjustedBatch) -> None:
        """Count what is dropped or adjusted; keep what is dropped for the reader."""
        for reason, rows in ((LATE, adjusted.is_dropped), (ADJUSTED, adjusted.is_moved)):
            if bool(rows.any()):
                self._counts[reason] += int(rows.sum())
        if bool(adjusted.is_dropped.any()):
            self._dropped.append((LATE, batch.filter(adjusted.is_dropped)))

    def _advance(self, t: int) -> None:
        self.out_cti = max(self.out_cti, t)
        self._late_elements.forget_before(self.out_cti)

    def _insert_ctis(self, batch: EventBatch, pace: Pace) -> EventBatch:
        """The batch with CTIs put in where they are due and advance."""
        latest = np.maximum.accumulate(np.maximum(batch.vs, self._latest))
        number = self._events + 1 + np.arange(len(batch))
        self._latest, self._events = int(latest[-1]), int(number[-1])
        after = (pace.is_turn(number)).nonzero()[0]
        t = pace.times(latest[after])
        is_new = t > np.append(np.int64(self.out_cti), np.maximum(t, self.out_cti))[:-1]
        after, t = after[is_new], t[is_new]
        if not len(t):
            return batch
        order = np.argsort(np.concatenate([np.arange(len(batch)), after]), kind="stable")
        return concat([batch, make_ctis(t, self.schema)]).take(order)

    def on_cti(self, port: int, t: int) -> Output:
        answer = self.emit(t)
        self._advance(t)
        return answer

    def no_effect_before(self, port: int, t: int) -> int:
        """A change before the CTI is late, but an event that was cut off there may still be lengthened.

        Port 1 needs no check: only its CTIs are used.
        """
        return BEGINNING if port else self._late_elements.no_effect_before(self.out_cti)

    def trace(self) -> tuple[int, ...] | None:
        """The greatest start matters once the pace makes more of it than the CTI."""
        if self._pace is None:
            return ()
        due = int(self._pace.times(np.array([self._latest]))[0])
        return max(due, self.out_cti), self._events % (self._pace.events or 1)

    def state_rows(self) -> int:
        return len(self._late_elements)

    def state_bytes(self) -> int:
        return self._late_elements.nbytes()

    def snapshot_state(self) -> Chunks:
        seen = pa.table({"latest": [self._latest], "events": [self._events]})
        return {"seen": seen, **self._late_elements.snapshot()}

    def restore_state(self, chunks: Chunks) -> None:
        seen = chunks["seen"].to_pylist()[0]
        self._latest, self._events = seen["latest"], seen["events"]
        self._late_elements.restore(chunks, self.out_cti)


def make_ctis(t: Ticks, schema: pa.Schema) -> EventBatch:
    """A batch of CTIs."""
    size = len(t)
    forever = np.full(size, FOREVER)
    kind = np.full(size, CTI, np.uint8)
    return EventBatch(kind, t, forever, forever, np.zeros(size, np.int64), null_payload(size, schema))
