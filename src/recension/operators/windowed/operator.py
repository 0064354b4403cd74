"""Windows: for each group, what a measure says of the events of every window.

An index knows the windows (a grid, snapshots, counts) and yields the stretches that change; a measure keeps
what it needs of events and answers for stretches (sums and selections) or for single windows (modules).

Assumes     a valid physical stream.
Guarantees  after every batch the output history is the measure over the windows in view, of the input so far:
            all of them (of endless events on a grid: those that have begun), or those that have ended by the
            watermark; perfect input then gives perfect output (snapshots and counts: if it is not grouped),
            and ordered input ordered output. On a closed stream all views agree. An output CTI is where the
            first window starts that can still change, or before which not even ends can move.
State       end points or moments at or after the last CTI and a few before it per group, with the sums that
            hold there; the live events themselves for what is not a sum.
Cost        O(n log n) in the batch, the end points between the changes it makes, and what it puts out:
            overlapping windows share the stretches between end points, so that size/hop costs nothing by
            itself. Count windows: n moments to either side. Modules: a call for each window.
Source      Operator Algorithm Design for Speculative Stream Processing, §3, as corrected by rulings B1–B18;
            The Extensibility Framework in Microsoft StreamInsight, §III–§V; rulings G1–G11.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Index
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.window_limit import TooManyWindowsError
from recension.operators.base import Chunks, Looked, Operator, Output
from recension.operators.windowed.index import Closing, WindowChange, WindowIndex
from recension.operators.windowed.steps import NOTHING, Contributions

Keys: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]


class Ahead:
    """What is computed of payloads by themselves: ahead, while nothing has changed, and then not again."""

    def __init__(self, compute: Callable[..., Any], check: Callable[[Any], object] | None = None) -> None:
        """``check`` raises what its reader raises of some value by itself."""
        self._compute, self._check, self._looked = compute, check, Looked[Any]()

    def look(self, payload: pa.RecordBatch) -> None:
        """Raise what `__call__` would raise; the payload has columns."""
        found = self._looked.keep(payload, self._compute(payload))
        if self._check is not None:
            self._check(found)

    def __call__(self, payload: pa.RecordBatch, *size: int) -> Any:
        found = self._looked.take(payload)
        return self._compute(payload, *size) if found is None else found

    def forget(self) -> None:
        """What `look` has computed is not needed any more."""
        self._looked.clear()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ahead) and self._compute == other._compute

    def __hash__(self) -> int:
        return hash(self._compute)


def ahead(compute: Callable[..., Any]) -> Callable[..., Any]:
    """The same; what can fail on some rows can be computed ahead."""
    return compute if getattr(compute, "never_fails", False) else Ahead(compute)


class Measure(ABC):
    """What is computed for windows, and the state of events that this takes.

    A measure emits its own changes (`apply`). Aggregates have one answer for a stretch: it is compared once,
    and written out only for the windows that come or go. Modules may give any rows, with lifetimes of their
    own that need not be those of windows, so rows before and after are compared as bags of events
    (`changes.transition`); for aggregates that would hash every row of every window.
    """

    shards_share_ctis: bool = False
    always_answers: bool = False
    """Is there a row for every window that holds an event?"""
    reads_events: bool = True
    """Do its batches hold events, which a message can name?"""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    @abstractmethod
    def no_events(self) -> EventBatch:
        """A batch of nothing, as the measure keeps events."""

    def prepare(self, batch: EventBatch, group: Index) -> EventBatch:
        """The batch with only the columns that are read."""
        return batch

    def arguments(self) -> Sequence[Callable[..., Any]]:
        """What it computes of payloads by themselves, before anything else."""
        return ()

    def contributions(self, batch: EventBatch, group: Index) -> Contributions:
        """What each event adds to the sums that the index carries."""
        return NOTHING

    @abstractmethod
    def apply(self, change: WindowChange, batch: EventBatch, group: Index) -> EventBatch:
        """Take in a batch that changes these stretches; gives back the changes of the output."""

    @abstractmethod
    def earliest_open_end(self, t: int) -> int:
        """Where the first event starts whose end matters and may still move after the CTI ``t``."""

    @abstractmethod
    def close(self, t: int, closing: Closing) -> int:
        """Forget what the CTI ``t`` closes; gives back the CTI of the output."""

    @abstractmethod
    def clear(self) -> None:
        """The input has ended: forget everything."""

    def trace(self) -> tuple[int, ...]:
        """See `Operator.trace`."""
        return ()

    @abstractmethod
    def rows(self) -> int:
        """How many rows of state are held."""

    @abstractmethod
    def nbytes(self) -> int:
        """Memory taken."""

    @abstractmethod
    def snapshot(self) -> Chunks:
        """The state as named Arrow tables."""

    @abstractmethod
    def restore(self, chunks: Chunks) -> None:
        """Become what `snapshot` gave."""


class WindowedOperator(Operator):
    """A measure over the windows of an index; without ``keys`` all events are one group."""

    def __init__(self, index: WindowIndex, measure: Measure, keys: Keys | None = None) -> None:
        super().__init__(measure.schema)
        self.index, self.measure = index, measure
        self._keys = None if keys is None else ahead(keys)
        self._ahead = [one for one in (self._keys, *measure.arguments()) if isinstance(one, Ahead)]
        self.shards_share_ctis = measure.shards_share_ctis

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return self._nothing
        keys = pa.record_batch([]) if self._keys is None else self._keys(batch.payload)
        group = self.index.number(keys, len(batch))
        # The greatest start or CTI seen; retractions do not move it (ruling B9).
        starts = batch.vs if batch.has_only_inserts() else batch.vs[batch.kind == INSERT]
        watermark = max(self.index.watermark, int(starts.max(initial=BEGINNING)))
        try:
            return self._step(self.measure.prepare(batch, group), group, watermark)
        except TooManyWindowsError as why:
            raise (self.index.name_event(why, batch) if self.measure.reads_events else why) from None

    def look(self, port: int, batch: EventBatch) -> EventBatch | None:
        """Keys and arguments are computed, where that can fail."""
        if len(batch) and batch.payload.num_columns:
            for one in self._ahead:
                one.look(batch.payload)
        return None

    def forget_looked(self) -> None:
        for one in self._ahead:
            one.forget()

    def on_cti(self, port: int, t: int) -> Output:
        watermark = max(self.index.watermark, t)
        shown = self._step(self.measure.no_events(), np.zeros(0, np.int64), watermark)
        if t == FOREVER:
            self.index.clear()
            self.measure.clear()
            return self.emit(t, shown)
        out_cti = self.measure.close(t, self.index.close(t, self.measure.earliest_open_end(t)))
        self.index.retire()
        return self.emit(out_cti, shown)

    def check_end(self) -> None:
        self.index.check_end()

    def refuse_endless(self) -> None:
        self.index.refuse_endless()

    def is_endless(self) -> bool:
        return self.measure.always_answers and self.index.is_endless()

    def check_last(self, batch: EventBatch) -> None:
        self.index.check_last(batch)

    def _step(self, batch: EventBatch, group: Index, watermark: int) -> EventBatch:
        change = self.index.change(batch, group, self.measure.contributions(batch, group), watermark)
        out = self._nothing
        if len(batch) or len(change):
            out = self.measure.apply(change, batch, group)
        change.write_back()
        return out

    def trace(self) -> tuple[int, ...] | None:
        return (*self.index.trace(), *self.measure.trace())

    def state_rows(self) -> int:
        return len(self.index) + self.measure.rows()

    def state_bytes(self) -> int:
        return self.index.nbytes() + self.measure.nbytes()

    def snapshot_state(self) -> Chunks:
        return {**self.index.snapshot(), **self.measure.snapshot()}

    def restore_state(self, chunks: Chunks) -> None:
        self.index.restore(chunks)
        self.measure.restore(chunks)
