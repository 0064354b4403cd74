"""Feeds that say when something opens and when it closes, as inserts and retractions.

``open(p, vs)`` is an insert that never ends. ``close(p, ve)`` ends the most recent open event of payload
``p`` at ``ve``; another close of it revises that end, and one at its very start takes the event away.

In feeds in which an end stands once it was given (``once``), each of equal events has a close of its own,
the one opened last the next. They are told apart by their level: how many are open, itself included. On each
level one event is open at a time.

    level 2           open(3) ---- close(5)
    level 1   open(1) ---------------------- close(7)

Assumes     elements come in arrival order; open and close may stand beside any other kind.
Guarantees  each open becomes an insert and each close a retraction of the event as it stands (an insert,
            if the event had been taken away). A close of nothing, or before the start, is a fault.
State       start and end of the last open event of each payload (and level), until a CTI has passed its end,
            or the time before which the caller ignores changes. What closes an event that is gone because of
            the latter is dropped and counted: it may be late, or have no event at all.
Cost        O(b log s) for a batch of b rows and s events held.
Source      LMerge technical report, Example 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, INSERT, RETRACT, EventBatch, Index, Mask, take_rows
from recension.core.errors import StreamError
from recension.core.netting import distinct
from recension.core.partitions import PlacedRows
from recension.core.records import record
from recension.core.rowhash import Hashes, combine, row_hash
from recension.core.sorted_runs import SortedRuns
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.time_kind import TimeKind, describe_time
from recension.core.validity import LATE, DroppedElements, Policy, frontier_before
from recension.core.values import rows_of

OPEN: Final = 4
CLOSE: Final = 5

NOT_OPEN: Final = "closes an event that is not open, or whose end is final"
GONE: Final = "closes an event that is not open, or that ended too long ago for the steps above"
BEFORE_START: Final = "closes an event before its start"


class OpenClose(DroppedElements):
    """Translates a stream batch by batch.

    With another policy than ``raise``, faulty rows are dropped, counted by reason and kept in
    ``dropped`` (a close stands there as a retraction of an event without end). With ``drop`` so is what
    comes too late for a CTI: the next close of the same event must know which end still stands. With
    ``adjust`` the `Checker` moves such elements, and follows what it has moved. With ``once`` a close of
    what has ended is a fault.
    """

    def __init__(self, policy: Policy = "raise", *, once: bool = False) -> None:
        super().__init__()
        self._policy, self._once = policy, once
        self._open = _OpenEvents()
        self._frontier = self._no_effect_before = BEGINNING
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
        self,
        batch: EventBatch,
        *,
        first_row: int = 1,
        file: str | None = None,
        kind: TimeKind = None,
        placed: PlacedRows | None = None,
    ) -> TranslatedBatch:
        """What `translate` gives, without remembering anything yet.

        ``placed`` says how the rows stand in sub-streams: a close finds what was opened in its own.
        """
        frontier = self._frontier if placed is None else placed.cti
        if placed is None and batch.last_kind >= CTI:
            frontier = int(batch.vs[batch.kind == CTI].max(initial=frontier))
        if batch.last_kind < OPEN:
            return TranslatedBatch(batch, frontier)
        rows, faults = np.flatnonzero(batch.kind >= OPEN), _FaultyRows()
        fresh = _toggles(batch, rows, self._frontier, placed)
        if self._policy == "drop":
            fresh = faults.drop(fresh, fresh.is_open & (fresh.start < fresh.frontier), LATE)
        toggles = self._drop_faulty(self._lay_out(fresh), faults)
        self._report(faults, batch, first_row, file, kind, placed)
        events, kept = toggles.last_of_each(), np.ones(len(batch), np.bool_)
        kept[rows] = False
        kept[toggles.row[toggles.row >= 0]] = True
        batch = _rewrite(batch, toggles).filter(kept)
        return TranslatedBatch(batch, frontier, events, faults.counts, faults.dropped, kept, faults.found)

    def note(self, translated: TranslatedBatch) -> None:
        """Remember what was opened and closed, and count what was dropped."""
        if translated.faults:
            self.counts.update(translated.counts)
            self.dropped += translated.dropped
        if translated.events is not None:
            self._remember(translated.events)
        if translated.frontier > self._frontier:
            self._frontier = translated.frontier
            self._forget()

    def _remember(self, events: Toggles) -> None:
        """Keep these until `forget_before` is called, even if they ended long ago."""
        self._no_effect_before = int(events.end.min(initial=self._no_effect_before))
        self._forget()
        self._open.put(events)

    def forget_before(self, t: int) -> None:
        """The caller ignores changes to events that have ended before ``t`` by now: they are forgotten."""
        if t != self._no_effect_before:
            self._no_effect_before = t
            self._has_forgotten |= t > BEGINNING
            self._forget()

    def _forget(self) -> None:
        self._open.forget_before(max(self._frontier, self._no_effect_before))

    def snapshot(self) -> dict[str, pa.Table]:
        """What can still be closed; counts and dropped rows are not part of it."""
        until = pa.table(
            {
                "frontier": [self._frontier],
                "no_effect_before": [self._no_effect_before],
                "has_forgotten": [self._has_forgotten],
                "most_levels": [self._open.most_levels],
            }
        )
        return {"open": self._open.snapshot(), "open_until": until}

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Become what `snapshot` gave."""
        self._frontier = chunks["open_until"]["frontier"][0].as_py()
        self._no_effect_before = chunks["open_until"]["no_effect_before"][0].as_py()
        self._has_forgotten = chunks["open_until"]["has_forgotten"][0].as_py()
        self._open.restore(chunks["open"], max(self._frontier, self._no_effect_before))
        until = chunks["open_until"]
        # States from before there were levels do not say it.
        self._open.most_levels = until["most_levels"][0].as_py() if "most_levels" in until.column_names else 1

    def _lay_out(self, fresh: Toggles) -> Toggles:
        """These rows by payload and level, after what is known of these events."""
        keys = distinct(fresh.key)
        known = self._open.find_events(keys)
        if not self._once:
            return _in_order([known, fresh])
        depth = self._open.depths(keys, known)[np.searchsorted(keys, fresh.key)]
        ignored = ~fresh.is_open & (self._policy == "drop") & (fresh.end < fresh.frontier)
        while True:
            level = _levels(fresh, depth, ignored)
            self._open.most_levels = max(self._open.most_levels, int(level.max(initial=1)))
            on_level = replace(fresh, key=_key_on_level(fresh.key, level))
            toggles = _in_order([self._open.find_events(distinct(on_level.key)), on_level])
            # A close before its start ends nothing: later rows of its payload may have other levels.
            early = np.isin(fresh.row, toggles.row[toggles.is_early()]) & ~ignored
            if self._policy == "raise" or not bool(early.any()):
                return toggles
            at = np.flatnonzero(early)
            ignored[at[np.append(True, fresh.key[at[1:]] != fresh.key[at[:-1]])]] = True

    def _drop_faulty(self, toggles: Toggles, faults: _FaultyRows) -> Toggles:
        """The rows that stand, each close with the start of its event."""
        toggles = faults.drop(toggles, toggles.opener() < 0, GONE if self._has_forgotten else NOT_OPEN)
        toggles = replace(toggles, start=toggles.start[toggles.opener()])
        is_early = ~toggles.is_open & (toggles.end < toggles.start)
        is_late = ~toggles.is_open & (toggles.end < toggles.frontier) & (self._policy == "drop")
        if self._policy == "adjust":
            toggles = replace(toggles, output_end=np.maximum(toggles.output_end, toggles.frontier))
        # That an end is final comes first: in a later batch nothing else would be known of the event.
        is_final = toggles.is_final(is_early | is_late, once=self._once)
        reasons = {NOT_OPEN: is_final, BEFORE_START: is_early & ~is_final}
        return faults.drop_any(toggles, reasons | {LATE: is_late & ~is_early & ~is_final})

    def _report(
        self,
        faults: _FaultyRows,
        batch: EventBatch,
        first_row: int,
        file: str | None,
        kind: TimeKind,
        placed: PlacedRows | None,
    ) -> None:
        faulty = [fault for fault in faults.found if fault[0] != GONE]
        if faulty and self._policy == "raise":
            reason, rows = min(faulty, key=lambda fault: int(fault[1].min()))
            at = int(rows.min())
            payload = rows_of(batch.payload.slice(at, 1)) or [{}]
            at_time = describe_time(int(batch.ve[at]), kind)
            place, row = ("", at) if placed is None else (placed.describe(at), int(placed.row[at]))
            raise StreamError(f"{place}{reason}: {payload[0]} at {at_time}", file=file, row=first_row + row)
        for reason, rows in faults.found:
            faults.counts[reason] += len(rows)
            faults.dropped.append((reason, _to_elements(batch.take(rows))))


@record
class TranslatedBatch:
    """A batch without opens and closes, and what is to be remembered of them once all of it is taken in."""

    batch: EventBatch
    frontier: int
    events: Toggles | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    dropped: Sequence[tuple[str, EventBatch]] = ()
    kept: Mask | None = None
    """Which of the rows it was made of are in it, if there were opens or closes."""
    faults: Sequence[tuple[str, Index]] = ()
    """By reason, the rows that are not."""


class _FaultyRows:
    """The rows that may not be there, by reason."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Index]] = []
        self.counts: Counter[str] = Counter()
        self.dropped: list[tuple[str, EventBatch]] = []

    def drop(self, toggles: Toggles, bad: Mask, reason: str) -> Toggles:
        if not bool(bad.any()):
            return toggles
        self.found.append((reason, toggles.row[bad]))
        return toggles.take(~bad)

    def drop_any(self, toggles: Toggles, bad: Mapping[str, Mask]) -> Toggles:
        self.found += [(reason, toggles.row[rows]) for reason, rows in bad.items() if bool(rows.any())]
        return toggles.take(~np.logical_or.reduce(list(bad.values())))


def _toggles(batch: EventBatch, rows: Index, frontier: int, placed: PlacedRows | None) -> Toggles:
    """The open and close rows of a batch by payload."""
    is_open = batch.kind[rows] == OPEN
    end = np.where(is_open, FOREVER, batch.ve[rows])
    keys = row_hash(take_rows(batch.payload, rows), len(rows))
    if placed is None:
        before = frontier_before(batch, frontier)[rows]
    else:
        keys, before = combine(keys, placed.salt[rows]), placed.before[rows]
    fresh = Toggles(keys, rows, is_open, batch.vs[rows], end, end, before)
    return fresh.take(np.argsort(keys, kind="stable"))


def _levels(fresh: Toggles, depth: Index, ignored: Mask) -> Index:
    """The level of each row; ``depth`` is how many events of its payload are open before the first of them.

    An open adds one and a close takes one away, if there is one: a sum that is lifted to 0 where it falls
    below.
    """
    size = len(fresh.key)
    step = np.where(fresh.is_open, 1, np.where(ignored, 0, -1))
    starts = np.append(True, fresh.key[1:] != fresh.key[:-1])[:size]
    group, first = np.cumsum(starts) - 1, np.flatnonzero(starts)
    total = np.cumsum(step)
    total -= (total[first] - step[first] - depth[first])[group]
    # No minimum of one payload reaches into the next.
    apart = group * (2 * size + 2 + int(depth.max(initial=0)))
    lowest = np.minimum.accumulate(np.minimum(total, 0) - apart) + apart
    after = total - lowest
    level: Index = np.where(fresh.is_open, after, np.where(ignored, np.maximum(after, 1), after + 1))
    return level


def _key_on_level(keys: Hashes, level: Index) -> Hashes:
    """The keys of events on these levels; on level 1 that of the payload."""
    above = level > 1
    return np.where(above, combine(keys, level.astype(np.int64)), keys) if bool(above.any()) else keys


def _rewrite(batch: EventBatch, toggles: Toggles) -> EventBatch:
    """The batch with its open and close rows replaced by what became of them."""
    before = toggles.end_before()
    # An event closed at its start is no longer there; a later close brings it back.
    is_insert = toggles.is_open | (before == toggles.start)
    is_new = toggles.row >= 0
    at = toggles.row[is_new]
    kind = batch.kind.copy()
    kind[at] = np.where(is_insert, INSERT, RETRACT)[is_new]
    times = np.stack([batch.vs, batch.ve, batch.new_ve])
    times[0, at] = toggles.start[is_new]
    times[1, at] = np.where(is_insert, toggles.end, before)[is_new]
    times[2, at] = np.where(is_insert, FOREVER, toggles.end)[is_new]
    return EventBatch(kind, times[0], times[1], times[2], batch.count, batch.payload)


def _to_elements(rows: EventBatch) -> EventBatch:
    """Open and close rows as the elements they come nearest to."""
    kind = np.where(rows.kind == OPEN, INSERT, RETRACT).astype(np.uint8)
    forever = np.full(len(rows), FOREVER)
    return EventBatch(
        kind, rows.vs, forever, np.where(kind == RETRACT, rows.ve, FOREVER), rows.count, rows.payload
    )


@record
class Toggles:
    """Open and close rows by payload (and level), then by arrival, each with the CTI before it.

    An end that came too late for its CTI may be another in the output: it is moved there. What is remembered
    from earlier batches stands as an open (``row`` -1) before the rows of its payload.
    """

    key: Hashes
    row: Index
    is_open: Mask
    start: Ticks
    end: Ticks
    output_end: Ticks
    frontier: Ticks

    def take(self, at: Index | Mask) -> Toggles:
        """Some of the rows."""
        return Toggles(*(getattr(self, field.name)[at] for field in fields(self)))

    def opener(self) -> Index:
        """The last open of the same payload at or before each row; -1 if there is none."""
        at = np.maximum.accumulate(np.where(self.is_open, np.arange(len(self.key)), -1))
        return np.where((at >= 0) & (self.key[at] == self.key), at, -1)

    def end_before(self) -> Ticks:
        """For each close the end that its event had until then."""
        return np.append(np.int64(FOREVER), self.end[:-1])

    def is_early(self) -> Mask:
        """Which closes end their event before its start."""
        opener = self.opener()
        early: Mask = ~self.is_open & (opener >= 0) & (self.end < self.start[opener])
        return early

    def is_final(self, ignored: Mask, *, once: bool) -> Mask:
        """Which closes find their event ended before a CTI; once one does, all later ones of it do.

        What is ignored ends nothing. With ``once`` every end is final.
        """
        last = np.maximum.accumulate(np.where(ignored, 0, np.arange(len(self.key))))
        end_before = np.append(np.int64(FOREVER), self.output_end[last][:-1])
        has_ended = (end_before < self.frontier) | (self.frontier == FOREVER)
        if once:
            has_ended |= end_before != FOREVER
        fails = np.cumsum(~self.is_open & has_ended)
        final: Mask = ~self.is_open & (fails > fails[self.opener()])
        return final

    def last_of_each(self) -> Toggles:
        """The state of each payload after the last row."""
        return self.take(np.append(self.key[1:] != self.key[:-1], True)[: len(self.key)])


class _OpenEvents(SortedRuns):
    """The last open event of each payload (and level), known by hash, as long as it can be closed."""

    most_levels = 1
    """So many levels there were at most."""

    def __init__(self) -> None:
        types = {"key": np.uint64, "start": np.int64, "end": np.int64, "output_end": np.int64}
        super().__init__(types, equal="newest", expiry="output_end")

    def find_events(self, keys: Hashes) -> Toggles:
        """The events of the given (sorted) payloads that can still be closed."""
        found = self.find_rows(keys)
        size = len(found["key"])
        row, is_open, frontier = np.full(size, -1), np.ones(size, np.bool_), np.full(size, BEGINNING)
        return Toggles(row=row, is_open=is_open, frontier=frontier, **found)

    def depths(self, keys: Hashes, first: Toggles) -> Index:
        """How many events of these (sorted) payloads are open; ``first`` are those on level 1.

        They are found by halving: below the last level with an open event there is one on each.
        """
        low = np.isin(keys, first.key[first.end == FOREVER]).astype(np.int64)
        high = np.where(low > 0, self.most_levels, 0)
        while bool((is_unknown := low < high).any()):
            middle = (low + high + 1) // 2
            on_level = _key_on_level(keys, middle)
            found = self.find_rows(distinct(on_level[is_unknown]))
            is_open = np.isin(on_level, found["key"][found["end"] == FOREVER])
            low = np.where(is_unknown & is_open, middle, low)
            high = np.where(is_unknown & ~is_open, middle - 1, high)
        return low

    def put(self, events: Toggles) -> None:
        """Remember the events of these (sorted) payloads instead of earlier ones."""
        self.push(events.key, events.start, events.end, events.output_end, is_run=True)


def _in_order(parts: list[Toggles]) -> Toggles:
    """All rows of several parts by their keys, those of one key part by part."""
    names = [field.name for field in fields(Toggles)]
    toggles = Toggles(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
    return toggles.take(np.argsort(toggles.key, kind="stable"))
