"""`advance_time` directly on a source with partitions: CTIs behind the latest start of each partition.

The step reads what the source lets pass, row by row with its partition, and gives a stream of its own: the
rows that are not late by their own partition, and the least CTI over all. So a partition that lags behind
loses nothing to one that is ahead.

    partition 0    90  100          its CTI is 95 with a delay of 5
    partition 1    12   20          its CTI is 15, and so is that of all: 12 is not late

Assumes     valid rows, and the partition of each.
Guarantees  as `AdvanceTime` for each partition; the CTI is that of `Partitions`.
State       that of `Partitions`, the rows of each partition so far, the events dropped or cut off.
Cost        O(n log n) in the batch.
Source      rulings A1 to A4 and P8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, EventBatch, Index, concat, cti, empty
from recension.core.late_elements import LateElements
from recension.core.placement import Placement
from recension.core.rows import Rows
from recension.core.segments import group_starts, running_max, stable_order
from recension.core.ticks import BEGINNING, Ticks
from recension.core.validity import ADJUSTED, LATE, DroppedElements, counts_from_table
from recension.gate.partition_state import Heard, PartitionProgress
from recension.gate.partitions import Partitions
from recension.gate.step import Arrival, Step, Verdict
from recension.gate.valid import Validity
from recension.operators.advance_time import Pace, make_ctis
from recension.operators.state.chunks import take_prefix
from recension.plan.consistency import AdvanceTime
from recension.plan.source import Source


class Paced(Step):
    """The step *pace*: the `advance_time` of queries directly on this source, by their vertices.

    What they give goes to these vertices; the source itself gives what it would give without them.
    """

    def __init__(self, source: Source, validity: Validity) -> None:
        super().__init__()
        self._source, self._validity = source, validity
        self.vertices: dict[int, PacedPartitions] = {}
        self._given: dict[int, EventBatch] = {}

    def follow(self, steps: Mapping[int, AdvanceTime]) -> None:
        """These are the steps from now on."""
        known = self.vertices
        self.vertices = {
            at: known.get(at) or PacedPartitions(self._source, step) for at, step in steps.items()
        }

    def judge(self, rows: Rows, arrival: Arrival) -> Verdict:
        """The same rows."""
        if not self.vertices or rows.placed is None:
            return rows, None
        return rows, partial(self._take_over, arrival, rows.spoke)

    def _take_over(self, arrival: Arrival, spoke: Sequence[str], batch: EventBatch) -> EventBatch:
        assert self._validity.passed is not None
        passed = self._validity.passed
        self._given = {at: paced.take(*passed, arrival, spoke) for at, paced in self.vertices.items()}
        return batch

    def expect(self, number: int) -> None:
        """How many partitions there are."""
        for paced in self.vertices.values():
            paced.partitions.expect(number)

    def tick(self, now: int) -> None:
        """Let them look at the clock."""
        self._given = {at: paced.tick(now) for at, paced in self.vertices.items()}

    @property
    def has_given(self) -> bool:
        """Have they given something that was not taken yet?"""
        return any(len(batch) for batch in self._given.values())

    def take_given(self) -> dict[int, EventBatch]:
        """By vertex, what they give for what was taken in last; forgets it."""
        given, self._given = self._given, {}
        return {at: batch for at, batch in given.items() if len(batch)}

    def snapshot(self) -> dict[str, pa.Table]:
        """What they remember, numbered in their order."""
        return {
            f"paced/{number}/{name}": table
            for number, paced in enumerate(self.vertices.values())
            for name, table in paced.snapshot().items()
        }

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Become what `snapshot` gave."""
        for number, paced in enumerate(self.vertices.values()):
            paced.restore(take_prefix(f"paced/{number}", chunks))


class PacedPartitions(DroppedElements):
    """One `advance_time` on one source."""

    def __init__(self, source: Source, step: AdvanceTime) -> None:
        super().__init__()
        self._schema, self._name = source.columns, step.label
        self._pace = Pace(step.delay, step.events, step.interval)
        self.partitions = Partitions(expected=source.partitions, idle=source.idle)
        self._late = LateElements(adjusts=step.late == "adjust")
        self._latest: dict[str, int] = {}
        self._rows: Counter[str] = Counter()

    def state_rows(self) -> int:
        """How many events are remembered."""
        return len(self._late)

    def state_bytes(self) -> int:
        """How much memory they take."""
        return self._late.nbytes()

    def progress(self) -> list[PartitionProgress]:
        """How far each partition is."""
        return self.partitions.progress()

    def held_back_by(self) -> str | None:
        """The partition that the others wait for."""
        return self.partitions.held_back_by()

    def take(
        self, batch: EventBatch, placement: Placement, arrival: Arrival, spoke: Sequence[str]
    ) -> EventBatch:
        """What becomes of valid rows of the source and of the CTIs of its partitions.

        Partitions that ``spoke`` are alive, also if the source let nothing of them pass.
        """
        placement = placement.without_unused()
        batch, placement = self._insert_ctis(batch, placement)
        before = self.partitions.cti
        alive = pa.table({"name": pa.array(spoke, pa.string()), "latest_start": [BEGINNING] * len(spoke)})
        judged = self.partitions.judge(
            batch, placement, arrival.now, promise=arrival.promise, heard=Heard(alive)
        )
        placed = judged.placed
        adjusted = self._late.adjust(judged.batch, placed.before, None, placed.salt)
        self.partitions.admit(judged)
        for reason, rows in ((LATE, adjusted.is_dropped), (ADJUSTED, adjusted.is_moved)):
            if bool(rows.any()):
                self.counts[reason] += int(rows.sum())
                self.partitions.count(reason, placed.count(rows))
        if bool(adjusted.is_dropped.any()):
            self.dropped.append((LATE, judged.batch.filter(adjusted.is_dropped)))
        self._late.forget_before(self.partitions.cti)
        kept = adjusted.batch.filter(~adjusted.is_dropped & (adjusted.batch.kind != CTI))
        return self._with_cti(kept, before)

    def tick(self, now: int) -> EventBatch:
        """What the clock alone moves."""
        before = self.partitions.cti
        self.partitions.tick(now)
        self._late.forget_before(self.partitions.cti)
        return self._with_cti(empty(self._schema), before)

    def _with_cti(self, batch: EventBatch, before: int) -> EventBatch:
        t = self.partitions.cti
        return concat([batch, cti(t, self._schema)]) if t > before else batch

    def _insert_ctis(self, batch: EventBatch, placement: Placement) -> tuple[EventBatch, Placement]:
        """The rows with CTIs put in where the pace of their partition has one due that advances."""
        if not len(batch):
            return batch, placement
        at = stable_order(placement.code, len(placement.names))
        first = group_starts(placement.code[at])
        names = [placement.names[code] for code in placement.code[at[first]].tolist()]
        sizes = np.diff(np.append(first, len(at)))
        after, t = self._due(batch, at, first, sizes, names)
        if not len(t):
            return batch, placement
        order = np.argsort(np.concatenate([np.arange(len(batch)), after]), kind="stable")
        code = np.concatenate([placement.code, placement.code[after]])[order]
        joined = concat([batch, make_ctis(t, self._schema)]).take(order)
        return joined, Placement(placement.names, code)

    def _due(
        self, batch: EventBatch, at: Index, first: Index, sizes: Index, names: list[str]
    ) -> tuple[Index, Ticks]:
        """The rows after which a CTI is due, and its time; the latest starts are remembered."""
        is_row = (batch.kind != CTI)[at]
        known = np.array([self._latest.get(name, BEGINNING) for name in names])
        latest = running_max(np.where(is_row, batch.vs[at], np.int64(BEGINNING)), first)
        latest = np.maximum(latest, np.repeat(known, sizes))
        count = np.cumsum(is_row)
        count -= np.repeat((count - is_row)[first], sizes)
        number = count + np.repeat(np.array([self._rows[name] for name in names]), sizes)
        last = first + sizes - 1
        for name, start, rows in zip(names, latest[last].tolist(), number[last].tolist(), strict=True):
            self._latest[name], self._rows[name] = start, rows
        is_turn = is_row & self._pace.is_turn(number)
        t = np.where(is_turn, self._pace.times(latest), np.int64(BEGINNING))
        reached = np.array([self.partitions.cti_of(name) for name in names])
        top = np.maximum(running_max(t, first), np.repeat(reached, sizes))
        previous = np.append(np.int64(BEGINNING), top)[:-1]
        previous[first] = reached
        is_new = t > previous
        return at[is_new], t[is_new]

    def snapshot(self) -> dict[str, pa.Table]:
        """What is remembered."""
        seen = {
            "name": pa.array(list(self._latest), pa.string()),
            "latest": pa.array(self._latest.values(), pa.int64()),
            "rows": pa.array([self._rows[name] for name in self._latest], pa.int64()),
        }
        counts = {
            "reason": pa.array(self.counts, pa.string()),
            "n": pa.array(self.counts.values(), pa.int64()),
        }
        return {
            "seen": pa.table(seen),
            "counts": pa.table(counts),
            **self.partitions.snapshot(),
            **self._late.snapshot(),
        }

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Become what `snapshot` gave."""
        rows = chunks["seen"].to_pylist()
        self._latest = {row["name"]: row["latest"] for row in rows}
        self._rows = Counter({row["name"]: row["rows"] for row in rows})
        self.counts = counts_from_table(chunks["counts"])
        self.partitions.restore(chunks)
        self._late.restore(chunks, self.partitions.cti)
