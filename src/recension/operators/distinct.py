"""Distinct: at every instant each payload once, on maximal lifetimes.

Assumes     a valid physical stream.
Guarantees  after every batch the output history is the set of maximal lifetimes of each distinct key in the
            input history: equal events that overlap or meet are one. Runs are lengthened and shortened, never
            taken back for a change at their end, so that CTIs pass unchanged.
State       per key the end points at or after the last CTI and one before it, with the number of live
            events there, and the runs that end at or after the CTI.
Cost        O(n log n) in the batch and the end points and runs between the changes it makes.
Source      Temporal Coalescing on Window Extents over Data Streams, §3; rulings B10 (LENGTHEN), B12.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, empty
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.base import Chunks, Operator, Output
from recension.operators.changes import changes, new_end, old_end, order_of_changes
from recension.operators.state.block_table import sort_keys
from recension.operators.state.end_points import EndPoints
from recension.operators.state.leaf_table import LeafTable
from recension.operators.windowed.steps import NOTHING, axis_steps
from recension.operators.windowed.working_set import WorkingSet, lay_over, state_columns


class Distinct(Operator):
    """Keys are the whole payload, or what ``keys`` makes of it; the output schema is that of the keys."""

    changes_on_cti = False
    shards_share_ctis = True

    def __init__(
        self, schema: pa.Schema, keys: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    ) -> None:
        super().__init__(schema)
        self._keys = keys
        self._points = EndPoints(state_columns(0, 0), schema)
        self._runs = Runs()

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        keys = batch.payload if self._keys is None else self._keys(batch.payload)
        group = self._points.number(keys, len(batch))
        steps = axis_steps(group, batch.vs, old_end(batch), new_end(batch), NOTHING)
        work = lay_over(self._points, steps)
        work.write_back(self._points)
        return self._change_runs(work)

    def _change_runs(self, work: WorkingSet) -> EventBatch:
        """Where events began or ceased to cover a stretch between two end points, runs change."""
        is_covered = work.new.n > 0
        rows = np.flatnonzero(work.is_changed & ((work.old.n > 0) != is_covered))
        if not len(rows):
            return empty(self.schema)
        changed = self._runs.change(
            work.group[rows], work.time[rows], work.time[rows + 1], is_covered[rows]
        )  # fmt: skip
        return self._make_changes(changed)

    def _make_changes(self, changed: RunChanges) -> EventBatch:
        """By time, and at one time what goes before what comes."""
        order = order_of_changes(changed.start, changed.old, changed.new)
        start, old, new = (column[order] for column in (changed.start, changed.old, changed.new))
        return changes(start, old, new, self._points.keys_of(changed.group[order]))

    def on_cti(self, port: int, t: int) -> Output:
        if t == FOREVER:
            self._points.clear()
            self._runs.clear()
            return self.emit(t)
        groups = self._points.forget_before(t)
        if len(groups):
            self._runs.forget_before(groups, t)
        if (numbers := self._points.retire()) is not None:
            self._runs.renumber(numbers)
        return self.emit(t)

    def trace(self) -> tuple[int, ...] | None:
        return ()

    def state_rows(self) -> int:
        return len(self._points) + len(self._runs)

    def state_bytes(self) -> int:
        return self._points.nbytes() + self._runs.nbytes()

    def snapshot_state(self) -> Chunks:
        return {**self._points.snapshot(), "runs": self._runs.snapshot()}

    def restore_state(self, chunks: Chunks) -> None:
        self._points.restore(chunks)
        self._runs.restore(chunks["runs"])


@dataclass(frozen=True, slots=True)
class RunChanges:
    """Run by run: its end moves from ``old`` to ``new``; equal to ``start`` means "not there"."""

    group: Index
    start: Ticks
    old: Ticks
    new: Ticks


class Runs:
    """Kept by (group, start)."""

    def __init__(self) -> None:
        self._table = LeafTable({"end": np.int64})

    def __len__(self) -> int:
        return len(self._table)

    def nbytes(self) -> int:
        """Memory taken by the runs."""
        return self._table.nbytes()

    def clear(self) -> None:
        """Forget everything."""
        self._table.clear()

    def change(self, group: Index, low: Ticks, high: Ticks, covers: Mask) -> RunChanges:
        """Cover stretches that were not covered, and uncover stretches that were.

        The stretches ``[low, high)`` are sorted and do not overlap.
        """
        extract = self._table.extract(group, low, high)
        own, start, end = (extract.columns[name][~extract.follower] for name in ("group", "time", "end"))
        one, sign = np.ones(len(own), np.int64), np.where(covers, 1, -1)
        axis = _Axis([own, own, group, group], [start, end, low, high])
        # Whether time is covered goes up by one where a run starts and down by one where it ends.
        was = axis.sums([one, -one, 0 * sign, 0 * sign])
        now = was + axis.sums([0 * one, 0 * one, sign, -sign])
        old, new = axis.ends(was), axis.ends(now)
        starts = now > 0
        columns = {"group": axis.group[starts], "time": axis.time[starts], "end": new[starts]}
        self._table.replace(extract, columns)
        differs = old != new
        return RunChanges(axis.group[differs], axis.time[differs], old[differs], new[differs])

    def forget_before(self, groups: Index, t: int) -> None:
        """Drop those groups' runs that ended before ``t``; one that ends at ``t`` can still grow."""
        extract = self._table.extract(groups, np.full(len(groups), BEGINNING), np.full(len(groups), t))
        keep = ~extract.follower & (extract.columns["end"] >= t)
        self._table.replace(extract, {name: column[keep] for name, column in extract.columns.items()})

    def renumber(self, numbers: Index) -> None:
        """Groups got new numbers."""
        self._table.renumber(numbers)

    def snapshot(self) -> pa.Table:
        """All runs."""
        return self._table.snapshot()

    def restore(self, table: pa.Table) -> None:
        """Become the runs that `snapshot` gave."""
        self._table.restore(table)


class _Axis:
    """The distinct (group, time) points of several arrays, in order."""

    def __init__(self, groups: list[Index], times: list[Ticks]) -> None:
        group, time = np.concatenate(groups), np.concatenate(times)
        self._order = np.argsort(sort_keys([group], [time])[0])
        group, time = group[self._order], time[self._order]
        self._first = np.flatnonzero(np.append(True, (group[1:] != group[:-1]) | (time[1:] != time[:-1])))
        self.group, self.time = group[self._first], time[self._first]

    def sums(self, amounts: list[Index]) -> Index:
        """What the amounts at each point add up to."""
        total: Index = np.add.reduceat(np.concatenate(amounts)[self._order], self._first)
        return total

    def ends(self, change: Index) -> Ticks:
        """The end of the run that starts at each point; the point itself where none does.

        Starts and ends take turns, so the k-th end belongs to the k-th start.
        """
        ends = self.time.copy()
        ends[change > 0] = self.time[change < 0]
        return ends
