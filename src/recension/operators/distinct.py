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

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, empty, new_end, old_end
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.base import Chunks, Operator, Output
from recension.operators.changes import changes, order_of_changes
from recension.operators.parts import SpanRevision, Spans, flip
from recension.operators.state.end_points import EndPoints
from recension.operators.state.leaf_table import LeafTable
from recension.operators.windowed.steps import NOTHING, axis_steps
from recension.operators.windowed.working_set import WorkingSet, merge_steps, state_columns


class Distinct(Operator):
    """Keys are the whole payload, or what ``keys`` makes of it; the output schema is that of the keys."""

    changes_on_cti = False
    shards_share_ctis = True
    is_all_rows = True

    def __init__(
        self, schema: pa.Schema, keys: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    ) -> None:
        super().__init__(schema)
        self._keys = keys
        self._points = EndPoints(state_columns(0, 0), schema)
        self._runs = _Runs()

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        keys = batch.payload if self._keys is None else self._keys(batch.payload)
        group = self._points.number(keys, len(batch))
        steps = axis_steps(group, batch.vs, old_end(batch), new_end(batch), NOTHING)
        work = merge_steps(self._points, steps)
        work.write_back(self._points)
        return self._change_runs(work)

    def _change_runs(self, work: WorkingSet) -> EventBatch:
        """Where events began or ceased to cover a stretch between two end points, runs change."""
        rows = (work.is_changed & ((work.old.n > 0) != (work.new.n > 0))).nonzero()[0]
        if not len(rows):
            return empty(self.schema)
        changed = self._runs.flip(Spans(work.group[rows], work.time[rows], work.time[rows + 1]))
        order = order_of_changes(changed.start, changed.old, changed.new)
        start, old, new = (column[order] for column in (changed.start, changed.old, changed.new))
        return changes(start, old, new, self._points.keys_of(changed.owner[order]))

    def on_cti(self, port: int, t: int) -> Output:
        if t == FOREVER:
            self._points.clear()
            self._runs.clear()
            return self.emit(t)
        groups = self._points.forget_before(t)
        if len(groups):
            self._runs.forget_before(groups, t)
        if self._points.retire():
            self._runs.clear()
        return self.emit(t)

    def state_rows(self) -> int:
        return len(self._points) + len(self._runs)

    def state_bytes(self) -> int:
        return self._points.nbytes() + self._runs.nbytes()

    def snapshot_state(self) -> Chunks:
        return {**self._points.snapshot(), "runs": self._runs}

    def restore_state(self, chunks: Chunks) -> None:
        self._points.restore(chunks)
        self._runs.restore(chunks["runs"])


class _Runs(LeafTable):
    """For each group the maximal stretches of time that are covered; they neither overlap nor meet."""

    def __init__(self) -> None:
        super().__init__({"end": np.int64})

    def flip(self, stretches: Spans) -> SpanRevision:
        """Cover stretches that were not covered, and uncover those that were; they are sorted."""
        extract = self.extract(stretches.owner, stretches.start, stretches.end)
        own = (extract.columns[name][~extract.follower] for name in ("group", "time", "end"))
        runs, revision = flip(Spans(*own), stretches)
        columns = {"group": runs.owner, "time": runs.start, "end": runs.end}
        self.replace(extract, columns)
        return revision

    def forget_before(self, groups: Index, t: int) -> None:
        """Drop those groups' runs that ended before ``t``; one that ends at ``t`` can still grow."""
        extract = self.extract(groups, np.full(len(groups), BEGINNING), np.full(len(groups), t))
        self.forget(extract, ~extract.follower & (extract.columns["end"] < t))
