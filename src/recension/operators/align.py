"""Align: changes wait for their order, and those that undo each other while they wait never come out.

Assumes     a valid physical stream.
Guarantees  the output history is the input history once everything waiting has come out. At a CTI all changes
            before it come out, by (sync time, arrival); before that, changes of events that start ``block``
            or more before the latest time seen (in their group), or before where the stream was ``block``
            ago on the wall clock. CTIs pass unchanged. With an endless block the output is ordered. In a
            shard the latest time seen is that of all shards: an event of port 1 tells it before a batch, and
            a CTI after it, at which changes come out as well.
State       the changes that wait, one for each event that changes; the latest times of groups ahead of CTIs;
            by the wall clock, when the stream grew.
Cost        O(n log n) in the batch and in what comes out.
Source      Consistency Sensitive Streaming Operators in CEDR, §4.5, as corrected by rulings E1 to E5.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recension.core import ticks
from recension.core.batch import EventBatch, Index, empty, take_rows
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks, Operator, Output
from recension.operators.changes import NetChanges, changes, identity, net_changes
from recension.operators.state.event_store import EventStore
from recension.operators.state.progress import ClockHistory, LatestTimes, group_hash


class Align(Operator):
    """Blocks for ``block`` ticks, of application time or of the wall clock; FOREVER: until a CTI.

    ``by`` names the columns whose values tell groups apart, each with a time of its own.
    """

    shards_share_ctis = True

    def __init__(
        self, schema: pa.Schema, block: int, by: Sequence[str] = (), *, by_clock: bool = False
    ) -> None:
        super().__init__(schema)
        self._block = block
        self._by = [] if block == FOREVER or by_clock else list(by)
        self._clock = ClockHistory(block) if by_clock else None
        self.is_clocked = by_clock
        # A change lies in the index from the start of its event to just after its sync time.
        self._waiting = EventStore(schema, ("old", "new", "arrival"))
        self._latest = LatestTimes()
        self._arrivals = 0

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if port:
            self._latest.note_times(np.zeros(len(batch), np.uint64), batch.vs)
            return empty(self.schema)
        if not len(batch) or not self._block:
            return batch
        group, sync = group_hash(batch, self._by), batch.sync()
        one = (group[:1], sync.max(keepdims=True))
        seen, latest = self._latest.note_times(*((group, sync) if self._by else one))
        self._note(int(latest.max()))
        self._buffer(net_changes(batch), group, batch.payload)
        return self._release_until(seen, latest)

    def _release_until(self, group: Hashes, latest: Ticks) -> EventBatch:
        """What waits no longer when these are the latest times of these groups."""
        return self._release(self._find_starting_until(group, self._output_times(latest)))

    def _output_times(self, latest: Ticks) -> Ticks:
        """Events that start at or before these times wait no longer; ``latest`` is that of their group."""
        if self._clock is not None:
            return np.full(len(latest), self._clock.time_reached)
        never = np.full(len(latest), BEGINNING)
        return never if self._block == FOREVER else ticks.add(latest, -self._block)

    def _note(self, latest: int) -> None:
        if self._clock is not None:
            self._clock.note(latest)

    def _buffer(self, change: NetChanges, group: Hashes, payload: pa.RecordBatch) -> None:
        """A change of an event that another waiting change has made is united with that one (E1)."""
        old, arrival = change.old.copy(), self._arrivals + np.arange(len(change))
        self._arrivals += len(change)
        later = (change.old != change.vs).nonzero()[0]
        if len(later) and len(self._waiting):
            found = self._waiting.find(identity(change.hash[later], change.vs[later], change.old[later]))
            later, found = later[found >= 0], found[found >= 0]
            old[later] = self._waiting.column("old", found)
            arrival[later] = self._waiting.column("arrival", found)
            self._waiting.remove(found)
        rows = (old != change.new).nonzero()[0]
        payload, group = take_rows(payload, change.row[rows]), group[change.row[rows]]
        self._add(change, rows, old[rows], arrival[rows], group, payload)

    def _add(
        self,
        change: NetChanges,
        rows: Index,
        old: Ticks,
        arrival: Index,
        group: Hashes,
        payload: pa.RecordBatch,
    ) -> None:
        vs, new = change.vs[rows], change.new[rows]
        tag = identity(change.hash[rows], vs, new)
        until = _sync(vs, old, new) + 1
        extras = {"old": old, "new": new, "arrival": arrival}
        self._waiting.insert(group, vs, until, tag, payload, **extras)

    def _find_starting_until(self, group: Hashes, t: Ticks) -> Index:
        """Where the changes of events are that start at ``t`` of their group or before."""
        due = (t > BEGINNING).nonzero()[0]
        end = np.minimum(t[due], FOREVER - 1) + 1
        return self._waiting.find_overlaps(group[due], np.full(len(due), BEGINNING), end)[1]

    def _find_all_until(self, t: int) -> Index:
        """The same for one time in all groups; with several groups this looks at all that waits."""
        if not self._by:
            return self._find_starting_until(np.zeros(1, np.uint64), np.array([t]))
        at = self._waiting.positions()
        return at[self._waiting.column("vs", at) <= t]

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
        if port:
            everyone, times = self._latest.note_times(np.zeros(1, np.uint64), np.array([t]))
            return self.emit(BEGINNING, self._release_until(everyone, times))
        if not self._block:
            return self.emit(t)
        self._latest.advance_all(t)
        self._note(int(self._latest.times_of(np.zeros(1, np.uint64))[0]))
        at = self._find_all_until(t)
        until = self._output_times(self._latest.times_of(self._waiting.column("group", at)))
        is_due = self._waiting.column("ve", at) <= t
        is_due |= self._waiting.column("vs", at) <= until
        is_due |= t == FOREVER
        return self.emit(t, self._release(at[is_due]))

    def on_clock(self, now: int) -> Output:
        assert self._clock is not None
        return self.emit(self.out_cti, self._release(self._find_all_until(self._clock.tick(now))))

    def trace(self) -> tuple[int, ...] | None:
        """An endless block looks at CTIs only."""
        if self._block in (0, FOREVER):
            return ()
        return (*self._latest.trace(), *(() if self._clock is None else self._clock.trace()))

    def state_rows(self) -> int:
        groups = len(self._latest) if self._by else 0
        return self._waiting.count_live() + groups + (0 if self._clock is None else len(self._clock))

    def state_bytes(self) -> int:
        passage = 0 if self._clock is None else self._clock.nbytes()
        return self._waiting.nbytes() + self._latest.nbytes() + passage

    def snapshot_state(self) -> Chunks:
        seen = {"seen": pa.table({"arrivals": [self._arrivals]}), "latest": self._latest.snapshot()}
        passage = {} if self._clock is None else {"passage": self._clock.snapshot()}
        return {**seen, **passage, **self._waiting.parts("waiting")}

    def restore_state(self, chunks: Chunks) -> None:
        self._arrivals = chunks["seen"]["arrivals"][0].as_py()
        self._latest.restore(chunks["latest"])
        self._waiting.restore("waiting", chunks)
        if self._clock is not None:
            self._clock.restore(chunks["passage"])


def _sync(vs: Ticks, old: Ticks, new: Ticks) -> Ticks:
    """When each change takes effect."""
    return np.where(old == vs, vs, np.minimum(old, new))
