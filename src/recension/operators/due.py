"""Due: events are held until their time has come; what is refuted before is never shown.

    held     |== A ==)        |== B ==)         by start
    limit            ^                          what starts before is shown: A is out, B waits

Assumes     a valid physical stream. Port 1, where there is one, has the progress of another stream.
Guarantees  after every step the output history is the input history less the events that start at the limit
            or later. The limit is the stream's own CTI; or just after the time of the other stream, or of
            the clock. It never goes back. The output CTI is the least of the stream's and of the starts held.
            The end of the stream releases all.
State       the events held, by start and with what happened to them since; the limit; starts far ahead.
Cost        O(n log n) in the batch and in what comes out.
Source      Design note 038; the release of CEDR's alignment buffer (TR §4.5), by start.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, concat, cti, empty, inserts
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.base import Chunks, Operator, Output
from recension.operators.changes import net_changes
from recension.operators.state.events_by_start import EventsByStart
from recension.operators.state.start_times import StartTimes

AHEAD = "a start far ahead of all others, which moves no time by itself"


class Due(Operator):
    """By its own CTIs."""

    shards_share_ctis = True

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._held = EventsByStart(schema)
        self._limit = self._cti = BEGINNING

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        """What has started before passes as it is; the rest waits."""
        is_due = batch.vs < self._limit
        shown = int(np.count_nonzero(is_due))
        if shown == len(batch):
            return batch
        waiting = batch.filter(~is_due) if shown else batch
        self._held.apply(net_changes(waiting), waiting.payload)
        return batch.filter(is_due) if shown else empty(self.schema)

    def on_cti(self, port: int, t: int) -> Output:
        self._cti = max(self._cti, t)
        return self._reach(self._limit_after_cti(t))

    def _limit_after_cti(self, t: int) -> int:
        """How far what is due reaches after a CTI of the stream."""
        return t

    def _reach(self, limit: int) -> Output:
        """What comes out when events that start before ``limit`` are due."""
        self._limit = max(self._limit, limit)
        released = self._release()
        return self.emit(min(self._cti, self._held.first_start()), released)

    def _release(self) -> EventBatch:
        if self._held.first_start() >= self._limit:
            return empty(self.schema)
        start, end, row = self._held.take_before(self._limit)
        given = inserts(start, end, self._held.payload(row))
        self._held.drop(row)
        return given

    def ends_with(self, ports: Collection[int], inputs: int) -> bool:
        """The end of the other stream is not that of this one."""
        return 0 in ports

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """Lifetimes stay."""
        return [t]

    def is_endless(self) -> bool:
        return self._held.is_endless()

    def trace(self) -> tuple[int, ...] | None:
        return (self._limit, self._cti)

    def state_rows(self) -> int:
        return len(self._held)

    def state_bytes(self) -> int:
        return self._held.nbytes()

    def snapshot_state(self) -> Chunks:
        seen = pa.table({"limit": [self._limit], "cti": [self._cti]})
        return {"seen": seen, **self._held.parts("held")}

    def restore_state(self, chunks: Chunks) -> None:
        seen = chunks["seen"].to_pylist()[0]
        self._limit, self._cti = seen["limit"], seen["cti"]
        self._held.restore("held", chunks)


class DueByClock(Due):
    """By the wall clock, whose readings come before each step and when nothing else does."""

    shards_share_ctis = False
    makes_ctis: ClassVar[bool] = True
    is_clocked = True

    def _limit_after_cti(self, t: int) -> int:
        return t if t == FOREVER else BEGINNING

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        """What is refuted while it waits holds back the CTI no longer."""
        shown = super().on_batch(port, batch)
        return self._as_batch(self.emit(min(self._cti, self._held.first_start()), shown))

    def on_clock(self, now: int) -> Output:
        return self._reach(now + 1)

    def _as_batch(self, out: Output) -> EventBatch:
        """What comes out in answer to a batch, with its CTI."""
        return out.batch if out.cti is None else concat([out.batch, cti(out.cti, self.schema)])


class DueByOther(DueByClock):
    """By the starts and CTIs of another stream."""

    is_clocked = False

    def __init__(self, schema: pa.Schema, ahead: int | None) -> None:
        super().__init__(schema)
        self._times = StartTimes(ahead)

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not port:
            return super().on_batch(port, batch)
        rows: Index = batch.payload.column(0).to_numpy()
        if alone := self._times.take(batch.vs, rows):
            self._counts[AHEAD] += alone
        return self._as_batch(self._reach(self._times.until))

    def on_cti(self, port: int, t: int) -> Output:
        if not port:
            return super().on_cti(port, t)
        return self._reach(self._times.reach(t))

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """Lifetimes stay; whatever the other has may tell the time."""
        return [t, None]

    def trace(self) -> tuple[int, ...] | None:
        return (self._limit, self._cti, *self._times.trace())

    def snapshot_state(self) -> Chunks:
        return {**super().snapshot_state(), "times": self._times.snapshot()}

    def restore_state(self, chunks: Chunks) -> None:
        super().restore_state(chunks)
        self._times.restore(chunks["times"])


class Progress(Operator):
    """Of each batch the starts that may move time, with how many rows have them; CTIs pass."""

    changes_on_cti = False
    shards_share_ctis = True
    is_all_rows = True

    def __init__(self, schema: pa.Schema, ahead: int | None) -> None:
        super().__init__(schema)
        self._ahead = ahead

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        start, rows = StartTimes.sum_up(batch, self._ahead)
        return inserts(start, start + 1, pa.RecordBatch.from_arrays([pa.array(rows)], schema=self.schema))

    def on_cti(self, port: int, t: int) -> Output:
        return self.emit(t)
