"""Joins that ask whether a left event is matched, not by what: its parts that are covered, or are not.

Assumes     each input is a valid physical stream; in a step port 0 comes before port 1.
Guarantees  after every batch the output history holds each left event on the maximal parts of its lifetime
            that matching right events cover (or do not cover); an output CTI is the least of the input CTIs.
State       left and right events until neither a change of their own nor of the other side can reach
            them, and the parts shown of each left event that may still change.
Cost        O((n + p) log s) for n inputs and p pairs that meet where something changed.
Source      rulings C (anti join); the guide (semi, anti, left).

A change reaches only a region of a lifetime: what the left event itself gains or loses, or what it has in
common with the gain or loss of a matching right event. Outside, the parts stay; inside, they follow from
the right events alive there. A part that reaches into the region from before keeps its start, so its end
moves, within the region: nothing changes before the region, and no CTI needs to be held back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, concat, empty, take_rows
from recension.core.rowhash import Hashes, combine
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.base import Chunks, Output
from recension.operators.changes import NetChanges, changes, identity
from recension.operators.matching import (
    LEFT,
    RIGHT,
    JoinedColumn,
    JoinedPayload,
    JoinSide,
    KeySkew,
    Matching,
    Meeting,
    Predicate,
    SideChanges,
    SidedOperator,
    last_final_end,
)
from recension.operators.parts import SpanRevision, Spans, merge_spans, revise
from recension.operators.state.event_store import EventStore
from recension.operators.state.interval_index import IntervalIndex


class CoverageJoin(SidedOperator):
    """Left events on the parts of their lifetimes where they are, or are not, matched."""

    _covered: ClassVar[bool]
    _shows_pairs = False

    def __init__(
        self,
        left: JoinSide,
        right: JoinSide,
        columns: Sequence[JoinedColumn] = (),
        where: Predicate | None = None,
    ) -> None:
        """``columns`` say what the predicate sees."""
        self._joined = joined = JoinedPayload(left.schema, right.schema, columns)
        kept = joined.sources(LEFT) if self._shows_pairs else left.schema
        self._left = EventStore(kept, extras=("number",))
        self._right = EventStore(joined.sources(RIGHT))
        self._parts = IntervalIndex()
        indexes = {"left": self._left, "right": self._right, "parts": self._parts}
        super().__init__(joined.schema if self._shows_pairs else left.schema, (left, right), **indexes)
        self._matching = Matching((self._left, self._right), joined, where, pairs=self._shows_pairs)
        self._numbered = 0
        self._skew = KeySkew(left.keys, right.keys)

    def _output_payload(self, left: pa.RecordBatch, size: int) -> pa.RecordBatch:
        """The payload of a part, from the left event's."""
        return left

    def _pair_changes(self, change: NetChanges, meeting: Meeting, other: EventStore) -> list[EventBatch]:
        """What else is shown about the pairs that meet."""
        return []

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        has_keys = self._sides[port].has_keys(batch)
        arriving = self._sides[port].net_changes_of(batch.filter(has_keys))
        self._skew.note(port, arriving.group, arriving.payload)
        output = self._apply_left(arriving) if port == LEFT else self._apply_right(arriving)
        if port == LEFT and not self._covered and not bool(has_keys.all()):
            output.append(self._pass_unmatchable(batch.filter(~has_keys)))
        return concat([part for part in output if len(part)] or [empty(self.schema)])

    def _pass_unmatchable(self, batch: EventBatch) -> EventBatch:
        """Left events with a null among their keys are never covered: they pass."""
        payload = self._output_payload(batch.payload, len(batch))
        return EventBatch(batch.kind, batch.vs, batch.ve, batch.new_ve, batch.count, payload)

    def _apply_left(self, arriving: SideChanges) -> list[EventBatch]:
        """Every changed left event is an owner; its region is what it gains or loses."""
        change, (lo, hi) = arriving.change, arriving.stretch()
        meeting = self._matching.meet(LEFT, arriving.group, lo, hi, arriving.payload)
        pairs = self._pair_changes(change, meeting, self._right)
        numbers = self._take_over(arriving)
        region = Spans(np.arange(len(change)), lo, hi)
        gains = change.new > change.old
        cover = self._find_cover(region, meeting)
        cover = cover.take(gains[cover.owner].nonzero()[0])
        if not self._covered:
            # What is lost shall hold no part, as if it were covered.
            cover = cover.concat_with(region.take((~gains).nonzero()[0]))
        revision = self._revise(numbers, region, cover)
        return [*pairs, self._make_changes(revision, take_rows(arriving.payload, revision.owner))]

    def _take_over(self, arriving: SideChanges) -> Hashes:
        """Remember the left events as they are now; the hashed number of each."""
        change = arriving.change
        number = np.arange(self._numbered, self._numbered + len(change))
        self._numbered += len(change)
        known = (change.old != change.vs).nonzero()[0]
        found = self._left.find(identity(change.hash[known], change.vs[known], change.old[known]))
        number[known] = self._left.column("number", found)
        self._left.remove(found)
        stays = (change.new > change.vs).nonzero()[0]
        tag = identity(change.hash[stays], change.vs[stays], change.new[stays])
        payload = take_rows(arriving.payload, stays)
        self._left.insert(
            arriving.group[stays], change.vs[stays], change.new[stays], tag, payload, number=number[stays]
        )
        return _hash_numbers(number)

    def _apply_right(self, arriving: SideChanges) -> list[EventBatch]:
        """Every left event that meets a changed right event is an owner."""
        lo, hi = arriving.stretch()
        meeting = self._matching.meet(RIGHT, arriving.group, lo, hi, arriving.payload)
        pairs = self._pair_changes(arriving.change, meeting, self._left)
        # By their numbers: where they stand depends on when the index was loaded.
        known = self._left.column("number", meeting.x)
        _, first, owner = np.unique(known, return_index=True, return_inverse=True)
        owners = meeting.x[first]
        vs, ve = self._left.column("vs", meeting.x), self._left.column("ve", meeting.x)
        region = merge_spans(Spans(owner, np.maximum(lo[meeting.at], vs), np.minimum(hi[meeting.at], ve)))
        self._right.apply(arriving.change, arriving.group, arriving.payload)
        asking = owners[region.owner]
        group, payload = self._left.column("group", asking), self._left.payload(asking)
        again = self._matching.meet(LEFT, group, region.start, region.end, payload)
        numbers = _hash_numbers(self._left.column("number", owners))
        revision = self._revise(numbers, region, self._find_cover(region, again))
        return [*pairs, self._make_changes(revision, self._left.payload(owners[revision.owner]))]

    def _find_cover(self, region: Spans, meeting: Meeting) -> Spans:
        """What the right events met cover of each region."""
        start = np.maximum(region.start[meeting.at], self._right.column("vs", meeting.x))
        end = np.minimum(region.end[meeting.at], self._right.column("ve", meeting.x))
        return Spans(region.owner[meeting.at], start, end)

    def _revise(self, numbers: Hashes, region: Spans, cover: Spans) -> SpanRevision:
        """The parts that change, taken over into the parts shown."""
        # Parts that only touch the region count: they may grow together with what is in it.
        lo = np.where(region.start > BEGINNING, region.start - 1, BEGINNING)
        hi = np.where(region.end < FOREVER, region.end + 1, FOREVER)
        at, part = self._parts.find_overlaps(numbers[region.owner], lo, hi)
        _, first = np.unique(self._parts.column("row", part), return_index=True)
        part = part[first]
        vs, ve = self._parts.column("vs", part), self._parts.column("ve", part)
        old = Spans(region.owner[at[first]], vs, ve)
        revision = revise(old, region, cover, covered=self._covered)
        self._parts.remove(part[revision.part[revision.part >= 0]])
        stays = (revision.new > revision.start).nonzero()[0]
        group = numbers[revision.owner[stays]]
        start = revision.start[stays]
        self._parts.add(group, start, revision.new[stays], combine(group, start))
        return revision

    def _make_changes(self, revision: SpanRevision, left: pa.RecordBatch) -> EventBatch:
        payload = self._output_payload(left, len(revision.owner))
        return changes(revision.start, revision.old, revision.new, payload)

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """Parts of a left lifetime; where they begin, a right event decides that may have ended."""
        return [t, None]

    def on_cti(self, port: int, t: int) -> Output:
        """Free what no change can reach.

        A left event that ended at t may still grow on its own (ruling A2), and a part that ended at t may
        still grow together with what comes after it.
        """
        both = self.note_cti(port, t)
        self._left.expire(min(last_final_end(self._cti[LEFT]), self._cti[RIGHT]))
        self._right.expire(both)
        self._parts.expire(last_final_end(both))
        return self.emit(both)

    def take_warnings(self) -> list[str]:
        return self._skew.take_warnings()

    def snapshot_state(self) -> Chunks:
        return {**super().snapshot_state(), "numbered": pa.table({"events": [self._numbered]})}

    def restore_state(self, chunks: Chunks) -> None:
        super().restore_state(chunks)
        self._numbered = chunks["numbered"]["events"][0].as_py()


def _hash_numbers(number: Index) -> Hashes:
    return combine(np.zeros(len(number), np.uint64), number)
