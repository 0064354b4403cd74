"""Sub-streams: one input that is several ordered streams, such as the partitions of a topic.

    rows of a push ── PartitionColumns.read ──> Placement ── Partitions.judge ──> JudgedRows ── Checker ──>

    placement = PartitionColumns(("partition",), ("offset",)).read(rows, file, first_row)
    judged = partitions.judge(batch, placement, now)           # looks, and changes nothing
    valid = checker.check(judged.batch, placed=judged.placed)  # each row by the CTI of its own partition
    partitions.admit(judged)                                   # takes over what was judged
    partitions.cti                                             # of the whole source, to be given once, last

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
from dataclasses import replace

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, EventBatch, Index, Mask
from recension.core.placement import PlacedRows, Placement
from recension.core.records import record
from recension.core.rowhash import Hashes, column_hash
from recension.core.rows import NOWHERE, Origin
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.time_kind import TimeKind
from recension.gate.partition_order import describe_disorder, find_disordered, leave_out
from recension.gate.partition_rows import PartitionRows
from recension.gate.partition_state import Heard, PartitionProgress, PartitionState, advance
from recension.gate.repeats import Highest, Sequences


@record
class JudgedRows:
    """Rows in the order of their partitions, and what is to be remembered of them, if they come in."""

    batch: EventBatch
    origin: Origin
    placed: PlacedRows
    next: PartitionState
    sequences: Highest
    dropped: Sequence[tuple[str, EventBatch | None, Index]] = ()
    """By reason, what was left out here, and how many of each partition; repeats are counted only."""
    spoke: Sequence[str] = ()
    """The partitions of all rows, also of those that were left out."""


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
        self._state = PartitionState()
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
        origin: Origin = NOWHERE,
        kind: TimeKind = None,
    ) -> JudgedRows:
        """Put rows in their places; repeats are left out. Nothing changes.

        With ``is_strict`` a row that does not come after what its partition has sent is an error; else it is
        left out as well. ``promise`` is a CTI for all partitions, also those that have not spoken, after the
        rows.
        """
        state, placement = self._state.at(now), placement.without_unused()
        rows = PartitionRows.of(batch, placement, self._numbers(placement.names, state))
        state = state.join([name for name in placement.names if name not in self._number])
        rows = rows.in_order()
        repeats, sequences = self._sequences.find_repeats(rows.placement, rows.partition, state.names)
        disordered = find_disordered(rows, repeats, state)
        if is_strict and bool(disordered.any()):
            raise describe_disorder(rows, disordered, state, origin, kind)
        after = advance(state, rows, repeats | disordered, heard, self._delay)
        if promise is not None:
            after = replace(after, cti=np.maximum(after.cti, promise), promised=max(after.promised, promise))
        counts = rows.batch.kind != CTI if heard is not None and not heard.counts_ctis else np.True_
        dropped = leave_out(rows, repeats & counts, disordered & counts, len(after.names))
        rows = rows.filter(~(repeats | disordered))
        after = replace(after, source_cti=self._source_cti(after))
        before = np.maximum(rows.ctis_before(state.cti), state.source_cti)
        placed = PlacedRows(
            after.names, self._salts_of(after.names), rows.partition, before, after.source_cti
        )
        origin = origin.take(rows.row)
        return JudgedRows(rows.batch, origin, placed, after, sequences, dropped, placement.names)

    def admit(self, judged: JudgedRows) -> None:
        """Take over what was judged last."""
        self._sequences.note(judged.sequences)
        self._take(judged.next)
        for reason, _, counts in judged.dropped:
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
        counted = [(name, reason, n) for name, of in self._dropped.items() for reason, n in of.items()]
        return {
            # A topic may have grown when it is restored: what was expected first holds, as in a replay.
            **self._state.snapshot(self._expected),
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
        state, self._expected = PartitionState.restore(chunks)
        self._take(state)
        self._dropped = {}
        for row in chunks["partitions_dropped"].to_pylist():
            self._dropped.setdefault(row["name"], Counter())[row["reason"]] = row["n"]
        self._sequences.restore(chunks)

    def _take(self, state: PartitionState) -> None:
        if state.names != self._state.names:
            self._number = {name: number for number, name in enumerate(state.names)}
            self._salts = self._salts_of(state.names)
        self._state = state

    def _salts_of(self, names: Sequence[str]) -> Hashes:
        if len(names) == len(self._salts) and tuple(names) == self._state.names:
            return self._salts
        return column_hash(pa.array(names, pa.string()))

    def _numbers(self, names: Sequence[str], state: PartitionState) -> Index:
        """The numbers of partitions; new ones are numbered on."""
        following = len(state.names)
        numbers = []
        for name in names:
            number = self._number.get(name)
            numbers.append(following if number is None else number)
            following += number is None
        return np.array(numbers, np.int64)

    def _missing(self, state: PartitionState) -> int:
        """How many partitions are still waited for."""
        if self._expected is None:
            return 0
        has_waited = self._idle is not None and state.now - (state.began or 0) >= self._idle
        return 0 if has_waited else self._expected - len(state.names)

    def _is_idle(self, state: PartitionState) -> Mask:
        if self._idle is None:
            return np.zeros(len(state.names), np.bool_)
        idle: Mask = state.now - state.spoke >= self._idle
        return idle

    def _source_cti(self, state: PartitionState) -> int:
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
