"""Sub-streams: one input that is several ordered streams, such as the partitions of a topic.

    rows of a push ── PartitionColumns.read ──> Placement ── Partitions.judge ──> PlacedRows ── Checker ──>

    placement = PartitionColumns(("partition",), ("offset",)).read(rows, file, first_row)
    placed = partitions.judge(batch, placement, now)    # looks, and changes nothing
    valid = checker.check(placed.batch, placed=placed)  # each row by the CTI of its own partition
    partitions.note(placed)                             # takes over what was judged
    partitions.cti                                      # of the whole source, to be given once, last

Assumes     the rows of one partition come in pushes whose ``order`` rises. ``now`` is the caller's clock, in
            microseconds; a replay that gives the same times gets the same answers.
Guarantees  the rows of a partition stand by their order. The CTI before each row is the last one of its own
            partition, and not before that of the source. The CTI of the source is the least over the
            partitions that count, and never falls. All partitions of a push are known before a CTI counts.
            Who counts: all that have spoken and are not idle; with ``expected``, none until so many have
            spoken, or ``idle`` has passed since the start. Of idle ones alone the furthest decides. A new one
            joins at the source's CTI. One whose CTI is the end of time has ended and holds nobody back.
State       per partition: CTI, latest start, highest order, when it last spoke, what was dropped; per run and
            partition the highest sequence.
Cost        O(n) in the rows of a push that are in order, O(n log n) else; a few steps for each partition.
Source      issue on sub-streams; Flink's rule for inputs that are all idle; rulings P1 to P12.

A shard of many sees only some rows of a partition. What `summarize` says of the rows of all shards is given
to `judge` as ``heard``: so every shard knows every partition, how far it is and when it spoke.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core import ticks
from recension.core.batch import CTI, EventBatch, Index, Mask
from recension.core.errors import RecensionError, StreamError
from recension.core.placement import PartitionColumns, Placement, join_placements, name_of
from recension.core.repeats import REPEATED, Highest, Sequences
from recension.core.rowhash import Hashes, column_hash
from recension.core.segments import (
    are_sorted,
    group_starts,
    is_greater,
    running_max,
    stable_order,
    values_at,
)
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.time_kind import TimeKind

__all__ = [
    "REPEATED",
    "UNORDERED",
    "Heard",
    "PartitionColumns",
    "PartitionProgress",
    "Partitions",
    "PlacedRows",
    "Placement",
    "join_placements",
    "name_of",
    "summarize",
]

UNORDERED: Final = "does not come after what its partition has sent"
_NOTHING: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far one partition is."""

    name: str
    cti: int
    """Its last CTI; it may be behind that of the source if it was idle then."""
    latest_start: int
    is_idle: bool
    dropped: Mapping[str, int] = field(default_factory=dict)
    """What of it was dropped, moved or skipped, by reason."""

    @property
    def has_ended(self) -> bool:
        """Is nothing more to come of it?"""
        return self.cti == FOREVER


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Rows in the order of their partitions, and how each stands in its own; nothing has changed yet.

    ``before`` is the CTI before each row, ``salt`` tells equal events of two partitions apart, ``row`` is
    where each row stood among those that were given.
    """

    batch: EventBatch
    partition: Index
    before: Ticks
    row: Index
    names: Sequence[str]
    salts: Hashes
    cti: int
    """The CTI of the source after these rows."""
    next: _State
    sequences: Highest
    dropped: Sequence[tuple[str, EventBatch | None, Index]] = ()
    """By reason, what was left out here, and how many of each partition; repeats are counted only."""
    spoke: Sequence[str] = ()
    """The partitions of all rows, also of those that were left out."""

    @property
    def salt(self) -> Hashes:
        """What to mix into the identity of each row's event."""
        return self.salts[self.partition]

    def take(self, rows: Mask) -> PlacedRows:
        """Without some of the rows; the batch is the caller's."""
        return replace(self, partition=self.partition[rows], before=self.before[rows], row=self.row[rows])

    def describe(self, at: int) -> str:
        """The partition of a row, for messages."""
        name = self.names[self.partition[at]]
        return f"partition {name}: " if name else ""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a shard hears of the rows of all shards, its own included.

    ``rows`` is what `summarize` says of them, or a row for each step: the latest start of the rows from each
    order on. With ``delay`` each partition's CTI stays so far behind its latest start. A CTI comes to all
    shards; one of them counts it if it is left out.
    """

    rows: pa.Table
    delay: int | None = None
    counts_ctis: bool = True


@dataclass(frozen=True, slots=True)
class _State:
    """The partitions, in the order in which they spoke first."""

    names: tuple[str, ...] = ()
    cti: Ticks = field(default_factory=lambda: _NOTHING)
    latest: Ticks = field(default_factory=lambda: _NOTHING)
    spoke: Ticks = field(default_factory=lambda: _NOTHING)
    order: tuple[Index, ...] = ()
    has_order: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    source_cti: int = BEGINNING
    promised: int = BEGINNING
    """What was promised of all partitions, also those that have not spoken."""
    began: int | None = None
    now: int = BEGINNING

    def join(self, names: Sequence[str]) -> _State:
        """With partitions that are new: they join at the source's CTI."""
        if not names:
            return self
        more = len(names)
        return replace(
            self,
            names=(*self.names, *names),
            cti=np.append(self.cti, np.full(more, self.source_cti)),
            latest=np.append(self.latest, np.full(more, BEGINNING)),
            spoke=np.append(self.spoke, np.full(more, self.now)),
            order=tuple(np.append(column, np.zeros(more, np.int64)) for column in self.order),
            has_order=np.append(self.has_order, np.zeros(more, np.bool_)),
        )

    def at(self, now: int) -> _State:
        """The same, at a later time: a clock that is put back does not count."""
        now = max(now, self.now)
        return replace(self, now=now, began=now if self.began is None else self.began)


class Partitions:
    """The sub-streams of one source.

    ``expected`` partitions must have spoken before a CTI counts. A partition that has not spoken for ``idle``
    microseconds holds the others back no more. With ``delay`` each one's CTI stays so far behind its latest
    start.
    """

    def __init__(
        self, *, expected: int | None = None, idle: int | None = None, delay: int | None = None
    ) -> None:
        self._expected, self._idle, self._delay = expected, idle, delay
        self._state = _State()
        self._number: dict[str, int] = {}
        self._salts: Hashes = np.zeros(0, np.uint64)
        self._sequences = Sequences()
        self._dropped: dict[str, Counter[str]] = {}

    def __len__(self) -> int:
        return len(self._state.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The partitions that have spoken, in the order in which they did."""
        return self._state.names

    @property
    def cti(self) -> int:
        """The CTI of the source."""
        return self._state.source_cti

    @property
    def is_clocked(self) -> bool:
        """Can time alone move the CTI?"""
        return self._idle is not None

    def expect(self, number: int) -> None:
        """So many partitions must have spoken before a CTI counts, unless that was said before."""
        if self._expected is None:
            self._expected = number

    def begin(self, now: int) -> None:
        """The source is there from now on, though nothing has come yet."""
        self._state = self._state.at(now)

    def judge(
        self,
        batch: EventBatch,
        placement: Placement,
        now: int = 0,
        *,
        promise: int | None = None,
        heard: Heard | None = None,
        is_strict: bool = True,
        first_row: int = 1,
        file: str | None = None,
        kind: TimeKind = None,
    ) -> PlacedRows:
        """Put rows in their places; repeats are left out. Nothing changes.

        With ``is_strict`` a row that does not come after what its partition has sent is an error; else it is
        left out as well. ``promise`` is a CTI for all partitions, also those that have not spoken, after the
        rows.
        """
        state, placement = self._state.at(now), placement.without_unused()
        rows = _Rows.of(batch, placement, self._numbers(placement.names, state))
        state = state.join([name for name in placement.names if name not in self._number])
        rows = rows.in_order()
        repeats, sequences = self._sequences.find_repeats(rows.placement, rows.partition, state.names)
        disordered = _find_disordered(rows, repeats, state)
        if is_strict and bool(disordered.any()):
            raise _describe_disorder(rows, disordered, state, first_row, file, kind)
        after = _advance(state, rows, repeats | disordered, heard, self._delay)
        if promise is not None:
            after = replace(after, cti=np.maximum(after.cti, promise), promised=max(after.promised, promise))
        counts = rows.batch.kind != CTI if heard is not None and not heard.counts_ctis else np.True_
        dropped = _leave_out(rows, repeats & counts, disordered & counts, len(after.names))
        rows = rows.filter(~(repeats | disordered))
        after = replace(after, source_cti=self._source_cti(after))
        before = np.maximum(rows.ctis_before(state.cti), state.source_cti)
        salts = self._salts_of(after.names)
        return PlacedRows(
            *(rows.batch, rows.partition, before, rows.row, after.names, salts),
            *(after.source_cti, after, sequences, dropped, placement.names),
        )

    def note(self, placed: PlacedRows) -> None:
        """Take over what was judged last."""
        self._sequences.note(placed.sequences)
        self._take(placed.next)
        for reason, _, counts in placed.dropped:
            self.count(reason, counts)

    def count(self, reason: str, counts: Index) -> None:
        """Count what was dropped or moved, by partition."""
        for number in np.flatnonzero(counts):
            name = self._state.names[number]
            self._dropped.setdefault(name, Counter())[reason] += int(counts[number])

    def tick(self, now: int) -> int:
        """The CTI of the source when it is so late: who has been idle for long does not count."""
        state = self._state.at(now)
        self._take(replace(state, source_cti=self._source_cti(state)))
        return self.cti

    def cti_of(self, partition: str) -> int:
        """How far a partition is: its own CTI, but not before that of the source."""
        number = self._number.get(partition)
        own = BEGINNING if number is None else int(self._state.cti[number])
        return max(own, self._state.source_cti)

    def progress(self) -> list[PartitionProgress]:
        """How far each partition is, by name."""
        state, idle = self._state, self._is_idle(self._state)
        rows = zip(state.names, state.cti.tolist(), state.latest.tolist(), idle.tolist(), strict=True)
        found = [PartitionProgress(*row, dict(self._dropped.get(row[0], {}))) for row in rows]
        return sorted(found, key=lambda one: (len(one.name), one.name))

    def held_back_by(self) -> str | None:
        """The partition that others, further than it is, wait for; or what the source waits for."""
        state = self._state
        if state.source_cti == FOREVER:
            return None
        if (missing := self._missing(state)) > 0:
            return f"{missing} more to speak"
        counts = ~self._is_idle(state) & (state.cti < FOREVER)
        if not counts.any() or state.cti[counts].min() == state.cti[counts].max():
            return None
        return state.names[int(np.flatnonzero(counts)[state.cti[counts].argmin()])]

    def snapshot(self) -> dict[str, pa.Table]:
        """The state as small tables."""
        state = self._state
        order = {f"order_{i}": column for i, column in enumerate(state.order)}
        partitions = {
            "name": pa.array(state.names, pa.string()),
            "cti": state.cti,
            "latest_start": state.latest,
            "spoke": state.spoke,
            "has_order": state.has_order,
        }
        source = {"cti": [state.source_cti], "promised": [state.promised], "now": [state.now]}
        # A topic may have grown when it is restored: what was expected first holds, so that a replay agrees.
        source |= {"expected": pa.array([self._expected], pa.int64())}
        counted = [(name, reason, n) for name, of in self._dropped.items() for reason, n in of.items()]
        return {
            "partitions": pa.table(partitions | order),
            "partitions_source": pa.table({**source, "began": pa.array([state.began], pa.int64())}),
            "partitions_dropped": pa.table(
                {
                    "name": pa.array([name for name, _, _ in counted], pa.string()),
                    "reason": pa.array([reason for _, reason, _ in counted], pa.string()),
                    "n": pa.array([n for _, _, n in counted], pa.int64()),
                }
            ),
            **self._sequences.snapshot(),
        }

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Become what `snapshot` gave."""
        table, source = chunks["partitions"], chunks["partitions_source"].to_pylist()[0]
        orders = [name for name in table.column_names if name.startswith("order_")]
        self._take(
            _State(
                names=tuple(table["name"].to_pylist()),
                cti=table["cti"].to_numpy(),
                latest=table["latest_start"].to_numpy(),
                spoke=table["spoke"].to_numpy(),
                order=tuple(table[name].to_numpy() for name in orders),
                has_order=table["has_order"].to_numpy(),
                source_cti=source["cti"],
                promised=source["promised"],
                began=source["began"],
                now=source["now"],
            )
        )
        self._expected = source["expected"]
        self._dropped = {}
        for row in chunks["partitions_dropped"].to_pylist():
            self._dropped.setdefault(row["name"], Counter())[row["reason"]] = row["n"]
        self._sequences.restore(chunks)

    def _take(self, state: _State) -> None:
        if state.names != self._state.names:
            self._number = {name: number for number, name in enumerate(state.names)}
            self._salts = self._salts_of(state.names)
        self._state = state

    def _salts_of(self, names: Sequence[str]) -> Hashes:
        if len(names) == len(self._salts) and tuple(names) == self._state.names:
            return self._salts
        return column_hash(pa.array(names, pa.string()))

    def _numbers(self, names: Sequence[str], state: _State) -> Index:
        """The numbers of partitions; new ones are numbered on."""
        following = len(state.names)
        numbers = []
        for name in names:
            number = self._number.get(name)
            numbers.append(following if number is None else number)
            following += number is None
        return np.array(numbers, np.int64)

    def _missing(self, state: _State) -> int:
        """How many partitions are still waited for."""
        if self._expected is None:
            return 0
        has_waited = self._idle is not None and state.now - (state.began or 0) >= self._idle
        return 0 if has_waited else self._expected - len(state.names)

    def _is_idle(self, state: _State) -> Mask:
        if self._idle is None:
            return np.zeros(len(state.names), np.bool_)
        idle: Mask = state.now - state.spoke >= self._idle
        return idle

    def _source_cti(self, state: _State) -> int:
        least = max(state.source_cti, state.promised)
        if not len(state.names) or self._missing(state) > 0:
            return least
        is_open = state.cti < FOREVER
        if not is_open.any():
            # All that spoke have ended; who has not spoken yet still may.
            is_complete = self._expected is None or len(state.names) >= self._expected
            return FOREVER if is_complete else least
        counts = is_open & ~self._is_idle(state)
        found = state.cti[counts].min() if counts.any() else state.cti[is_open].max()
        return max(least, int(found))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows with their partitions, and where they stood among those that were given.

    ``at`` lists them partition by partition, in the order in which they stand; ``first`` is where each
    partition begins there.
    """

    batch: EventBatch
    placement: Placement
    partition: Index
    row: Index
    at: Index
    first: Index

    @staticmethod
    def of(batch: EventBatch, placement: Placement, numbers: Index) -> _Rows:
        if len(batch) != len(placement):
            raise RecensionError(f"{len(batch)} rows, but places of {len(placement)}")
        return _Rows.make(batch, placement, numbers[placement.code], np.arange(len(batch)))

    @staticmethod
    def make(batch: EventBatch, placement: Placement, partition: Index, row: Index) -> _Rows:
        at = stable_order(partition, int(partition.max(initial=0)) + 1)
        return _Rows(batch, placement, partition, row, at, group_starts(partition[at]))

    def __len__(self) -> int:
        return len(self.partition)

    def filter(self, keep: Mask) -> _Rows:
        if bool(keep.all()):
            return self
        batch, places = self.batch.filter(keep), self.placement.take(keep)
        return _Rows.make(batch, places, self.partition[keep], self.row[keep])

    def in_order(self) -> _Rows:
        """Each partition's rows by its order, in the very places that its rows have among all."""
        columns = [column[self.at] for column in self.placement.order]
        if not columns or are_sorted(columns, self.first):
            return self
        order = np.lexsort((*reversed(self.placement.order), self.partition))
        rows = np.empty(len(self), np.int64)
        rows[self.at] = order
        return replace(
            self, batch=self.batch.take(rows), placement=self.placement.take(rows), row=self.row[rows]
        )

    def sizes(self) -> Index:
        """How many rows each partition has that is there."""
        return np.diff(np.append(self.first, len(self)))

    def ctis_before(self, known: Ticks) -> Ticks:
        """The last CTI of its partition before each row."""
        before = values_at(known, self.partition, BEGINNING)
        is_cti = (self.batch.kind == CTI)[self.at]
        at = np.flatnonzero(is_cti)
        ends = np.append(self.first[1:], len(self)) - 1
        if not len(at) or bool(np.isin(at, ends).all()):
            return before  # most often there is none, or one after all rows of its partition
        group = np.repeat(np.arange(len(self.first)), self.sizes())
        top = running_max(self.batch.vs[self.at[at]], group_starts(group[at]))
        # The last CTI before each row, in the order of partitions; it must be of the same one.
        last = np.cumsum(is_cti) - is_cti - 1
        is_own = (last >= 0) & (group[at[last]] == group)
        found = np.where(is_own, top[last], np.int64(BEGINNING))
        before[self.at] = np.maximum(before[self.at], found)
        return before


def _find_disordered(rows: _Rows, repeats: Mask, state: _State) -> Mask:
    """Which rows do not come after what their partition has sent, or are not alone in their place."""
    wrong = np.zeros(len(rows), np.bool_)
    if not rows.placement.order or not len(rows):
        return wrong
    at = rows.at[~repeats[rows.at]]
    columns, partition = [column[at] for column in rows.placement.order], rows.partition[at]
    same = np.append(False, partition[1:] == partition[:-1])[: len(at)]
    for column in columns:
        same[1:] &= column[1:] == column[:-1]
    if state.order:
        if len(state.order) != len(columns):
            raise RecensionError(
                f"the order had {len(state.order)} columns before, and has {len(columns)} now"
            )
        known = [column[partition] for column in state.order]
        same |= state.has_order[partition] & ~is_greater(columns, known)
    wrong[at] = same
    return wrong


def _describe_disorder(
    rows: _Rows, wrong: Mask, state: _State, first_row: int, file: str | None, kind: TimeKind
) -> StreamError:
    at = int(np.flatnonzero(wrong)[np.argmin(rows.row[wrong])])
    number = int(rows.partition[at])
    name, own = state.names[number], "/".join(str(column[at]) for column in rows.placement.order)
    after = "/".join(str(column[number]) for column in state.order) if state.has_order[number] else None
    known = f"order {own} after {after}" if after is not None else f"order {own} twice"
    if (
        after is not None
        and is_greater(
            [column[[at]] for column in rows.placement.order], [column[[number]] for column in state.order]
        ).all()
    ):
        known = f"order {own} twice"
    element = rows.batch.slice(at, at + 1).to_elements(kind)[0] if rows.batch.kind[at] <= CTI + 1 else ""
    place = f"partition {name}: " if name else ""
    return StreamError(
        f"{place}{UNORDERED}: {known}{f': {element}' if element != '' else ''}",
        file=file,
        row=first_row + int(rows.row[at]),
    )


def _leave_out(
    rows: _Rows, repeats: Mask, disordered: Mask, partitions: int
) -> list[tuple[str, EventBatch | None, Index]]:
    found: list[tuple[str, EventBatch | None, Index]] = []
    for reason, mask in ((REPEATED, repeats), (UNORDERED, disordered)):
        if bool(mask.any()):
            kept = rows.batch.filter(mask) if reason == UNORDERED else None
            found.append((reason, kept, np.bincount(rows.partition[mask], minlength=partitions)))
    return found


def _advance(state: _State, rows: _Rows, ignored: Mask, heard: Heard | None, delay: int | None) -> _State:
    """The partitions after these rows, and after what is heard of others."""
    cti, latest, spoke = state.cti.copy(), state.latest.copy(), state.spoke.copy()
    order, has_order = [column.copy() for column in state.order], state.has_order.copy()
    if len(rows):
        present = rows.partition[rows.at[rows.first]]
        spoke[present] = state.now
        is_cti, counts = rows.batch.kind == CTI, ~ignored
        starts = np.where(is_cti | ignored, np.int64(BEGINNING), rows.batch.vs)[rows.at]
        latest[present] = np.maximum(latest[present], np.maximum.reduceat(starts, rows.first))
        at = np.flatnonzero(is_cti & counts)
        np.maximum.at(cti, rows.partition[at], rows.batch.vs[at])
        if rows.placement.order:
            last = rows.at[np.append(rows.first[1:], len(rows)) - 1]
            tops = [column[last] for column in rows.placement.order]
            order, has_order = _raise_orders(order, has_order, present, tops)
    after = replace(state, cti=cti, latest=latest, spoke=spoke, order=tuple(order), has_order=has_order)
    if heard is not None:
        after, delay = _hear(after, heard.rows, state), delay if heard.delay is None else heard.delay
    return (
        after if delay is None else replace(after, cti=np.maximum(after.cti, ticks.add(after.latest, -delay)))
    )


def _raise_orders(
    order: list[Index], has_order: Mask, numbers: Index, tops: list[Index]
) -> tuple[list[Index], Mask]:
    """The highest order of each partition, where these numbers have got to these."""
    order = order or [np.zeros(len(has_order), np.int64) for _ in tops]
    is_higher = ~has_order[numbers] | is_greater(tops, [column[numbers] for column in order])
    for column, top in zip(order, tops, strict=True):
        column[numbers[is_higher]] = top[is_higher]
    has_order[numbers] = True
    return order, has_order


def summarize(batch: EventBatch, placement: Placement) -> pa.Table:
    """What other shards must know of rows: a row a partition; tables of several tasks are put together."""
    rows = _Rows.of(batch, placement, np.arange(len(placement.names))).in_order()
    present = rows.partition[rows.at[rows.first]] if len(rows) else _NOTHING
    starts = np.where(batch.kind == CTI, np.int64(BEGINNING), batch.vs) if len(rows) else _NOTHING
    starts = starts[rows.row][rows.at]
    last = rows.at[np.append(rows.first[1:], len(rows)) - 1] if len(rows) else _NOTHING
    order = {f"order_{i}": column[last] for i, column in enumerate(rows.placement.order)}
    latest = np.maximum.reduceat(starts, rows.first) if len(rows) else _NOTHING
    names = pa.array([placement.names[number] for number in present], pa.string())
    return pa.table({"name": names, "latest_start": latest, **order})


def _hear(state: _State, heard: pa.Table, before: _State) -> _State:
    """After what is heard of the rows of all shards: their partitions have spoken.

    What goes back in order, by what was known before, is left out where it is, and says nothing of starts.
    """
    names: list[str] = heard["name"].to_pylist()
    known = {name: number for number, name in enumerate(state.names)}
    state = state.join([name for name in dict.fromkeys(names) if name not in known])
    known = {name: number for number, name in enumerate(state.names)}
    numbers = np.array([known[name] for name in names], np.int64)
    latest, spoke = state.latest.copy(), state.spoke.copy()
    spoke[numbers] = state.now
    columns = [name for name in heard.column_names if name.startswith("order_")]
    tops = [heard[name].to_numpy() for name in columns]
    counts = np.ones(len(names), np.bool_)
    if before.order:
        has_order = values_at(before.has_order.astype(np.int64), numbers, 0) > 0
        counts = ~has_order | is_greater(tops, [values_at(column, numbers, 0) for column in before.order])
    np.maximum.at(latest, numbers[counts], heard["latest_start"].to_numpy()[counts])
    order, has_order = [column.copy() for column in state.order], state.has_order.copy()
    if columns and len(names):
        # Several tasks may have had rows of one partition: the highest is put in last.
        sort = np.lexsort((*reversed(tops), numbers))
        last = np.append(numbers[sort][1:] != numbers[sort][:-1], True)
        chosen = sort[last]
        order, has_order = _raise_orders(order, has_order, numbers[chosen], [top[chosen] for top in tops])
    return replace(state, latest=latest, spoke=spoke, order=tuple(order), has_order=has_order)
