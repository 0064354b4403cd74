"""Align: changes wait for their order, and those that undo each other while they wait never come out.

Assumes     a valid physical stream.
Guarantees  the output history is the input history once everything waiting has come out. At a CTI all changes
            before it come out, by (sync time, arrival); before that, changes of events that start ``block``
            or more before the latest time seen, or before where the stream was ``block`` ago on the
            wall clock. CTIs pass unchanged. With an endless block the output is
            ordered.
State       the changes that wait, one for each event that changes.
Cost        O(n log n) in the batch and in what comes out.
Source      Consistency Sensitive Streaming Operators in CEDR, §4.5, as corrected by rulings E1 to E5.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, empty, take_rows
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks, Operator, Output, changes
from recension.operators.state.live_events import LiveEvents
from recension.operators.state.net_changes import NetChanges, identity, net_changes
from recension.operators.state.passage import Passage


class Align(Operator):
    """Blocks for ``block`` ticks, of application time or of the wall clock; FOREVER: until a CTI."""

    def __init__(self, schema: pa.Schema, block: int, *, by_clock: bool = False) -> None:
        super().__init__(schema)
        self._block = block
        self._passage = Passage(block) if by_clock else None
        self.is_clocked = by_clock
        # A change lies in the index from the start of its event to just after its sync time.
        self._waiting = LiveEvents(schema, ("old", "new", "arrival"))
        self._latest = BEGINNING
        self._arrivals = 0

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch) or not self._block:
            return batch
        self._see(int(batch.sync().max()))
        self._buffer(net_changes(batch), batch.payload)
        return self._release(self._starting_until(self._output_time()))

    def _output_time(self) -> int:
        """Events that start until then wait no longer."""
        if self._passage is not None:
            return self._passage.reached
        return BEGINNING if self._block == FOREVER else max(BEGINNING, self._latest - self._block)

    def _see(self, t: int) -> None:
        self._latest = max(self._latest, t)
        if self._passage is not None:
            self._passage.note(self._latest)

    def _buffer(self, change: NetChanges, payload: pa.RecordBatch) -> None:
        """A change of what another change has made, and waits, becomes one with it (E1)."""
        old, arrival = change.old.copy(), self._arrivals + np.arange(len(change))
        self._arrivals += len(change)
        later = np.flatnonzero(change.old != change.vs)
        if len(later) and len(self._waiting):
            found = self._waiting.find(identity(change.hash[later], change.vs[later], change.old[later]))
            later, found = later[found >= 0], found[found >= 0]
            old[later] = self._waiting.column("old", found)
            arrival[later] = self._waiting.column("arrival", found)
            self._waiting.remove(found)
        rows = np.flatnonzero(old != change.new)
        self._add(change, rows, old[rows], arrival[rows], take_rows(payload, change.row[rows]))

    def _add(
        self, change: NetChanges, rows: Index, old: Ticks, arrival: Index, payload: pa.RecordBatch
    ) -> None:
        vs, new = change.vs[rows], change.new[rows]
        tag = identity(change.hash[rows], vs, new)
        until = _sync(vs, old, new) + 1
        group = np.zeros(len(rows), np.uint64)
        extras = {"old": old, "new": new, "arrival": arrival}
        self._waiting.insert(group, vs, until, tag, payload, **extras)

    def _starting_until(self, t: int) -> Index:
        """Where the changes of events that start at ``t`` or before are."""
        if t == BEGINNING:
            return np.zeros(0, np.int64)
        end = np.array([min(t, FOREVER - 1) + 1])
        return self._waiting.overlapping(np.zeros(1, np.uint64), np.array([BEGINNING]), end)[1]

    def _release(self, at: Index) -> EventBatch:
        if not len(at):
            return empty(self.schema)
        vs, old, new = (self._waiting.column(name, at) for name in ("vs", "old", "new"))
        order = np.lexsort((self._waiting.column("arrival", at), _sync(vs, old, new)))
        out = changes(vs[order], old[order], new[order], self._waiting.payload(at[order]))
        self._waiting.remove(at)
        self._waiting.expire(BEGINNING)
        return out

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """Lifetimes stay."""
        return [t]

    def on_cti(self, port: int, t: int) -> Output:
        if not self._block:
            return self.promise(t)
        self._see(t)
        at = self._starting_until(t)
        is_due = self._waiting.column("ve", at) <= t
        is_due |= self._waiting.column("vs", at) <= self._output_time()
        is_due |= t == FOREVER
        return self.promise(t, self._release(at[is_due]))

    def on_clock(self, now: int) -> Output:
        assert self._passage is not None
        return self.promise(self.out_cti, self._release(self._starting_until(self._passage.tick(now))))

    def trace(self) -> tuple[int, ...] | None:
        """An endless block looks at CTIs only."""
        if self._block in (0, FOREVER):
            return ()
        return (self._latest, *(() if self._passage is None else self._passage.trace()))

    def state_rows(self) -> int:
        return self._waiting.live()

    def state_bytes(self) -> int:
        return self._waiting.nbytes()

    def state_chunks(self) -> Chunks:
        seen = pa.table({"latest": [self._latest], "arrivals": [self._arrivals]})
        passage = {} if self._passage is None else {"passage": self._passage.to_arrow()}
        return {"seen": seen, **passage, **self._waiting.chunks("waiting")}

    def load_chunks(self, chunks: Chunks) -> None:
        seen = chunks["seen"].to_pylist()[0]
        self._latest, self._arrivals = seen["latest"], seen["arrivals"]
        self._waiting.load("waiting", chunks)
        if self._passage is not None:
            self._passage.load(chunks["passage"])


def _sync(vs: Ticks, old: Ticks, new: Ticks) -> Ticks:
    """When each change takes effect."""
    return np.where(old == vs, vs, np.minimum(old, new))
