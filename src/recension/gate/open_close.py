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

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, EventBatch, Index, Mask
from recension.core.formats.decode import OPEN
from recension.core.netting import distinct
from recension.core.placement import PlacedRows
from recension.core.records import record
from recension.core.rows import NOWHERE, Origin, Rows
from recension.core.ticks import BEGINNING
from recension.core.time_kind import TimeKind, describe_time
from recension.core.validity import LATE, DroppedElements, Policy
from recension.core.values import rows_of
from recension.gate.step import Arrival, CountByPartition, Step, Verdict
from recension.gate.toggles import (
    FaultyRows,
    OpenEvents,
    Toggles,
    find_levels,
    in_order,
    key_on_level,
    rewrite,
    to_elements,
    toggles_of,
)
from recension.plan.source import Source

NOT_OPEN: Final = "closes an event that is not open, or whose end is final"
GONE: Final = "closes an event that is not open, or that ended too long ago for the steps above"
BEFORE_START: Final = "closes an event before its start"


class OpenedAndClosed(Step):
    """The step *open and close*: see `OpenClose`."""

    def __init__(self, source: Source, count: CountByPartition | None) -> None:
        super().__init__()
        self._translator = OpenClose(source.on_violation, once=source.closes_once)
        self._count = count
        self.counts, self.dropped = self._translator.counts, self._translator.dropped

    def judge(self, rows: Rows, arrival: Arrival) -> Verdict:
        """The rows without opens and closes; a close of nothing is a fault."""
        found = self._translator.judge(rows.batch, origin=rows.origin, kind=rows.kind, placed=rows.placed)
        take_over = partial(self._take_over, found, rows.placed)
        if found.kept is None:
            return rows, take_over
        placed = None if rows.placed is None else rows.placed.take(found.kept)
        origin = rows.origin.take(found.kept)
        return replace(rows, batch=found.batch, origin=origin, placed=placed), take_over

    def _take_over(self, found: TranslatedBatch, placed: PlacedRows | None, batch: EventBatch) -> EventBatch:
        self._translator.admit(found)
        if placed is not None and self._count is not None:
            for reason, rows in found.faults:
                self._count(reason, placed.count(rows))
        return batch

    def forget_before(self, t: int) -> None:
        """Events that ended before ``t`` cannot be closed any more."""
        self._translator.forget_before(t)

    def state_rows(self) -> int:
        """How many events can still be closed."""
        return len(self._translator)

    def state_bytes(self) -> int:
        """How much memory they take."""
        return self._translator.state_bytes()

    def snapshot(self) -> dict[str, pa.Table]:
        """What can still be closed."""
        return self._translator.snapshot()

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Become what `snapshot` gave."""
        self._translator.restore(chunks)


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
        self._open = OpenEvents()
        self._frontier = self._no_effect_before = BEGINNING
        self._has_forgotten = False

    def __len__(self) -> int:
        return len(self._open)

    def state_bytes(self) -> int:
        """How much memory the open events take."""
        return self._open.nbytes()

    def translate(self, batch: EventBatch, *, origin: Origin = NOWHERE, kind: TimeKind = None) -> EventBatch:
        """The batch in inserts and retractions; ``kind`` is that of the times, for messages."""
        translated = self.judge(batch, origin=origin, kind=kind)
        self.admit(translated)
        return translated.batch

    def judge(
        self,
        batch: EventBatch,
        *,
        origin: Origin = NOWHERE,
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
        rows, faults = np.flatnonzero(batch.kind >= OPEN), FaultyRows()
        fresh = toggles_of(batch, rows, self._frontier, placed)
        if self._policy == "drop":
            fresh = faults.drop(fresh, fresh.is_open & (fresh.start < fresh.frontier), LATE)
        toggles = self._drop_faulty(self._lay_out(fresh), faults)
        self._report(faults, batch, origin, kind, placed)
        events, kept = toggles.last_of_each(), np.ones(len(batch), np.bool_)
        kept[rows] = False
        kept[toggles.row[toggles.row >= 0]] = True
        batch = rewrite(batch, toggles).filter(kept)
        return TranslatedBatch(batch, frontier, events, faults.counts, faults.dropped, kept, faults.found)

    def admit(self, translated: TranslatedBatch) -> None:
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
            return in_order([known, fresh])
        depth = self._open.depths(keys, known)[np.searchsorted(keys, fresh.key)]
        ignored = ~fresh.is_open & (self._policy == "drop") & (fresh.end < fresh.frontier)
        while True:
            level = find_levels(fresh, depth, ignored)
            self._open.most_levels = max(self._open.most_levels, int(level.max(initial=1)))
            on_level = replace(fresh, key=key_on_level(fresh.key, level))
            toggles = in_order([self._open.find_events(distinct(on_level.key)), on_level])
            # A close before its start ends nothing: later rows of its payload may have other levels.
            early = np.isin(fresh.row, toggles.row[toggles.is_early()]) & ~ignored
            if self._policy == "raise" or not bool(early.any()):
                return toggles
            at = np.flatnonzero(early)
            ignored[at[np.append(True, fresh.key[at[1:]] != fresh.key[at[:-1]])]] = True

    def _drop_faulty(self, toggles: Toggles, faults: FaultyRows) -> Toggles:
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
        faults: FaultyRows,
        batch: EventBatch,
        origin: Origin,
        kind: TimeKind,
        placed: PlacedRows | None,
    ) -> None:
        faulty = [fault for fault in faults.found if fault[0] != GONE]
        if faulty and self._policy == "raise":
            reason, rows = min(faulty, key=lambda fault: int(fault[1].min()))
            at = int(rows.min())
            payload = rows_of(batch.payload.slice(at, 1)) or [{}]
            at_time = describe_time(int(batch.ve[at]), kind)
            place = "" if placed is None else placed.describe(at)
            raise origin.error(f"{place}{reason}: {payload[0]} at {at_time}", at)
        for reason, rows in faults.found:
            faults.counts[reason] += len(rows)
            faults.dropped.append((reason, to_elements(batch.take(rows))))


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
