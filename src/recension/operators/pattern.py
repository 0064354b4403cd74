"""Patterns: choices of one event of each part, of one key, whose starts lie within a time.

Assumes     each input is a valid physical stream; in a step its ports come one after the other. A stream
            whose events are absent is the last input.
Guarantees  after every batch the output history is the pattern of the input histories, less what the limit
            dropped; an output CTI is the least of the input CTIs: an answer starts where its last event does.
State       the events of each part, and the starts of the absent ones, until no event of another part with
            which they make an answer can come, or go. No answers, and no parts of them.
Cost        O((n + m) log s) for n inputs and s events in state; m counts the choices that changed events are
            in, and those of the parts that are looked for first (`choices`).
Source      DESIGN §12; CEDR, §3.2 (SEQUENCE, ALL, ATLEAST).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, concat, inserts, null_payload, take_rows
from recension.core.errors import StreamError
from recension.core.netting import distinct
from recension.core.rowhash import Hashes, combine
from recension.core.ticks import Ticks
from recension.operators.base import Output
from recension.operators.changes import changes, identity
from recension.operators.choices import Choices, ChoiceSearch, choose
from recension.operators.matching import JoinSide, Predicate, SideChanges, SidedOperator
from recension.operators.starts import in_pieces, move, move_cti, take_changes, with_duration
from recension.operators.state.interval_index import IntervalIndex
from recension.operators.state.start_index import StartStore


@dataclass(frozen=True)
class PatternSpec:
    """What is looked for, and what is made of it.

    ``columns`` are those of each part, less the keys, in the order of the answer's columns after the keys.
    """

    name: str
    schema: pa.Schema
    keys: tuple[str, ...]
    columns: Sequence[Sequence[str]]
    within: int
    size: int
    in_order: bool
    where: Predicate | None = None
    most: int | None = None
    drops: bool = False

    def stored(self, side: JoinSide, part: int) -> pa.Schema:
        """What is kept of the events of a part: keys come from the first part that is in an answer."""
        keys = self.keys if part == 0 or self.size < len(self.columns) else ()
        return pa.schema([side.schema.field(name) for name in (*keys, *self.columns[part])])


class Pattern(SidedOperator):
    """Answers for every choice of events that fit the pattern."""

    def __init__(self, spec: PatternSpec, sides: Sequence[JoinSide]) -> None:
        self._spec, parts = spec, len(spec.columns)
        self._stores = [StartStore(spec.stored(side, part)) for part, side in enumerate(sides[:parts])]
        self._absent = StartStore(pa.schema([])) if len(sides) > parts else None
        # Events that would have added too many answers: to remove them has no effect.
        self._left_out = IntervalIndex()
        indexes: dict[str, IntervalIndex] = {f"part{n}": store for n, store in enumerate(self._stores)}
        if self._absent is not None:
            indexes["absent"] = self._absent
        super().__init__(spec.schema, sides, **indexes, left_out=self._left_out)
        self._search = ChoiceSearch(self._stores, self._absent, spec.within, spec.size, spec.in_order)

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return self._nothing
        side = self._sides[port]
        arriving = with_duration(side.net_changes_of(batch.filter(side.has_keys(batch))), 1)
        output = self._apply_absent(arriving) if port == len(self._stores) else self._apply(port, arriving)
        return concat([part for part in output if len(part)] or [self._nothing])

    def _apply(self, part: int, arriving: SideChanges) -> list[EventBatch]:
        if len(self._left_out):
            arriving = self._without_left_out(part, arriving)
        change, output, over = arriving.change, list[EventBatch](), list[Index]()
        for rows, found in self._search.find(part, arriving.group, change.vs):
            some = arriving if len(rows) == len(change) else take_changes(arriving, rows)
            answers = [
                self._keep_true(choices, self._payload(choices, part, some.payload)) for choices in found
            ]
            too_many = self._find_too_many(part, some, answers)
            if bool(too_many.any()):
                answers = [_without(too_many, *answer) for answer in answers]
                over.append(rows[too_many])
            output += [self._show(some, *answer) for answer in answers]
        if over:
            arriving = self._leave_out(part, arriving, np.concatenate(over))
        self._stores[part].apply(arriving.change, arriving.group, arriving.payload)
        return output

    def _show(self, arriving: SideChanges, choices: Choices, payload: pa.RecordBatch) -> EventBatch:
        """The answers come or go with the events that they were found for."""
        vs, ve = choices.last, move(choices.first, self._spec.within)
        comes = (arriving.change.old == arriving.change.vs)[choices.at]
        return changes(vs, np.where(comes, vs, ve), np.where(comes, ve, vs), payload)

    def _payload(self, choices: Choices, part: int | None, arriving: pa.RecordBatch) -> pa.RecordBatch:
        """The payloads of answers; ``part`` is that of the events which arrive."""
        spec, schema = self._spec, self._spec.schema
        parts = {other: self._stores[other].payload(x) for other, x in choices.chosen.items()}
        if part is not None:
            parts[part] = take_rows(arriving, choices.at)
        giver = parts[min(parts)]
        arrays = [giver.column(key) for key in spec.keys]
        for other, names in enumerate(spec.columns):
            if other in parts:
                arrays += [parts[other].column(name) for name in names]
            else:
                fields = [schema.field(len(arrays) + place) for place in range(len(names))]
                arrays += null_payload(len(choices), pa.schema(fields)).columns
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _keep_true(self, choices: Choices, payload: pa.RecordBatch) -> tuple[Choices, pa.RecordBatch]:
        """The answers for which the condition is true."""
        if self._spec.where is None or not len(choices):
            return choices, payload
        kept = np.flatnonzero(self._spec.where(payload))
        return choices.take(kept), take_rows(payload, kept)

    # One event must not add too many answers.

    def _find_too_many(
        self, part: int, arriving: SideChanges, answers: list[tuple[Choices, pa.RecordBatch]]
    ) -> Mask:
        """Which events come with more answers than one may add; an error if they may not be dropped."""
        spec, change = self._spec, arriving.change
        too_many = np.zeros(len(change), np.bool_)
        if spec.most is None or sum(len(choices) for choices, _ in answers) <= spec.most:
            return too_many
        counts = np.bincount(np.concatenate([choices.at for choices, _ in answers]), minlength=len(change))
        too_many = counts > spec.most
        too_many &= change.old == change.vs
        if bool(too_many.any()) and not spec.drops:
            row = int(np.argmax(too_many))
            raise StreamError(
                f"{spec.name}: one event{self._describe_key(arriving, row)} adds {counts[row]:,} "
                f"answers, more than most={spec.most}; narrow the pattern (within=, where=), filter that key "
                "out, raise most=, or write on_limit='drop'"
            )
        return too_many

    def _describe_key(self, arriving: SideChanges, row: int) -> str:
        named = [f"{key} = {arriving.payload.column(key)[row].as_py()!r}" for key in self._spec.keys]
        return f" of {', '.join(named)}" if named else ""

    def _leave_out(self, part: int, arriving: SideChanges, over: Index) -> SideChanges:
        """The changes without these events, which are counted by their key."""
        change, tag = arriving.change, self._tag(part, arriving, over)
        self._left_out.add(arriving.group[over], change.vs[over], change.new[over], tag)
        for group in distinct(arriving.group[over]):
            rows = over[arriving.group[over] == group]
            key = self._describe_key(arriving, int(rows[0]))
            reason = f"an event{key} adds more than {self._spec.most} answers"
            self._counts[reason] += len(rows)
            lost = inserts(change.vs[rows], change.new[rows], take_rows(arriving.payload, rows))
            self._dropped.append((reason, lost))
        return take_changes(arriving, np.delete(np.arange(len(change)), over))

    def _tag(self, part: int, arriving: SideChanges, at: Index) -> Hashes:
        change = arriving.change
        return combine(identity(change.hash[at], change.vs[at], change.vs[at]), np.full(len(at), part))

    def _without_left_out(self, part: int, arriving: SideChanges) -> SideChanges:
        """The changes without removals of events that were left out."""
        gone = np.flatnonzero(arriving.change.new == arriving.change.vs)
        found = self._left_out.find(self._tag(part, arriving, gone))
        self._left_out.remove(found[found >= 0])
        return take_changes(arriving, np.delete(np.arange(len(arriving.change)), gone[found >= 0]))

    # The absent stream.

    def _apply_absent(self, arriving: SideChanges) -> list[EventBatch]:
        """Sequences end no later than the next absent event after their start: that may have changed."""
        assert self._absent is not None
        change, starts = arriving.change, self._stores[0]
        x = starts.find_any(arriving.group, move(change.vs, 1 - self._spec.within), change.vs)
        group, vs = starts.column("group", x), starts.column("vs", x)
        before = move(vs, self._spec.within)
        old = self._absent.find_first(group, vs + 1, before)
        self._absent.apply(change, arriving.group, arriving.payload)
        new = self._absent.find_first(group, vs + 1, before)
        moved = np.flatnonzero(old != new)
        found = MovedEnds(x[moved], group[moved], vs[moved], old[moved], new[moved])
        return [
            batch for _, batch in in_pieces(len(moved), lambda rows, most: self._move_ends(found, rows, most))
        ]

    def _move_ends(self, moved: MovedEnds, rows: Index, most: int | None) -> EventBatch:
        """What ends between the old end and the new one comes or goes."""
        vs, old, new = moved.vs[rows], moved.old[rows], moved.new[rows]
        until = np.minimum(move(vs, self._spec.within), np.maximum(old, new) + 1)
        alone, since = choose(0, vs, moved.x[rows]), np.minimum(old, new) + 1
        found = self._search.extend_after(alone, 0, moved.group[rows], until, most, since)
        found, payload = self._keep_true(found, self._payload(found, None, self._nothing.payload))
        start, end = found.last, move(found.first, self._spec.within)
        comes = (new > old)[found.at]
        return changes(start, np.where(comes, start, end), np.where(comes, end, start), payload)

    # Time.

    def on_cti(self, port: int, t: int) -> Output:
        both = self.note_cti(port, t)
        for part, store in enumerate(self._stores):
            store.expire(
                min(self._free_until(part, other) for other in range(len(self._cti)) if other != part)
            )
        if self._absent is not None:
            self._absent.expire(min(move_cti(each, 1 - self._spec.within) for each in self._cti))
        self._left_out.expire(both)
        return self.emit(both)

    def _free_until(self, part: int, other: int) -> int:
        """Events of a part that end before are in no answer with an event of another that changes.

        A part that comes before another waits for what starts before it.
        """
        is_before = self._spec.in_order and other < part
        return move_cti(self._cti[other], 1 if is_before else 1 - self._spec.within)


@dataclass(frozen=True, slots=True)
class MovedEnds:
    """First events of sequences, by position; how the end moves that absent events set for them."""

    x: Index
    group: Hashes
    vs: Ticks
    old: Ticks
    new: Ticks


def _without(over: Mask, choices: Choices, payload: pa.RecordBatch) -> tuple[Choices, pa.RecordBatch]:
    """Answers but those for these events."""
    kept = np.flatnonzero(~over[choices.at])
    return choices.take(kept), take_rows(payload, kept)
