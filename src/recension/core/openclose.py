"""Feeds that say when something opens and when it closes, as inserts and retractions.

``open(p, vs)`` is an insert that never ends. ``close(p, ve)`` ends the most recent open event of payload
``p`` at ``ve``; another close of it revises that end, and one at its very start takes the event away.

Assumes     elements come in arrival order; open and close may stand beside any other kind.
Guarantees  each open becomes an insert and each close a retraction of the event as it stands (an insert,
            if the event had been taken away). A close of nothing, or before the start, is a fault.
State       start and end of the last open event of each payload, until a CTI has passed its end.
Cost        O(b log s) for a batch of b rows and s events held.
Source      LMerge technical report, Example 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, INSERT, RETRACT, EventBatch, Index, Mask, take_rows
from recension.core.errors import StreamError
from recension.core.rowhash import Hashes, row_hash
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.validity import ADJUSTED, LATE, Policy

OPEN: Final = 4
CLOSE: Final = 5

NOT_OPEN: Final = "closes an event that is not open, or whose end is final"
BEFORE_START: Final = "closes an event before its start"


class OpenClose:
    """Translates a stream batch by batch.

    With another policy than ``raise``, faulty rows are left out, counted by reason and kept in
    ``rejected`` (a close stands there as a retraction of an event without end). What comes too late for a
    CTI is then settled here as well: the next close of the same event must know which end still stands.
    """

    def __init__(self, policy: Policy = "raise") -> None:
        self.counts: Counter[str] = Counter()
        self.rejected: list[tuple[str, EventBatch]] = []
        self._policy = policy
        self._open = _OpenEvents()
        self._frontier = BEGINNING

    def __len__(self) -> int:
        return len(self._open)

    def state_bytes(self) -> int:
        """How much memory the open events take: five columns of eight bytes and one of one."""
        return 41 * len(self._open)

    def translate(self, batch: EventBatch, *, first_row: int = 1, file: str | None = None) -> EventBatch:
        """The batch in inserts and retractions; its first row is ``first_row`` of ``file``."""
        frontier = int(batch.vs[batch.kind == CTI].max(initial=self._frontier))
        rows = np.flatnonzero(batch.kind >= OPEN)
        if len(rows):
            faults = _Faults()
            walk = self._settled(_walk(batch, rows, self._frontier, self._open), faults)
            self._report(faults, batch, first_row, file)
            self._open.put(walk.last_of_each())
            batch = _written(batch, rows, walk)
        if frontier > self._frontier:
            self._frontier = frontier
            self._open.forget_before(frontier)
        return batch

    def snapshot(self) -> dict[str, pa.Table]:
        """What can still be closed; counts and rejected rows are not part of it."""
        return {"open": self._open.to_arrow(), "open_until": pa.table({"frontier": [self._frontier]})}

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Remember what the snapshot remembers."""
        self._frontier = chunks["open_until"]["frontier"][0].as_py()
        self._open.load(chunks["open"], self._frontier)

    def _settled(self, walk: _Walk, faults: _Faults) -> _Walk:
        """The rows that stand, each close with the start of its event."""
        if self._policy != "raise":
            walk = self._late_opens(walk, faults)
        walk = faults.without(walk, walk.opener() < 0, NOT_OPEN)
        walk = replace(walk, start=walk.start[walk.opener()])
        walk = faults.without(walk, ~walk.is_open & (walk.end < walk.start), BEFORE_START)
        if self._policy != "raise":
            walk = self._late_closes(walk, faults)
        return faults.without(walk, walk.is_final(), NOT_OPEN)

    def _late_opens(self, walk: _Walk, faults: _Faults) -> _Walk:
        late = walk.is_open & (walk.start < walk.frontier)
        if self._policy == "drop":
            return faults.without(walk, late, LATE)
        self.counts[ADJUSTED] += int(late.sum())
        return replace(walk, start=np.where(late, walk.frontier, walk.start))

    def _late_closes(self, walk: _Walk, faults: _Faults) -> _Walk:
        late = ~walk.is_open & (walk.end < walk.frontier)
        if self._policy == "drop":
            return faults.without(walk, late, LATE)
        walk = replace(walk, end=np.where(late, walk.frontier, walk.end))
        self.counts[ADJUSTED] += int((late & ~walk.is_final()).sum())
        return walk

    def take_rejected(self) -> list[tuple[str, EventBatch]]:
        """The elements left out since the last time of asking; forgets them."""
        rejected, self.rejected = self.rejected, []
        return rejected

    def _report(self, faults: _Faults, batch: EventBatch, first_row: int, file: str | None) -> None:
        if faults.found and self._policy == "raise":
            reason, rows = min(faults.found, key=lambda fault: int(fault[1].min()))
            at = int(rows.min())
            payload = batch.payload.slice(at, 1).to_pylist() or [{}]
            raise StreamError(f"{reason}: {payload[0]} at {batch.ve[at]}", file=file, row=first_row + at)
        for reason, rows in faults.found:
            self.counts[reason] += len(rows)
            self.rejected.append((reason, _as_elements(batch.take(rows))))


@dataclass(frozen=True, slots=True)
class _Walk:
    """Open and close rows by payload, then by arrival.

    What is remembered from earlier batches stands as an open (``row`` -1) before the rows of its payload.
    """

    key: Hashes
    row: Index
    is_open: Mask
    start: Ticks
    end: Ticks
    frontier: Ticks

    def take(self, at: Index | Mask) -> _Walk:
        return _Walk(
            self.key[at], self.row[at], self.is_open[at], self.start[at], self.end[at], self.frontier[at]
        )

    def opener(self) -> Index:
        """The last open of the same payload at or before each row; -1 if there is none."""
        at = np.maximum.accumulate(np.where(self.is_open, np.arange(len(self.key)), -1))
        return np.where((at >= 0) & (self.key[at] == self.key), at, -1)

    def end_before(self) -> Ticks:
        """For each close the end that its event had until then."""
        return np.append(np.int64(FOREVER), self.end[:-1])

    def is_final(self) -> Mask:
        """Which closes find their event ended before a CTI; once one does, all later ones of it do."""
        has_ended = (self.end_before() < self.frontier) | (self.frontier == FOREVER)
        fails = np.cumsum(~self.is_open & has_ended)
        final: Mask = ~self.is_open & (fails > fails[self.opener()])
        return final

    def last_of_each(self) -> _Walk:
        """The state of each payload after the last row."""
        return self.take(np.append(self.key[1:] != self.key[:-1], True)[: len(self.key)])


class _Faults:
    """The rows that may not be there, by reason."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Index]] = []

    def without(self, walk: _Walk, bad: Mask, reason: str) -> _Walk:
        if not bool(bad.any()):
            return walk
        self.found.append((reason, walk.row[bad]))
        return walk.take(~bad)


def _walk(batch: EventBatch, rows: Index, frontier: int, known: _OpenEvents) -> _Walk:
    kind = batch.kind[rows]
    end = np.where(kind == OPEN, FOREVER, batch.ve[rows])
    keys = row_hash(take_rows(batch.payload, rows), len(rows))
    ctis = np.where(batch.kind == CTI, batch.vs, np.int64(BEGINNING))
    before = np.maximum.accumulate(np.append(frontier, ctis))
    fresh = _Walk(keys, rows, kind == OPEN, batch.vs[rows], end, before[rows])
    walk = _concatenated([known.of(np.unique(keys)), fresh])
    return walk.take(np.argsort(walk.key, kind="stable"))


def _written(batch: EventBatch, rows: Index, walk: _Walk) -> EventBatch:
    """The batch with its open and close rows replaced by what became of them."""
    before = walk.end_before()
    # An event closed at its start is no longer there; a later close brings it back.
    is_insert = walk.is_open | (before == walk.start)
    shown = walk.row >= 0
    at = walk.row[shown]
    kind = batch.kind.copy()
    kind[at] = np.where(is_insert, INSERT, RETRACT)[shown]
    times = np.stack([batch.vs, batch.ve, batch.new_ve])
    times[0, at] = walk.start[shown]
    times[1, at] = np.where(is_insert, walk.end, before)[shown]
    times[2, at] = np.where(is_insert, FOREVER, walk.end)[shown]
    kept = np.ones(len(batch), np.bool_)
    kept[rows] = False
    kept[at] = True
    return EventBatch(kind, times[0], times[1], times[2], batch.count, batch.payload).filter(kept)


def _as_elements(rows: EventBatch) -> EventBatch:
    """Open and close rows as the elements they come nearest to."""
    kind = np.where(rows.kind == OPEN, INSERT, RETRACT).astype(np.uint8)
    forever = np.full(len(rows), FOREVER)
    return EventBatch(
        kind, rows.vs, forever, np.where(kind == RETRACT, rows.ve, FOREVER), rows.count, rows.payload
    )


def _concatenated(walks: list[_Walk]) -> _Walk:
    return _Walk(
        np.concatenate([walk.key for walk in walks]),
        np.concatenate([walk.row for walk in walks]),
        np.concatenate([walk.is_open for walk in walks]),
        np.concatenate([walk.start for walk in walks]),
        np.concatenate([walk.end for walk in walks]),
        np.concatenate([walk.frontier for walk in walks]),
    )


class _OpenEvents:
    """The last open event of each payload, known by hash, as a few sorted runs (see bag.py)."""

    def __init__(self) -> None:
        self._runs: list[_Walk] = []
        self._frontier = BEGINNING

    def __len__(self) -> int:
        return sum(len(run.key) for run in self._runs)

    def of(self, keys: Hashes) -> _Walk:
        """The events of the given (sorted) payloads that can still be closed."""
        found = [run.take(_positions(run.key, keys)) for run in self._runs]
        return self._live(_newest(_concatenated([_nothing(), *found])))

    def put(self, events: _Walk) -> None:
        """Remember the events of these (sorted) payloads instead of earlier ones."""
        size = len(events.key)
        none, nowhere = np.full(size, BEGINNING), np.full(size, -1)
        self._runs.append(replace(events, row=nowhere, is_open=np.ones(size, np.bool_), frontier=none))
        while len(self._runs) > 1 and 2 * len(self._runs[-1].key) >= len(self._runs[-2].key):
            last, before = self._runs.pop(), self._runs.pop()
            self._runs.append(_newest(_concatenated([before, last])))
        # Only the oldest run may drop what is final: elsewhere that would uncover what it replaced.
        self._runs[0] = self._live(self._runs[0])

    def to_arrow(self) -> pa.Table:
        """Payload hashes with the lifetimes of their events."""
        events = self._live(_newest(_concatenated([_nothing(), *self._runs])))
        return pa.table({"key": events.key, "start": events.start, "end": events.end})

    def load(self, table: pa.Table, frontier: int) -> None:
        """Become what `to_arrow` gave."""
        self._runs, self._frontier = [], frontier
        if table.num_rows:
            key, start, end = (table[name].to_numpy() for name in ("key", "start", "end"))
            row, is_open = np.full(len(key), -1), np.ones(len(key), np.bool_)
            self._runs = [_Walk(key, row, is_open, start, end, np.full(len(key), BEGINNING))]

    def forget_before(self, t: int) -> None:
        """Nothing that ended before ``t`` can be closed again; the space is freed by later merges."""
        self._frontier = t
        if t == FOREVER:
            self._runs = []

    def _live(self, run: _Walk) -> _Walk:
        keep = run.end >= self._frontier
        return run if bool(keep.all()) else run.take(keep)


def _positions(haystack: Hashes, needles: Hashes) -> Index:
    at = np.searchsorted(haystack, needles).astype(np.int64)
    at = at[at < len(haystack)]
    found: Index = at[haystack[at] == needles[: len(at)]]
    return found


def _newest(events: _Walk) -> _Walk:
    """One event a payload, sorted: the one that came last."""
    events = events.take(np.argsort(events.key, kind="stable"))
    return events.last_of_each()


def _nothing() -> _Walk:
    none = np.zeros(0, np.int64)
    return _Walk(np.zeros(0, np.uint64), none, np.zeros(0, np.bool_), none, none, none)
