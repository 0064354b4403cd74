"""Is it a valid stream? Finds the elements no valid stream may hold and applies the user's policy.

Assumes     batches come in arrival order.
Guarantees  what it returns, concatenated, is a valid physical stream; every element it drops or
            alters is counted by reason; `dropped` has those it drops. With the policy `adjust` what
            corrects an event that was moved follows it, however often.
State       the events that a later retraction may still name: those that end at or after the last CTI, or
            after the time before which the caller ignores changes. Of those moved, the lifetimes they have in
            the output, until a CTI has passed their end there.
Cost        O(n log n) in the batch for retractions, O(n) for the rest. Events are hashed when the first
            retraction comes while they are remembered.
Source      Operator Algorithm Design for Speculative Stream Processing, §2.2; rulings A1–A4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, EXTERNAL_CTI, INSERT, RETRACT, EventBatch, Index, Mask
from recension.core.errors import RecensionError
from recension.core.event_bag import NO_CHANGES, BagChanges, EventBag, bag_changes, find_orphans
from recension.core.late_elements import AdjustedBatch, LateElements
from recension.core.placement import PlacedRows
from recension.core.records import record
from recension.core.rowhash import Hashes, combine, row_hash
from recension.core.rows import NOWHERE, Origin
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.time_kind import TimeKind

Policy: TypeAlias = Literal["raise", "drop", "adjust"]

EMPTY = "an event that ends before it has begun"
NO_OP = "a retraction that changes nothing"
REVERSED = "a retraction to an end before the start"
NEGATIVE = "an external cti that counts less than nothing"
LATE = "breaks an earlier cti"
UNKNOWN = "retracts an event that is not there"
ELSEWHERE = "retracts an event that is not in it, but in partition"
STALE_CTI = "a cti that does not advance"
ADJUSTED = "moved to the last cti"


class DroppedElements:
    """What was dropped so far: counted by reason, and kept until it is taken."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.dropped: list[tuple[str, EventBatch]] = []

    def take_dropped(self) -> list[tuple[str, EventBatch]]:
        """The elements dropped since the last call; forgets them."""
        dropped = [*self.dropped]
        self.dropped.clear()
        return dropped


class Checker(DroppedElements):
    """Checks a stream batch by batch."""

    def __init__(self, policy: Policy = "raise", *, orphans: bool = True, lateness: bool = True) -> None:
        """Without ``orphans`` retractions without their events pass.

        Without ``lateness`` inserts are rows of a keyed source: the step that makes a stream of them judges
        whether one is late or its interval empty.
        """
        if policy not in ("raise", "drop", "adjust"):
            raise RecensionError(f"on_violation is 'raise', 'drop' or 'adjust', not {policy!r}")
        super().__init__()
        self._policy, self._judges_lateness = policy, lateness
        self._live = EventBag() if orphans else None
        self._late = LateElements(adjusts=True)
        self._frontier = self._no_effect_before = BEGINNING
        # The last batch of sub-streams, moved where that is the policy, and which of its rows are valid.
        self.checked: EventBatch
        self.kept: Mask
        # Which rows of the batch that was taken in last were given on; None if all were.
        self.admitted: Mask | None = None
        # What was dropped or moved, by reason, of each sub-stream.
        self.by_partition: list[tuple[str, Index]] = []

    def check(
        self,
        batch: EventBatch,
        *,
        origin: Origin = NOWHERE,
        kind: TimeKind = None,
        placed: PlacedRows | None = None,
    ) -> EventBatch:
        """The valid part of the next batch; see `judge`."""
        return self.admit(self.judge(batch, origin=origin, kind=kind, placed=placed))

    def judge(
        self,
        batch: EventBatch,
        *,
        origin: Origin = NOWHERE,
        kind: TimeKind = None,
        placed: PlacedRows | None = None,
    ) -> CheckedBatch:
        """Look for what is wrong with the next batch; with the policy ``raise``, the first fault is an error.

        Nothing changes. ``origin`` says where the rows come from, and ``kind`` is that of the times, for
        messages. ``placed`` says how its rows stand in partitions. Each is then judged by the CTI of its own,
        and the CTIs are left out: `advance` takes that of the source.
        """
        if placed is None and len(batch) == 1 and batch.kind[0] == CTI:
            return CheckedBatch(batch)
        if placed is None and self._policy != "adjust" and self._are_valid_inserts(batch):
            return CheckedBatch(batch)
        faults = _Faults(batch, origin, kind, placed)
        before = frontier_before(batch, self._frontier) if placed is None else placed.before
        salt = None if placed is None else placed.salt
        changes = self._find_faults(batch, before, faults, salt)
        if self._policy == "raise":
            faults.refuse(lambda row, places: self._find_elsewhere(row, places, changes))
        return CheckedBatch(batch, faults, changes, before, salt)

    def admit(self, checked: CheckedBatch) -> EventBatch:
        """The valid part of the batch that was judged last, which is remembered."""
        batch, faults = checked.batch, checked.faults
        self.admitted = None
        if faults is None:
            if batch.last_kind == CTI:
                return self._pass_cti(batch)
            if self._live is not None:
                self._live.add_later(batch)
            return batch
        changes, before, salt = checked.changes, checked.before, checked.salt
        # What is too late to change the output is dropped, but the input knows its event by it from now on.
        refused = ~faults.ok()
        if self._policy == "adjust" and self._judges_lateness:
            adjusted = self._late.adjust(batch, before, faults.ok(), salt)
            faults.note(LATE, adjusted.is_dropped)
            faults.count(ADJUSTED, adjusted.is_moved, self)
            changes, batch = _leave_out_altered(changes, adjusted, before), adjusted.batch
        faults.report(self)
        if self._live is not None and self._may_correct(batch):
            self._live.apply(changes, refused)
        elif self._live is not None:
            passing = faults.ok() & (batch.kind == INSERT)
            self._live.add_later(batch.filter(passing), None if salt is None else salt[passing])
        advancing = (batch.kind != CTI) | (batch.vs > before)
        self.counts[STALE_CTI] += int((~advancing).sum())
        if salt is not None:
            self.checked, self.kept = batch, faults.ok()
            self.admitted = self.kept & (batch.kind != CTI)
            return batch.filter(self.admitted)
        self._advance(batch, before)
        self.admitted = faults.ok() & advancing
        return batch.filter(self.admitted)

    def _are_valid_inserts(self, batch: EventBatch) -> bool:
        """Are they all inserts, as rows of a table are, none late or empty? Then they pass as they are."""
        if not batch.has_only_inserts() or not self._judges_lateness:
            return batch.has_only_inserts()
        is_late = int(batch.vs.min(initial=FOREVER)) < self._frontier
        return not is_late and not bool((batch.ve <= batch.vs).any())

    def take_by_partition(self) -> list[tuple[str, Index]]:
        """What was dropped or moved since the last call, by reason, of each sub-stream; forgets it."""
        found, self.by_partition = self.by_partition, []
        return found

    def advance(self, t: int) -> None:
        """The CTI of a source of sub-streams: what ended before it is forgotten."""
        if t > self._frontier:
            self._frontier = t
            self._forget()

    def _find_elsewhere(self, row: EventBatch, placed: PlacedRows, changes: BagChanges) -> str | None:
        """The sub-stream that has the event which a row of another one retracts, if there is one."""
        if self._live is None:
            return None
        start = combine(row_hash(row.payload, 1), row.vs)
        keys = combine(np.repeat(combine(start, row.ve), len(placed.salts)), placed.salts)
        number = _InputEvents(self._live, self._late).count(keys)
        for at in np.flatnonzero(np.isin(keys, changes.key)):
            number[at] += changes.delta[changes.key == keys[at]].sum()
        is_there = number > 0
        return placed.names[int(np.argmax(is_there))] if bool(is_there.any()) else None

    def _pass_cti(self, batch: EventBatch) -> EventBatch:
        """A CTI alone, as most come, can only be stale."""
        if (t := int(batch.vs[0])) <= self._frontier:
            self.counts[STALE_CTI] += 1
            return batch.slice(0, 0)
        self._frontier = t
        self._forget()
        return batch

    def _find_faults(
        self, batch: EventBatch, before: Ticks, faults: _Faults, salt: Hashes | None
    ) -> BagChanges:
        """Note the faults; gives what the rest takes away and announces, as far as that is checked."""
        for reason, rows in _find_malformed(batch, are_rows=not self._judges_lateness):
            faults.note(reason, rows)
        if self._policy != "adjust" and self._judges_lateness:
            faults.note(LATE, batch.is_data() & (batch.sync() < before))
        if self._live is None or not self._may_correct(batch):
            return NO_CHANGES
        changes = self._leave_out_ignored(bag_changes(batch, faults.ok(), salt))
        # Events that ended before the CTI are forgotten, at the end of time all. A retraction of one is late,
        # not an orphan.
        is_forgotten = (batch.ve < before) | (before == FOREVER)
        events = _InputEvents(self._live, self._late)
        faults.note(UNKNOWN, find_orphans(changes, events, len(batch), is_forgotten))
        return changes

    def _may_correct(self, batch: EventBatch) -> bool:
        """May it say something of events that are there? Inserts alone do not, unless they are moved."""
        return self._policy == "adjust" or batch.has_retractions()

    def forget_before(self, t: int) -> None:
        """The caller ignores changes to events that ended before ``t``: they pass unchecked.

        At the end of time all changes do.
        """
        if t > self._no_effect_before:
            self._no_effect_before = t
            self._forget()

    def state_rows(self) -> int:
        """How many events are remembered."""
        return len(self._late) + (0 if self._live is None else self._live.count_events())

    def state_bytes(self) -> int:
        """How much memory they take."""
        return self._late.nbytes() + (0 if self._live is None else self._live.nbytes())

    def snapshot(self) -> dict[str, pa.Table]:
        """What the checks remember; counts and dropped elements are not part of it."""
        live = {} if self._live is None else {"live": self._live}
        frontier = pa.table({"frontier": [self._frontier], "no_effect_before": [self._no_effect_before]})
        late = self._late.snapshot() if self._policy == "adjust" else {}
        return {"frontier": frontier, **live, **late}

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Become what `snapshot` gave."""
        self._frontier = chunks["frontier"]["frontier"][0].as_py()
        self._no_effect_before = chunks["frontier"]["no_effect_before"][0].as_py()
        if self._live is not None:
            self._live.restore(chunks["live"], max(self._frontier, self._no_effect_before))
        # Snapshots written before late elements were followed know of none.
        if self._policy == "adjust" and "altered" in chunks:
            self._late.restore(chunks, self._frontier)

    @property
    def frontier(self) -> int:
        """The last CTI."""
        return self._frontier

    @property
    def is_closed(self) -> bool:
        """Has a CTI come to the end of time?"""
        return self._frontier == FOREVER

    def _advance(self, batch: EventBatch, before: Ticks) -> None:
        if not len(batch):
            return
        self._frontier = max(int(before[-1]), int(batch.vs[-1]) if batch.kind[-1] == CTI else BEGINNING)
        self._forget()

    def _forget(self) -> None:
        self._late.forget_before(self._frontier)
        if self._live is not None:
            self._live.forget_before(max(self._frontier, self._no_effect_before))

    def _leave_out_ignored(self, changes: BagChanges) -> BagChanges:
        if self._no_effect_before == BEGINNING:
            return changes
        return changes.take((changes.end >= self._no_effect_before) & (self._no_effect_before < FOREVER))


def refuse_malformed(batch: EventBatch, origin: Origin, kind: TimeKind = None) -> None:
    """Refuse the first element that is wrong by itself, whatever was before it; nothing is remembered."""
    faults = _Faults(batch, origin, kind, None)
    for reason, rows in _find_malformed(batch, are_rows=False):
        faults.note(reason, rows)
    faults.refuse(lambda row, places: None)


class _Faults:
    """What is wrong with the rows of one batch; the first reason found for a row stands."""

    def __init__(
        self,
        batch: EventBatch,
        origin: Origin,
        kind: TimeKind,
        placed: PlacedRows | None,
    ) -> None:
        self._batch, self._origin, self._kind, self._placed = batch, origin, kind, placed
        self._found: list[tuple[str, Mask]] = []
        self._bad = np.zeros(len(batch), np.bool_)

    def ok(self) -> Mask:
        return ~self._bad

    def note(self, reason: str, rows: Mask) -> None:
        fresh = rows & ~self._bad
        if bool(fresh.any()):
            self._found.append((reason, fresh))
            self._bad |= fresh

    def refuse(self, find_elsewhere: Callable[[EventBatch, PlacedRows], str | None]) -> None:
        """Raise an error that names the first of them, if there is one."""
        if not self._found:
            return
        reason, rows = min(self._found, key=lambda found: int(np.argmax(found[1])))
        at = int(np.argmax(rows))
        row = self._batch.slice(at, at + 1)
        element = row.to_elements(self._kind)[0]
        if self._placed is None:
            raise self._origin.error(f"{reason}: {element}", at)
        other = find_elsewhere(row, self._placed) if reason == UNKNOWN else None
        if other is not None:
            reason = f"{ELSEWHERE} {other}"
        raise self._origin.error(f"{self._placed.describe(at)}{reason}: {element}", at)

    def report(self, checker: Checker) -> None:
        """Count them, and keep the elements as dropped."""
        for reason, rows in self._found:
            self.count(reason, rows, checker)
            checker.dropped.append((reason, self._batch.filter(rows)))

    def count(self, reason: str, rows: Mask, checker: Checker) -> None:
        """Count rows by reason, and by sub-stream if they have any."""
        checker.counts[reason] += int(rows.sum())
        if self._placed is not None and bool(rows.any()):
            checker.by_partition.append((reason, self._placed.count(rows)))


@record
class CheckedBatch:
    """A batch that was looked at; without ``faults`` it is a CTI alone, or valid as it is."""

    batch: EventBatch
    faults: _Faults | None = None
    changes: BagChanges = NO_CHANGES
    before: Ticks = field(default_factory=lambda: np.zeros(0, np.int64))
    salt: Hashes | None = None


@dataclass(frozen=True, slots=True)
class _InputEvents:
    """The events that the input can still change: those passed on as they came, and those altered."""

    live: EventBag
    late: LateElements

    def count(self, keys: Hashes) -> Index:
        live = self.live.count(keys)
        return live + self.late.count(keys) if len(self.late) else live


def _leave_out_altered(changes: BagChanges, adjusted: AdjustedBatch, before: Ticks) -> BagChanges:
    """The changes to events that were not altered and have not ended before the CTI."""
    row = changes.row
    is_altered = np.where(changes.delta < 0, adjusted.corrects[row], adjusted.is_altered[row])
    return changes.take(~is_altered & (changes.end >= before[row]))


def _find_malformed(batch: EventBatch, *, are_rows: bool) -> list[tuple[str, Mask]]:
    """Elements that are wrong by themselves."""
    retract = batch.kind == RETRACT
    spans = ((batch.kind == INSERT) & (not are_rows)) | (batch.kind == EXTERNAL_CTI) | retract
    return [
        (EMPTY, spans & (batch.ve <= batch.vs)),
        (NO_OP, retract & (batch.new_ve == batch.ve)),
        (REVERSED, retract & (batch.new_ve < batch.vs)),
        (NEGATIVE, (batch.kind == EXTERNAL_CTI) & (batch.count < 0)),
    ]


def frontier_before(batch: EventBatch, start: int) -> Ticks:
    """The largest CTI seen before each row."""
    times = np.where(batch.kind == CTI, batch.vs, np.int64(BEGINNING))
    return np.maximum.accumulate(np.concatenate([[np.int64(start)], times]))[:-1]


def counts_to_table(counts: Counter[str]) -> pa.Table:
    """Counts of elements by reason, a row each. They are part of snapshots: they count all that ever came."""
    reasons, numbers = pa.array(counts.keys(), pa.string()), pa.array(counts.values(), pa.int64())
    return pa.table({"reason": reasons, "n": numbers})


def counts_from_table(table: pa.Table) -> Counter[str]:
    """The counts in a table that `counts_to_table` gave."""
    return Counter(dict(zip(table["reason"].to_pylist(), table["n"].to_pylist(), strict=True)))
