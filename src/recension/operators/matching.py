"""What all joins share: which events of the two sides meet, the payload of a pair, state, a check for skew.

Two events meet when their keys are equal, none of them null, when their lifetimes overlap, and when the
predicate holds for the joined payload. Keys are compared by their 64-bit hashes, which tell all values of
one integer or timestamp column apart, and any others but for a chance of 2**-64 a pair.

Where nearly all rows of a side have one key, pairs grow with the square of the rows: the join warns of it.
That check looks at a few dozen rows of a batch, and compares all of them only where those are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, inserts, null_payload, take_rows
from recension.core.rowhash import Hashes, key_and_row_hash
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks, Operator
from recension.operators.changes import NetChanges, changes, net_changes
from recension.operators.state.event_store import EventStore
from recension.operators.state.interval_index import IntervalIndex

Predicate: TypeAlias = Callable[[pa.RecordBatch], Mask]

LEFT: Final = 0
RIGHT: Final = 1
ROWS: Final = 100_000
SHARE: Final = 0.9
_LOOKS: Final = 64


class SidedOperator(Operator):
    """An operator whose inputs meet: the CTIs of all, and its events in ``indexes`` by name."""

    changes_on_cti = False
    shards_share_ctis = True
    is_all_rows = True

    def __init__(self, schema: pa.Schema, sides: Sequence[JoinSide], **indexes: IntervalIndex) -> None:
        super().__init__(schema)
        self._sides = sides
        self._indexes = indexes
        self._cti = [BEGINNING] * len(sides)

    def note_cti(self, port: int, t: int) -> int:
        """A CTI of one input; the least of all."""
        self._cti[port] = max(self._cti[port], t)
        return min(self._cti)

    def state_rows(self) -> int:
        return sum(index.count_live() for index in self._indexes.values())

    def state_bytes(self) -> int:
        return sum(index.nbytes() for index in self._indexes.values())

    def snapshot_state(self) -> Chunks:
        chunks: dict[str, Any] = {"ctis": pa.table({"cti": pa.array(self._cti, pa.int64())})}
        for name, index in self._indexes.items():
            chunks |= index.parts(name)
        return chunks

    def restore_state(self, chunks: Chunks) -> None:
        self._cti = chunks["ctis"]["cti"].to_pylist()
        for name, index in self._indexes.items():
            index.restore(name, chunks)


@dataclass(frozen=True, slots=True)
class JoinSide:
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

    def net_changes_of(self, batch: EventBatch) -> SideChanges:
        """The net effect of a batch in which every element has its keys."""
        group, hashes = key_and_row_hash(batch.payload, self.keys, len(batch))
        change = net_changes(batch, hashes)
        if change.is_insert_only:
            return SideChanges(change, group, batch.payload)
        payload = take_rows(batch.payload, change.row)
        return SideChanges(replace(change, row=np.arange(len(change))), group[change.row], payload)


@dataclass(frozen=True, slots=True)
class SideChanges:
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

    def join(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
        """Joined payloads from equally many rows of both sides."""
        rows = (left, right)
        arrays = [rows[c.side].column(c.source) for c in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def without_right(self, left: pa.RecordBatch, size: int) -> pa.RecordBatch:
        """Joined payloads of left rows that no right row matches."""
        return self.join(left, null_payload(size, self._inputs[RIGHT]))


@dataclass(frozen=True, slots=True)
class Meeting:
    """Pairs of a question and an event of the other side, by question, with their joined payloads."""

    at: Index
    x: Index
    joined: pa.RecordBatch


class Matching:
    """The events of both sides that are remembered, and the question which of them meet."""

    def __init__(
        self, live: Sequence[EventStore], joined: JoinedPayload, where: Predicate | None, *, pairs: bool
    ) -> None:
        """``pairs``: are joined payloads wanted even where no predicate asks for them?"""
        self._live, self._joined, self._where, self._pairs = live, joined, where, pairs
        self._columns = [joined.sources(side).names for side in (LEFT, RIGHT)]

    def meet(
        self,
        side: int,
        group: Hashes,
        lo: Ticks,
        hi: Ticks,
        payload: pa.RecordBatch,
        most: int | None = None,
    ) -> Meeting:
        """The events opposite that meet an event of ``side``, alive in ``[lo, hi)``, for each question.

        Raises `TooManyCandidatesError` rather than look at more than ``most``.
        """
        other = self._live[1 - side]
        at, x = other.find_overlaps(group, lo, hi, most)
        if not self._pairs and self._where is None:
            return Meeting(at, x, null_payload(0, self._joined.schema))
        asking, met = take_rows(payload.select(self._columns[side]), at), other.payload(x)
        joined = self._joined.join(asking, met) if side == LEFT else self._joined.join(met, asking)
        if self._where is None:
            return Meeting(at, x, joined)
        keep = np.flatnonzero(self._where(joined))
        return Meeting(at[keep], x[keep], take_rows(joined, keep))


def pair_changes(change: NetChanges, meeting: Meeting, other: EventStore) -> EventBatch:
    """How the common lifetimes change when the ends on one side do.

    #   old        vs |=======|                   S, the start of the pair, is the later of both starts;
    #   new        vs |==================|        its end goes from A to B, the earlier of both ends
    #   x                 |---------|
    #   pair              S   A     B
    """
    start = other.column("vs", meeting.x)
    np.maximum(start, change.vs.take(meeting.at), out=start)
    ve, new = other.column("ve", meeting.x), change.new.take(meeting.at)
    np.minimum(new, ve, out=new)
    if change.is_insert_only:  # lifetimes that meet have something in common
        return inserts(start, new, meeting.joined)
    np.maximum(new, start, out=new)
    old = np.maximum(start, np.minimum(change.old.take(meeting.at), ve))
    return changes(start, old, new, meeting.joined)


def last_final_end(t: int) -> int:
    """The last end that is final after a CTI at ``t``; one at ``t`` may still move (ruling A2)."""
    return t if t in (BEGINNING, FOREVER) else t - 1


class KeySkew:
    """Watches the keys of both sides of a join; warns once of each side."""

    def __init__(self, *keys: Sequence[str]) -> None:
        self._sides = [_KeyCount(list(own)) for own in keys]
        self._warnings: list[str] = []

    def note(self, port: int, group: Hashes, payload: pa.RecordBatch) -> None:
        """Rows with these key hashes have come."""
        side = self._sides[port]
        if side.is_watched and len(group):
            side.count(group)
            if side.is_skewed() and len(alike := np.flatnonzero(group == side.common)):
                side.is_watched = False
                self._warnings.append(side.describe(payload, int(alike[0])))

    def take_warnings(self) -> list[str]:
        """Warnings since the last call."""
        warnings, self._warnings = self._warnings, []
        return warnings


class _KeyCount:
    """How many rows there are, and how many have the most common key. A key that most rows have is found."""

    def __init__(self, keys: list[str]) -> None:
        self._keys, self.is_watched = keys, bool(keys)
        self._rows = self._alike = 0
        self.common: np.uint64 | None = None

    def count(self, group: Hashes) -> None:
        looked, counts = np.unique(group[:: 1 + len(group) // _LOOKS], return_counts=True)
        at = int(np.argmax(counts))
        if looked[at] != self.common and 2 * counts[at] > counts.sum() and 2 * self._alike <= self._rows:
            self.common, self._alike = looked[at], 0
        self._rows += len(group)
        if self.common is not None:
            self._alike += int(np.count_nonzero(group == self.common))

    def is_skewed(self) -> bool:
        return self._rows >= ROWS and self._alike >= SHARE * self._rows

    def describe(self, payload: pa.RecordBatch, row: int) -> str:
        key = ", ".join(f"{name} = {payload.column(name)[row].as_py()!r}" for name in self._keys)
        return (
            f"{100 * self._alike // self._rows} % of the {self._rows:,} rows that one side has taken in have "
            f"{key}: their pairs are made in one place and grow with the square of the rows; join on more "
            "columns, or filter that key out"
        )
