"""Finalize: retractions that came before what they retract are put in order, and the past is closed.

Assumes     inserts, retractions and external CTIs in any order. Where external CTIs overlap, which no source
            may let them, the one that begins first holds back those behind it.
Guarantees  a valid stream. A CTI comes out where external CTIs prove the input complete, where the input has
            a CTI, and ``remember`` behind the latest time seen; elements before the last CTI, and
            retractions of what was dropped, are dropped and counted. With an endless memory the output
            history is the input's.
State       the ends of events that may still be retracted, the retractions that wait, the sync times of
            elements from the last CTI on, and a count for each external CTI that began before it.
Cost        O(n log n) in the batch; a loop over its external CTIs, and over the elements of broken chains, of
            those that are mended and of those that are dropped. What waits costs a logarithm.
Source      Consistency Sensitive Streaming Operators in CEDR, §4.6, as corrected by rulings F1 to F10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from recension.core import ticks
from recension.core.batch import (
    INSERT,
    RETRACT,
    EventBatch,
    Index,
    Mask,
    concat,
    cti,
    empty,
    new_end,
    old_end,
    take_rows,
)
from recension.core.event_bag import BagChanges, LiveEnds, find_orphans
from recension.core.netting import distinct
from recension.core.rowhash import Hashes, combine, row_hash
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.validity import LATE, UNKNOWN
from recension.operators.base import Chunks, Operator, Orphans, Output
from recension.operators.changes import changes
from recension.operators.state.external_ctis import ExternalCtis, Proof
from recension.operators.state.progress import ClockHistory
from recension.operators.state.retraction_chains import BrokenRun, RetractionChains, WaitingRetraction

_CAUTIOUS = 256


class Finalize(Operator):
    """Remembers for ``remember`` ticks of application time, or of the wall clock; FOREVER until a CTI."""

    changes_on_cti = False
    makes_ctis: ClassVar[bool] = True
    external_ctis: ClassVar[Literal["stop", "pass", "take"]] = "take"

    def __init__(self, schema: pa.Schema, remember: int, since: int = 0, *, by_clock: bool = False) -> None:
        super().__init__(schema)
        self._remember = FOREVER if by_clock else remember
        self._clock = ClockHistory(remember) if by_clock else None
        self.is_clocked = by_clock
        self._live = LiveEnds()
        self._chains = RetractionChains(schema)
        self._known = ExternalCtis(since)
        self._latest = self._aged = BEGINNING

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        given, size = [], len(batch)
        while len(batch):
            part = batch.slice(0, min(size, len(batch)))
            out = self._take(part)
            if isinstance(out, int):
                part, size = part.slice(0, out), _CAUTIOUS
                out = self._take(part)
                assert not isinstance(out, int), "the rows before the first doubtful one hold no doubt"
            given.append(out)
            batch, size = batch.slice(len(part), len(batch)), 2 * size
        if self._clock is not None:
            self._clock.note(self._latest)
        given = [out for out in given if len(out)]
        return concat(given) if given else empty(self.schema)

    def _take(self, batch: EventBatch) -> EventBatch | int:
        """The output of the batch, or the row at which it must be split; then nothing has changed."""
        past = Past(self.out_cti, self._latest, self._aged)
        arrival = Arrival(batch, past, self._remember, self._known)
        is_broken = arrival.find_broken(batch, self._live, self._chains)
        if (len(self._chains) or bool(is_broken.any())) and (row := arrival.first_doubtful()):
            return row
        self._latest, self._aged = arrival.latest, int(arrival.aged[-1])
        self._known.adopt(arrival.proof)
        self._drop(LATE, batch.filter(arrival.is_late))
        passing = (arrival.is_in_time & ~is_broken).nonzero()[0]
        out = batch.take(passing) if len(passing) < len(batch) else batch
        self._live.change(*end_changes(out, arrival.start[passing]))
        waiting = (arrival.is_in_time & is_broken).nonzero()[0]
        if len(waiting):
            rows, mended = self._repair_chains(batch, arrival, waiting)
            out = concat([out, mended]).take(np.argsort(np.concatenate([passing, rows]), kind="stable"))
        t = self._time()
        if t <= self.out_cti:
            return out
        self.out_cti = t
        return concat([out, cti(t, self.schema)])

    def _repair_chains(self, batch: EventBatch, arrival: Arrival, rows: Index) -> tuple[Index, EventBatch]:
        """The elements of broken chains, one at a time: the rows that give something, and what they give."""
        live = self._live.ends_of(distinct(arrival.start[rows]))
        given: list[tuple[int, int, int]] = []
        lost: list[BrokenRun] = []
        numbers = self._keep_payloads(batch, rows)
        columns = (
            arrival.start,
            arrival.before,
            arrival.aged_before,
            batch.kind,
            batch.vs,
            batch.ve,
            batch.new_ve,
        )
        for row, number, key, before, aged, kind, vs, ve, vn in zip(
            rows.tolist(), numbers, *(column[rows].tolist() for column in columns), strict=True
        ):
            lost += self._chains.take_lost(before, aged)
            old, new = vs, vs
            if kind == INSERT:
                new = self._chains.insert(key, live[key], vs, ve)
            elif (
                moved := self._chains.retract(key, live[key], vs, WaitingRetraction(ve, vn, number))
            ) is not None:
                old, new = moved
            if old != new:
                given.append((row, old, new))
        self._drop_unmatched(lost)
        self._chains.tidy()
        at, old_ends, new_ends = np.array(given, np.int64).reshape(-1, 3).T
        mended = changes(batch.vs[at], old_ends, new_ends, take_rows(batch.payload, at))
        self._live.change(*end_changes(mended, arrival.start[at]))
        return at, mended

    def _keep_payloads(self, batch: EventBatch, rows: Index) -> list[int]:
        """The payloads of retractions among the rows are kept for as long as they wait; their numbers."""
        numbers = np.full(len(rows), -1)
        is_retract = batch.kind[rows] == RETRACT
        may_wait = rows[is_retract]
        numbers[is_retract] = self._chains.keep(take_rows(batch.payload, may_wait), len(may_wait))
        return numbers.tolist()

    def _drop_unmatched(self, lost: list[BrokenRun]) -> None:
        """Drop retractions that wait for what cannot come any more."""
        if lost:
            self._drop(UNKNOWN, self._chains.elements_of(lost))

    def _drop(self, reason: str, elements: EventBatch) -> None:
        if len(elements):
            self._counts[reason] += len(elements)
            self._dropped.append((reason, elements))

    def _time(self) -> int:
        """The CTI that can be emitted now; forgets what it closes."""
        frontier = self._known.complete_until
        self._drop_unmatched(self._chains.take_lost(frontier, self._aged))
        t = min(frontier, self._chains.first_sync())
        if t > self.out_cti:
            self._live.forget_before(t)
        self._known.forget_before(max(t, self.out_cti))
        return t

    def on_cti(self, port: int, t: int) -> Output:
        return self._close(t, t if t == FOREVER else BEGINNING)

    def on_clock(self, now: int) -> Output:
        assert self._clock is not None
        t = self._clock.tick(now)
        return self._close(t, t)

    def _close(self, t: int, aged: int) -> Output:
        """The past before ``t`` is complete; drop what waits and would change the time before ``aged``."""
        self._aged = max(self._aged, aged)
        self._known.advance(t)
        return self.emit(self._time())

    def no_effect_before(self, port: int, t: int) -> int:
        """Whatever changes before the CTI is late."""
        return self.out_cti

    def orphans(self, port: int) -> Orphans:
        """They wait for what they retract."""
        return "take"

    def trace(self) -> tuple[int, ...] | None:
        """What age closes matters once it is more than the CTI has closed."""
        aged = max(self._aged, BEGINNING if self._remember == FOREVER else self._latest - self._remember)
        passage = () if self._clock is None else (self._latest, *self._clock.trace())
        return max(aged, self.out_cti), *passage

    def state_rows(self) -> int:
        passage = 0 if self._clock is None else len(self._clock)
        return len(self._live) + len(self._chains) + len(self._known) + passage

    def state_bytes(self) -> int:
        passage = 0 if self._clock is None else self._clock.nbytes()
        return self._live.nbytes() + self._chains.nbytes() + self._known.nbytes() + passage

    def snapshot_state(self) -> Chunks:
        seen = {"latest": pa.array([self._latest], pa.int64()), "aged": pa.array([self._aged], pa.int64())}
        own = {"seen": pa.table(seen), "live": self._live}
        if self._clock is not None:
            own["passage"] = self._clock.snapshot()
        return own | self._chains.snapshot() | self._known.snapshot()

    def restore_state(self, chunks: Chunks) -> None:
        seen = chunks["seen"].to_pylist()[0]
        self._latest, self._aged = seen["latest"], seen["aged"]
        self._live.restore(chunks["live"], self.out_cti)
        self._chains.restore(dict(chunks), self._live)
        self._known.restore(dict(chunks))
        if self._clock is not None:
            self._clock.restore(chunks["passage"])


@dataclass(frozen=True, slots=True)
class Past:
    """Where Finalize stands before a batch: the last CTI, the latest time seen, what age has closed."""

    last: int
    latest: int
    aged: int


class Arrival:
    """Row by row: how far the past is closed when it comes (``before``), whether it is late or broken.

    ``start`` is the hash of (payload, start), the name of an event's chain.
    """

    def __init__(self, batch: EventBatch, past: Past, remember: int, known: ExternalCtis) -> None:
        sync, is_data = batch.sync(), batch.is_data()
        seen = np.where(is_data, sync, np.int64(BEGINNING))
        self.latest = max(past.latest, int(seen.max(initial=BEGINNING)))
        self.aged = _age_limits(seen, past, remember)
        self.proof: Proof = known.prove(batch, sync, self.aged, past.last)
        self.aged_before = _shift(self.aged, past.aged)
        self.before = _shift(self.proof.complete_until, past.last)
        is_before = sync < self.before
        self.is_late: Mask = is_before & is_data
        self.is_in_time: Mask = is_data & ~is_before
        self.start: Hashes = combine(row_hash(batch.payload, len(batch)), batch.vs)
        # Nothing that waits holds the CTI back to before what age has closed (F8).
        self._is_doubtful = is_before & (sync >= np.maximum(self.aged_before, past.last))

    def find_broken(self, batch: EventBatch, live: LiveEnds, chains: RetractionChains) -> Mask:
        """The rows of chains that are broken, or that break in this batch."""
        is_broken = chains.holds(self.start) if len(chains) else np.zeros(len(batch), np.bool_)
        orphan = find_orphans(self._steps(batch), _LiveCounts(self.start, batch, live), len(batch))
        if bool(orphan.any()):
            is_broken |= np.isin(self.start, distinct(self.start[orphan]))
        return is_broken

    def first_doubtful(self) -> int:
        """The first row whose lateness depends on what waits for its predecessor when it comes; 0 if none.

        The first row never does: what waits before the batch is known. With right external CTIs none does.
        """
        return int(np.argmax(self._is_doubtful[1:])) + 1 if bool(self._is_doubtful[1:].any()) else 0

    def _steps(self, batch: EventBatch) -> BagChanges:
        down = (self.is_in_time & (batch.kind == RETRACT)).nonzero()[0]
        end = new_end(batch)
        up = (self.is_in_time & (end > batch.vs)).nonzero()[0] if len(down) else down
        row = np.concatenate([down, up])
        ends = np.concatenate([batch.ve[down], end[up]])
        return BagChanges(row, combine(self.start[row], ends), np.repeat([-1, 1], [len(down), len(up)]), ends)


class _LiveCounts:
    """How often events are alive, asked by the identities that a batch names."""

    def __init__(self, start: Hashes, batch: EventBatch, live: LiveEnds) -> None:
        rows = (batch.kind == RETRACT).nonzero()[0]
        named = combine(start[rows], batch.ve[rows])
        order = named.argsort()
        self._named, self._rows = named[order], rows[order]
        self._start, self._batch, self._live = start, batch, live

    def count(self, keys: Hashes) -> Index:
        """How often each is alive; what no retraction names is not looked for."""
        at = np.minimum(self._named.searchsorted(keys), len(self._named) - 1)
        rows = self._rows[at]
        found = self._live.count(self._start[rows], self._batch.ve[rows])
        return np.where(self._named[at] == keys, found, 0)


def end_changes(batch: EventBatch, start: Hashes) -> tuple[Hashes, Ticks, Index]:
    """What changes take away from the ends that are alive, and what they add."""
    old, new = old_end(batch), new_end(batch)
    gone, come = (old != batch.vs).nonzero()[0], (new != batch.vs).nonzero()[0]
    delta = np.repeat([-1, 1], [len(gone), len(come)])
    return np.concatenate([start[gone], start[come]]), np.concatenate([old[gone], new[come]]), delta


def _age_limits(seen: Ticks, past: Past, remember: int) -> Ticks:
    """Up to where age has closed the past after each row."""
    if remember == FOREVER:
        return np.full(len(seen), past.aged)
    latest = np.maximum.accumulate(np.maximum(seen, past.latest))
    return np.maximum(ticks.add(latest, -remember), past.aged)


def _shift(after: Ticks, first: int) -> Ticks:
    return np.append(np.int64(first), after[:-1])
