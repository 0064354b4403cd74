"""What all joins share: which events of the two sides meet, and the payload of a pair.

Two events meet when their keys are equal, none of them null, when their lifetimes overlap, and when the
predicate holds for the joined payload. Keys are compared by their 64-bit hashes, which tell all values of
one integer or timestamp column apart, and any others but for a chance of 2**-64 a pair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, inserts, null_payload, take_rows
from recension.core.rowhash import Hashes, row_hash
from recension.core.ticks import Ticks
from recension.operators.base import changes
from recension.operators.state.live_events import LiveEvents
from recension.operators.state.net_changes import NetChanges, net_changes

Predicate: TypeAlias = Callable[[pa.RecordBatch], Mask]

LEFT: Final = 0
RIGHT: Final = 1


@dataclass(frozen=True, slots=True)
class Side:
    """One input: its payload columns, and its keys in the same order as on the other side."""

    schema: pa.Schema
    keys: tuple[str, ...] = ()
    null_matches: tuple[str, ...] = ()
    """Of the keys, those where null equals null."""

    def has_keys(self, batch: EventBatch) -> Mask:
        """Which elements can match at all: those without a null among their keys."""
        present = np.ones(len(batch), np.bool_)
        for column in (batch.payload.column(key) for key in self.keys if key not in self.null_matches):
            if column.null_count:
                present &= column.is_valid().to_numpy(zero_copy_only=False)
        return present

    def arriving(self, batch: EventBatch) -> Arriving:
        """The net effect of a batch in which every element has its keys."""
        change = net_changes(batch)
        group = row_hash(batch.payload.select(list(self.keys)), len(batch))
        if change.is_insert_only:
            return Arriving(change, group, batch.payload)
        payload = take_rows(batch.payload, change.row)
        return Arriving(replace(change, row=np.arange(len(change))), group[change.row], payload)


@dataclass(frozen=True, slots=True)
class Arriving:
    """Net changes; the i-th has the i-th key hash and the i-th payload."""

    change: NetChanges
    group: Hashes
    payload: pa.RecordBatch

    def stretch(self) -> tuple[Ticks, Ticks]:
        """The part of its lifetime that each event gains or loses."""
        return np.minimum(self.change.old, self.change.new), np.maximum(self.change.old, self.change.new)


@dataclass(frozen=True, slots=True)
class JoinedColumn:
    """A column of the joined payload: ``source`` of side LEFT or RIGHT, under a name of its own."""

    side: int
    source: str
    name: str


class JoinedPayload:
    """Puts joined payloads together from rows of both sides."""

    def __init__(self, left: pa.Schema, right: pa.Schema, columns: Sequence[JoinedColumn]) -> None:
        self._inputs = (left, right)
        self._columns = columns
        fields = [self._inputs[c.side].field(c.source).with_name(c.name) for c in columns]
        self.schema = pa.schema([field.with_nullable(True) for field in fields])

    def sources(self, side: int) -> pa.Schema:
        """The columns of one side that the joined payload needs."""
        names = dict.fromkeys(c.source for c in self._columns if c.side == side)
        return pa.schema([self._inputs[side].field(name) for name in names])

    def of(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
        """Joined payloads from equally many rows of both sides."""
        rows = (left, right)
        arrays = [rows[c.side].column(c.source) for c in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def without_right(self, left: pa.RecordBatch, size: int) -> pa.RecordBatch:
        """Joined payloads of left rows that no right row matches."""
        return self.of(left, null_payload(size, self._inputs[RIGHT]))


@dataclass(frozen=True, slots=True)
class Meeting:
    """Pairs of a question and an event of the other side, by question, with their joined payloads."""

    at: Index
    x: Index
    joined: pa.RecordBatch


class Matching:
    """The events of both sides that are remembered, and the question which of them meet."""

    def __init__(
        self, live: Sequence[LiveEvents], joined: JoinedPayload, where: Predicate | None, *, pairs: bool
    ) -> None:
        """``pairs``: are joined payloads wanted even where no predicate asks for them?"""
        self._live, self._joined, self._where, self._pairs = live, joined, where, pairs

    def meet(self, side: int, group: Hashes, lo: Ticks, hi: Ticks, payload: pa.RecordBatch) -> Meeting:
        """The events opposite that meet an event of ``side``, alive in ``[lo, hi)``, for each question."""
        other = self._live[1 - side]
        at, x = other.overlapping(group, lo, hi)
        if not self._pairs and self._where is None:
            return Meeting(at, x, null_payload(0, self._joined.schema))
        asking, met = take_rows(payload, at), other.payload(x)
        joined = self._joined.of(asking, met) if side == LEFT else self._joined.of(met, asking)
        if self._where is None:
            return Meeting(at, x, joined)
        keep = np.flatnonzero(self._where(joined))
        return Meeting(at[keep], x[keep], take_rows(joined, keep))


def pair_changes(change: NetChanges, meeting: Meeting, other: LiveEvents) -> EventBatch:
    """How the common lifetimes change when the ends on one side do.

    #   old        vs |=======|                   S, the start of the pair, is the later of both starts;
    #   new        vs |==================|        its end goes from A to B, the earlier of both ends
    #   x                 |---------|
    #   pair              S   A     B
    """
    vs, ve = other.column("vs", meeting.x), other.column("ve", meeting.x)
    start = np.maximum(change.vs.take(meeting.at), vs)
    new = np.maximum(start, np.minimum(change.new.take(meeting.at), ve))
    if change.is_insert_only:
        return inserts(start, new, meeting.joined)
    old = np.maximum(start, np.minimum(change.old.take(meeting.at), ve))
    return changes(start, old, new, meeting.joined)
