"""Joins by start that keep whole left events: those that have a match, or those that have none.

Assumes     each input is a valid physical stream; in a step port 0 comes before port 1.
Guarantees  after every batch the output history is the oracle's. An output CTI is the least of the input CTIs
            and of the starts of left events whose range the right CTI has not passed.
State       left events until no start can come within their range, or go, and whether they are matched until
            their own end is final; right events until no left one can come, or lose another match.
Cost        O((n + m) log s) for n inputs, s events in state, and m left events that change; of pairs that are
            shown, or decide by a condition, each.
Source      DESIGN §12; for the absence of a match CEDR, §3.2 (UNLESS).

Left events that have a match and those that have none stand apart, under groups of their own: a right event
that comes looks only at those that have none, one that goes only at those that have one. So each left event
is looked at once however many matches it gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, concat, take_rows
from recension.core.netting import distinct
from recension.core.rowhash import Hashes
from recension.core.ticks import FOREVER, Ticks
from recension.operators.base import Chunks, Output
from recension.operators.changes import changes, identity
from recension.operators.interval_join import pair_changes
from recension.operators.matching import (
    LEFT,
    RIGHT,
    JoinedColumn,
    JoinedPayload,
    JoinSide,
    Matching,
    Meeting,
    Predicate,
    SideChanges,
    SidedOperator,
    last_final_end,
)
from recension.operators.parts import Spans, merge_spans
from recension.operators.starts import StartRange, in_pieces, move, move_cti, take_changes, with_duration
from recension.operators.state.interval_index import IntervalIndex
from recension.operators.state.interval_search import TooManyCandidatesError
from recension.operators.state.open_starts import OpenStarts
from recension.operators.state.start_index import StartStore

_MATCHED: Final = np.uint64(0xA5A5_A5A5_5A5A_5A5A)
"""What the group of a left event is mixed with once it has a match."""
# From so many left events, and so many for each right one, ranges are united before they are looked for.
_MANY, _FEW = 1 << 14, 8


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of left events."""

    matched: bool
    """Those that have a match, or those that have none?"""
    pairs: bool = False
    """Are the pairs shown as well?"""
    within: int | None = None
    """How long they live, if not as long as they did."""
    is_insert_only: bool = False
    """Do left events come for good?"""


class MatchesByStart(SidedOperator):
    """Left events that have a match, or that have none; perhaps the pairs as well."""

    shards_share_ctis = False

    def __init__(
        self,
        left: JoinSide,
        right: JoinSide,
        columns: Sequence[JoinedColumn],
        where: Predicate | None,
        starts: StartRange,
        kept: Kept,
    ) -> None:
        needs_pairs = kept.pairs or where is not None
        self._joined = joined = JoinedPayload(left.schema, right.schema, columns if needs_pairs else ())
        self._starts, self._kept, self._has_where = starts, kept, where is not None
        self._left = StartStore(joined.sources(LEFT) if kept.pairs else left.schema, extras=("end",))
        self._right = StartStore(joined.sources(RIGHT))
        # Left events that are decided and not shown, while their ends may still move.
        self._hidden = IntervalIndex()
        indexes = {"left": self._left, "right": self._right, "hidden": self._hidden}
        super().__init__(joined.schema if kept.pairs else left.schema, (left, right), **indexes)
        self._matching = Matching((self._left, self._right), joined, where, pairs=kept.pairs)
        self._undecided = OpenStarts()
        # A left event is remembered until its end is final, if that is no later than so long after its start.
        self._span = max(starts.high + 1, 1)

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return self._nothing
        side = self._sides[port]
        has_keys = side.has_keys(batch)
        arriving = side.net_changes_of(batch.filter(has_keys))
        if port == RIGHT:
            return self._unite(self._apply_right(with_duration(arriving, 1)))
        output = self._apply_left(self._as_kept(arriving))
        if not self._kept.matched and not bool(has_keys.all()):
            # With a null among its keys a left event is never matched.
            passing = self._as_kept(side.net_changes_of(batch.filter(~has_keys)))
            output.append(self._show(passing, np.arange(len(passing.change))))
        return self._unite(output)

    def _unite(self, output: list[EventBatch]) -> EventBatch:
        return concat([part for part in output if len(part)] or [self._nothing])

    def _as_kept(self, arriving: SideChanges) -> SideChanges:
        return arriving if self._kept.within is None else with_duration(arriving, self._kept.within)

    def _payload(self, left: pa.RecordBatch, size: int) -> pa.RecordBatch:
        """The payload of what is kept of left events."""
        return self._joined.without_right(left, size) if self._kept.pairs else left

    def _show(self, arriving: SideChanges, at: Index) -> EventBatch:
        """Some of the changes to left events, as they are."""
        change = arriving.change
        payload = self._payload(take_rows(arriving.payload, at), len(at))
        return changes(change.vs[at], change.old[at], change.new[at], payload)

    # Left events.

    def _apply_left(self, arriving: SideChanges) -> list[EventBatch]:
        change = arriving.change
        come, known = np.flatnonzero(change.old == change.vs), np.flatnonzero(change.old != change.vs)
        is_matched, is_held = np.zeros(len(change), np.bool_), np.ones(len(change), np.bool_)
        is_matched[known], is_held[known] = self._take_out(arriving, known)
        output = self._show_pairs(arriving)
        new = take_changes(arriving, come) if len(known) else arriving
        is_matched[come] = self._find_matched(new.group, new.change.vs, new.payload)
        self._remember(arriving, is_matched, is_held)
        self._note_undecided(change.vs, change.old, change.new)
        shown = np.flatnonzero(is_matched == self._kept.matched)
        return [*output, self._show(arriving, shown)]

    def _show_pairs(self, arriving: SideChanges) -> list[EventBatch]:
        """The pairs that come and go with left events."""
        if not self._kept.pairs:
            return []
        starting = with_duration(arriving, 1)
        within = self._starts.opposite(LEFT, starting.change.vs)
        meeting = self._matching.meet(LEFT, starting.group, *within, starting.payload)
        return [pair_changes(starting, meeting, self._right)]

    def _take_out(self, arriving: SideChanges, known: Index) -> tuple[Mask, Mask]:
        """Whether each of these was matched; and whether that could still change.

        What is no longer remembered is shown, unless it is among the hidden.
        """
        change, group = arriving.change, arriving.group[known]
        tag = identity(change.hash[known], change.vs[known], change.old[known])
        found, hidden = self._left.find(tag), self._hidden.find(tag)
        is_held, is_hidden = found >= 0, hidden >= 0
        is_matched = is_hidden != self._kept.matched
        is_matched[is_held] = self._left.column("group", found[is_held]) != group[is_held]
        self._left.remove(found[is_held])
        self._hidden.remove(hidden[is_hidden])
        return is_matched, is_held

    def _find_matched(self, group: Hashes, vs: Ticks, payload: pa.RecordBatch) -> Mask:
        """Which left events have a match."""
        since, before = self._starts.opposite(LEFT, vs)
        if not self._has_where:
            first: Ticks = self._right.find_first(group, since, before)
            return first < before
        meeting = self._matching.meet(LEFT, group, since, before, payload)
        is_matched = np.zeros(len(vs), np.bool_)
        is_matched[meeting.at] = True
        return is_matched

    def _remember(self, arriving: SideChanges, is_matched: Mask, is_held: Mask) -> None:
        change = arriving.change
        stays = change.new > change.vs
        self._hide(arriving, np.flatnonzero(stays & (is_matched != self._kept.matched)))
        kept = np.flatnonzero(stays & is_held & (change.vs >= self._left.expired_until))
        group = np.where(is_matched, arriving.group ^ _MATCHED, arriving.group)[kept]
        vs, end = change.vs[kept], change.new[kept]
        tag = identity(change.hash[kept], vs, end)
        payload = arriving.payload if len(kept) == len(change) else take_rows(arriving.payload, kept)
        self._left.insert(group, vs, vs + 1, tag, payload, end=end)

    def _hide(self, arriving: SideChanges, at: Index) -> None:
        """These are there and not shown."""
        change = arriving.change
        tag = identity(change.hash[at], change.vs[at], change.new[at])
        self._add_hidden(change.vs[at], change.new[at], tag)

    def _add_hidden(self, vs: Ticks, end: Ticks, tag: Hashes) -> None:
        at = self._outliving(vs, end)
        self._hidden.add(np.zeros(len(at), np.uint64), vs[at], end[at], tag[at])

    def _outliving(self, vs: Ticks, end: Ticks) -> Index:
        """Which of these may move their ends when they are no longer remembered otherwise."""
        if self._kept.is_insert_only or self._kept.within is not None:
            return np.zeros(0, np.int64)
        is_long = (move(end, -self._span) > vs) | (end == FOREVER)
        return np.flatnonzero(is_long & (end > self._hidden.expired_until))

    def _note_undecided(self, vs: Ticks, old: Ticks, new: Ticks) -> None:
        """Left events come or go whose range is not past."""
        if self._starts.high < 1:
            return  # what such an event waits for starts no later than it
        last = self._starts.opposite(LEFT, vs)[1]
        is_open = (last > self._cti[RIGHT]) & ((old == vs) | (new == vs))
        came = (old == vs)[is_open]
        vs, last = vs[is_open], last[is_open]
        self._undecided.change(vs, np.where(came, vs, last), np.where(came, last, vs))

    # Right events.

    def _apply_right(self, arriving: SideChanges) -> list[EventBatch]:
        change, group = arriving.change, arriving.group
        come, gone = np.flatnonzero(change.old == change.vs), np.flatnonzero(change.new == change.vs)
        output: list[EventBatch] = []
        freed = self._meet_left(arriving, come, group[come], output)
        held = self._meet_left(arriving, gone, group[gone] ^ _MATCHED, output)
        if self._kept.pairs:
            self._meet_left(arriving, come, group[come] ^ _MATCHED, output)
        self._right.apply(change, group, arriving.payload)
        found = self._find_matched(
            self._left.column("group", held) ^ _MATCHED,
            self._left.column("vs", held),
            self._left.payload(held) if self._has_where else arriving.payload,
        )
        return [*output, *self._change_matched(freed, held[~found])]

    def _meet_left(self, arriving: SideChanges, at: Index, group: Hashes, output: list[EventBatch]) -> Index:
        """The left events in whose range the changed events start; pairs go to the output."""
        since, before = self._starts.opposite(RIGHT, arriving.change.vs[at])
        if not (self._kept.pairs or self._has_where):
            return self._find_left(group, since, before)

        def ask(rows: Index, most: int | None) -> Index:
            within = group[rows], since[rows], before[rows]
            met = self._matching.meet(RIGHT, *within, take_rows(arriving.payload, at[rows]), most)
            if self._kept.pairs:
                output.append(
                    pair_changes(arriving, Meeting(at[rows[met.at]], met.x, met.joined), self._left)
                )
            return distinct(met.x)

        found = [x for _, x in in_pieces(len(at), ask)]
        return distinct(np.concatenate(found)) if found else np.zeros(0, np.int64)

    def _find_left(self, group: Hashes, since: Ticks, before: Ticks) -> Index:
        """Left events that start from one time and before another, each once; what overlaps is united."""
        try:
            return self._left.find_any(group, since, before, _MANY + _FEW * len(group))
        except TooManyCandidatesError:
            groups, owner = np.unique(group, return_inverse=True)
            spans = merge_spans(Spans(owner, since, before))
            return self._left.find_any(groups[spans.owner], spans.start, spans.end)

    def _change_matched(self, got: Index, lost: Index) -> list[EventBatch]:
        """These left events got their first match, and these lost their last."""
        output = [self._show_changed(at, is_got=at is got) for at in (got, lost) if len(at)]
        at = np.concatenate([got, lost])
        if len(at):
            row, group, vs, ve, tag, end = (
                self._left.column(name, at) for name in ("row", "group", "vs", "ve", "tag", "end")
            )
            self._left.remove(at, rows_stay=True)
            self._left.add(group ^ _MATCHED, vs, ve, tag, row=row, end=end)
            is_shown = (np.arange(len(at)) < len(got)) == self._kept.matched
            again = self._outliving(vs, end)
            hidden = self._hidden.find(tag[again[is_shown[again]]])
            self._hidden.remove(hidden[hidden >= 0])
            self._add_hidden(vs[~is_shown], end[~is_shown], tag[~is_shown])
        return output

    def _show_changed(self, at: Index, *, is_got: bool) -> EventBatch:
        vs, end = self._left.column("vs", at), self._left.column("end", at)
        payload = self._payload(self._left.payload(at), len(at))
        comes = is_got == self._kept.matched
        return changes(vs, vs, end, payload) if comes else changes(vs, end, vs, payload)

    # Time.

    def on_cti(self, port: int, t: int) -> Output:
        both = self.note_cti(port, t)
        left, right = self._cti
        past = move_cti(right, -self._starts.high)
        final = last_final_end(left)
        self._left.expire(past if self._kept.is_insert_only else min(past, move_cti(final, -self._span)))
        # A left event whose match goes looks for others, which may all have started before.
        looking_back = move_cti(right, self._starts.low - self._starts.high)
        self._right.expire(min(looking_back, move_cti(left, self._starts.low)))
        self._hidden.expire(final)
        undecided = FOREVER if right == FOREVER else self._undecided.first_open(right + 1)
        return self.emit(min(both, undecided))

    def state_bytes(self) -> int:
        return super().state_bytes() + self._undecided.nbytes()

    def snapshot_state(self) -> Chunks:
        return {**super().snapshot_state(), "undecided": self._undecided}

    def restore_state(self, chunks: Chunks) -> None:
        super().restore_state(chunks)
        self._undecided.restore(chunks["undecided"])
