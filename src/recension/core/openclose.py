"""Feeds that say when something opens and when it closes, as inserts and retractions.

``open(p, vs)`` is an insert that never ends. ``close(p, ve)`` ends the most recent open event of payload
``p`` at ``ve``; another close of it revises that end, and one at its very start takes the event away.

Assumes     elements come in arrival order; open and close may stand beside any other kind.
Guarantees  each open becomes an insert and each close a retraction of the event as it stands (an insert,
            if the event had been taken away). A close of nothing, or before the start, is a fault.
State       start and end of the last open event of each payload, until a CTI has passed its end, or the time
            before which, as the caller knows, changes count for nothing. What closes an event that is gone
            because of the latter is left out and counted: it may be late, or have no event at all.
Cost        O(b log s) for a batch of b rows and s events held.
Source      LMerge technical report, Example 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, INSERT, RETRACT, EventBatch, Index, Mask, take_rows
from recension.core.errors import StreamError
from recension.core.rowhash import Hashes, row_hash
from recension.core.sorted_runs import SortedRuns
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.time_kind import TimeKind, describe_time
from recension.core.validity import LATE, Policy
from recension.core.values import rows_of

OPEN: Final = 4
CLOSE: Final = 5

NOT_OPEN: Final = "closes an event that is not open, or whose end is final"
GONE: Final = "closes an event that is not open, or that ended too long ago for the steps above"
BEFORE_START: Final = "closes an event before its start"


class OpenClose:
    """Translates a stream batch by batch.

    With another policy than ``raise``, faulty rows are left out, counted by reason and kept in
    ``dropped`` (a close stands there as a retraction of an event without end). With ``drop`` so is what
    comes too late for a CTI: the next close of the same event must know which end still stands. With
    ``adjust`` the `Checker` moves such elements, and follows what it has moved.
    """

    def __init__(self, policy: Policy = "raise") -> None:
        self.counts: Counter[str] = Counter()
        self.dropped: list[tuple[str, EventBatch]] = []
        self._policy = policy
        self._open = OpenEvents()
        self._frontier = self._settled = BEGINNING
        self._has_forgotten = False

    def __len__(self) -> int:
        return len(self._open)

    def state_bytes(self) -> int:
        """How much memory the open events take."""
        return self._open.nbytes()

    def translate(
        self, batch: EventBatch, *, first_row: int = 1, file: str | None = None, kind: TimeKind = None
    ) -> EventBatch:
        """The batch in inserts and retractions; its first row is ``first_row`` of ``file``.

        ``kind`` is that of the times, for messages.
        """
        translated = self.judge(batch, first_row=first_row, file=file, kind=kind)
        self.note(translated)
        return translated.batch

    def judge(
        self, batch: EventBatch, *, first_row: int = 1, file: str | None = None, kind: TimeKind = None
    ) -> Translated:
        """What `translate` gives, without remembering anything yet."""
        frontier = int(batch.vs[batch.kind == CTI].max(initial=self._frontier))
        rows, faults, events = np.flatnonzero(batch.kind >= OPEN), _Faults(), None
        if len(rows):
            walk = self._standing(_walk(batch, rows, self._frontier, self._open), faults)
            self._report(faults, batch, first_row, file, kind)
            events, batch = walk.last_of_each(), _written(batch, rows, walk)
        return Translated(batch, events, frontier, faults.counts, faults.dropped)

    def note(self, translated: Translated) -> None:
        """Remember what was opened and closed, and count what was left out."""
        self.counts.update(translated.counts)
        self.dropped += translated.dropped
        if translated.events is not None:
            self._remember(translated.events)
        if translated.frontier > self._frontier:
            self._frontier = translated.frontier
            self._forget()

    def _remember(self, events: Walk) -> None:
        """Whether changes to these come to nothing is yet to be heard, however long ago they ended."""
        self._settled = int(events.end.min(initial=self._settled))
        self._forget()
        self._open.put(events)

    def forget_before(self, t: int) -> None:
        """Changes to events that have ended before ``t`` by now come to nothing: they need not be known."""
        if t != self._settled:
            self._settled = t
            self._has_forgotten |= t > BEGINNING
            self._forget()

    def _forget(self) -> None:
        self._open.forget_before(max(self._frontier, self._settled))

    def snapshot(self) -> dict[str, pa.Table]:
        """What can still be closed; counts and dropped rows are not part of it."""
        until = pa.table(
            {"frontier": [self._frontier], "settled": [self._settled], "has_forgotten": [self._has_forgotten]}
        )
        return {"open": self._open.snapshot(), "open_until": until}

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Remember what the snapshot remembers."""
        self._frontier = chunks["open_until"]["frontier"][0].as_py()
        self._settled = chunks["open_until"]["settled"][0].as_py()
        self._has_forgotten = chunks["open_until"]["has_forgotten"][0].as_py()
        self._open.restore(chunks["open"], max(self._frontier, self._settled))

    def _standing(self, walk: Walk, faults: _Faults) -> Walk:
        """The rows that stand, each close with the start of its event."""
        if self._policy == "drop":
            walk = faults.without(walk, walk.is_open & (walk.row >= 0) & (walk.start < walk.frontier), LATE)
        walk = faults.without(walk, walk.opener() < 0, GONE if self._has_forgotten else NOT_OPEN)
        walk = replace(walk, start=walk.start[walk.opener()])
        is_early = ~walk.is_open & (walk.end < walk.start)
        is_late = ~walk.is_open & (walk.end < walk.frontier) & (self._policy == "drop")
        if self._policy == "adjust":
            walk = replace(walk, shown_end=np.maximum(walk.shown_end, walk.frontier))
        # That an end is final comes first: in a later batch nothing else would be known of the event.
        is_final = walk.is_final(is_early | is_late)
        reasons = {NOT_OPEN: is_final, BEFORE_START: is_early & ~is_final}
        return faults.without_any(walk, reasons | {LATE: is_late & ~is_early & ~is_final})

    def take_dropped(self) -> list[tuple[str, EventBatch]]:
        """The elements left out since the last time of asking; forgets them."""
        dropped, self.dropped = self.dropped, []
        return dropped

    def _report(
        self, faults: _Faults, batch: EventBatch, first_row: int, file: str | None, kind: TimeKind
    ) -> None:
        faulty = [fault for fault in faults.found if fault[0] != GONE]
        if faulty and self._policy == "raise":
            reason, rows = min(faulty, key=lambda fault: int(fault[1].min()))
            at = int(rows.min())
            payload = rows_of(batch.payload.slice(at, 1)) or [{}]
            at_time = describe_time(int(batch.ve[at]), kind)
            raise StreamError(f"{reason}: {payload[0]} at {at_time}", file=file, row=first_row + at)
        for reason, rows in faults.found:
            faults.counts[reason] += len(rows)
            faults.dropped.append((reason, _as_elements(batch.take(rows))))


@dataclass(frozen=True, slots=True)
class Translated:
    """A batch without opens and closes, and what is to be remembered of them once all of it is taken in."""

    batch: EventBatch
    events: Walk | None
    frontier: int
    counts: Counter[str]
    dropped: list[tuple[str, EventBatch]]


class _Faults:
    """The rows that may not be there, by reason."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Index]] = []
        self.counts: Counter[str] = Counter()
        self.dropped: list[tuple[str, EventBatch]] = []

    def without(self, walk: Walk, bad: Mask, reason: str) -> Walk:
        if not bool(bad.any()):
            return walk
        self.found.append((reason, walk.row[bad]))
        return walk.take(~bad)

    def without_any(self, walk: Walk, bad: Mapping[str, Mask]) -> Walk:
        self.found += [(reason, walk.row[rows]) for reason, rows in bad.items() if bool(rows.any())]
        return walk.take(~np.logical_or.reduce(list(bad.values())))


def _walk(batch: EventBatch, rows: Index, frontier: int, known: OpenEvents) -> Walk:
    kind = batch.kind[rows]
    end = np.where(kind == OPEN, FOREVER, batch.ve[rows])
    keys = row_hash(take_rows(batch.payload, rows), len(rows))
    ctis = np.where(batch.kind == CTI, batch.vs, np.int64(BEGINNING))
    before = np.maximum.accumulate(np.append(frontier, ctis))
    fresh = Walk(keys, rows, kind == OPEN, batch.vs[rows], end, end, before[rows])
    walk = concatenated([known.of(np.unique(keys)), fresh])
    return walk.take(np.argsort(walk.key, kind="stable"))


def _written(batch: EventBatch, rows: Index, walk: Walk) -> EventBatch:
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


@dataclass(frozen=True, slots=True)
class Walk:
    """Open and close rows by payload, then by arrival, each with the CTI before it.

    An end that was told too late for its CTI may be shown otherwise: moved there. What is remembered from
    earlier batches stands as an open (``row`` -1) before the rows of its payload.
    """

    key: Hashes
    row: Index
    is_open: Mask
    start: Ticks
    end: Ticks
    shown_end: Ticks
    frontier: Ticks

    def take(self, at: Index | Mask) -> Walk:
        """Some of the rows."""
        return Walk(*(getattr(self, field.name)[at] for field in fields(self)))

    def opener(self) -> Index:
        """The last open of the same payload at or before each row; -1 if there is none."""
        at = np.maximum.accumulate(np.where(self.is_open, np.arange(len(self.key)), -1))
        return np.where((at >= 0) & (self.key[at] == self.key), at, -1)

    def end_before(self) -> Ticks:
        """For each close the end that its event had until then."""
        return np.append(np.int64(FOREVER), self.end[:-1])

    def is_final(self, ignored: Mask) -> Mask:
        """Which closes find their event ended before a CTI; once one does, all later ones of it do.

        What is ignored ends nothing.
        """
        last = np.maximum.accumulate(np.where(ignored, 0, np.arange(len(self.key))))
        end_before = np.append(np.int64(FOREVER), self.shown_end[last][:-1])
        has_ended = (end_before < self.frontier) | (self.frontier == FOREVER)
        fails = np.cumsum(~self.is_open & has_ended)
        final: Mask = ~self.is_open & (fails > fails[self.opener()])
        return final

    def last_of_each(self) -> Walk:
        """The state of each payload after the last row."""
        return self.take(np.append(self.key[1:] != self.key[:-1], True)[: len(self.key)])


class OpenEvents(SortedRuns):
    """The last open event of each payload, known by hash, as long as it can be closed."""

    def __init__(self) -> None:
        types = {"key": np.uint64, "start": np.int64, "end": np.int64, "shown_end": np.int64}
        super().__init__(types, equal="newest", expiry="shown_end")

    def of(self, keys: Hashes) -> Walk:
        """The events of the given (sorted) payloads that can still be closed."""
        found = self.matching(keys)
        size = len(found["key"])
        row, is_open, frontier = np.full(size, -1), np.ones(size, np.bool_), np.full(size, BEGINNING)
        return Walk(row=row, is_open=is_open, frontier=frontier, **found)

    def put(self, events: Walk) -> None:
        """Remember the events of these (sorted) payloads instead of earlier ones."""
        self.push(events.key, events.start, events.end, events.shown_end, is_run=True)


def concatenated(walks: list[Walk]) -> Walk:
    """All rows of several walks, one after the other."""
    return Walk(*(np.concatenate([getattr(walk, field.name) for walk in walks]) for field in fields(Walk)))
