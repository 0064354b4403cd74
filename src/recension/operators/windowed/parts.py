"""Aggregates that are made in parts: what a part of the events changes, and the answers for all parts.

    events of part 1 ── PartialSums ──┐
                                      ├── point changes ── WindowedOperator ── answers
    events of part 2 ── PartialSums ──┘

A part passes no answers but what its batch changes at each end point (or window): numbers of events, whole
numbers, high and low parts of float sums. These are differences: the parts are put together by adding them,
and only there are sums stored, shown and taken back. So it does not matter which part an event is in.

Assumes     valid physical streams; only aggregates that are sums. The changes of all parts that belong
            together come in one batch.
Guarantees  after every batch the output is what one operator over all events would show: what a part says of
            floats is exact, numbers of very different sizes in rows of their own. Windows wait for the latest
            start of all parts.
State       none here; the sums are those of `WindowedOperator`.
Cost        a part: O(n log n) in the batch; a row for each end point or window of a group that it touches.
Source      Operator Algorithm Design for Speculative Stream Processing, §3; rulings B9, B15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Index, inserts, new_end, old_end
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.base import Operator, Output
from recension.operators.state.keys import KeyIndex
from recension.operators.windowed.aggregates import Aggregates, AggregateSpec
from recension.operators.windowed.index import WindowIndex
from recension.operators.windowed.steps import PointChanges, point_changes


class PartialSums(Operator):
    """What each batch changes: keys, then ``at, refs, cover, n`` and the lists of ``ints`` and ``floats``.

    A row starts at the latest start that its group has in the batch: so the reader learns how far time has
    come (retracted events have told it before). It never ends.
    """

    shards_share_ctis = True

    def __init__(self, schema: pa.Schema, spec: AggregateSpec, index: WindowIndex) -> None:
        """``index`` says where events lie on the axis of windows; it stays empty."""
        super().__init__(schema)
        self._keys, self._place = spec.keys, index.place
        self._measure, self._pairs = Aggregates(spec, index), spec.count_columns()[1]

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return self._nothing
        group, keys = self._number(batch)
        self._measure.forget_lanes()  # of other batches nothing is known
        amounts = self._measure.contributions(batch, group)
        of, changes = _lanes_as_rows(self._pairs, *point_changes(group, *self._ends(batch), amounts))
        latest = np.full(int(group.max()) + 1, BEGINNING)
        np.maximum.at(latest, group, batch.vs)
        own = [] if keys is None else keys.rows(of).columns
        payload = pa.RecordBatch.from_arrays([*own, *_to_columns(changes)], schema=self.schema)
        return inserts(latest[of], np.full(len(of), FOREVER), payload)

    def _ends(self, batch: EventBatch) -> tuple[Index, Index, Index]:
        """Where each event starts on the axis, where it ended and where it ends now."""
        vs, new = batch.vs, new_end(batch)
        if self._place is not None:
            vs, new = self._place(vs, new)
        if bool((batch.kind == INSERT).all()):
            return vs, vs, new
        old = old_end(batch)
        return vs, old if self._place is None else self._place(batch.vs, old)[1], new

    def _number(self, batch: EventBatch) -> tuple[Index, KeyIndex | None]:
        """The group of each row, numbered anew in each batch."""
        if self._keys is None:
            return np.zeros(len(batch), np.int64), None
        keys = self._keys(batch.payload)
        index = KeyIndex(keys.schema)
        return index.number(keys), index

    def on_cti(self, port: int, t: int) -> Output:
        return self.emit(t)

    def trace(self) -> tuple[int, ...]:
        return ()


def read_changes(batch: EventBatch) -> PointChanges:
    """What the rows of `PartialSums` say; they stand after the keys."""
    *plain, ints, floats = batch.payload.columns[-6:]
    time, refs, cover, n = (column.to_numpy() for column in plain)
    whole, parts = (
        list(np.ascontiguousarray(lists.flatten().to_numpy().reshape(len(time), -1).T))
        for lists in (ints, floats)
    )
    return PointChanges(whole, list(zip(parts[::2], parts[1::2], strict=True)), time, refs, cover, n)


def _lanes_as_rows(size: int, group: Index, changes: PointChanges) -> tuple[Index, PointChanges]:
    """Only the first lane of so many pairs: what others have comes in rows that change nothing else."""
    rows, parts = [np.arange(len(group))], [replace(changes, pairs=changes.pairs[:size])]
    for start in range(size, len(changes.pairs), size):
        lane = changes.pairs[start : start + size]
        at = np.flatnonzero(np.logical_or.reduce([part != 0.0 for pair in lane for part in pair]))
        none = np.zeros(len(at), np.int64)
        pairs = [(high[at], low[at]) for high, low in lane]
        rows.append(at)
        parts.append(PointChanges([none] * len(changes.ints), pairs, changes.time[at], none, none, none))
    return group[np.concatenate(rows)], parts[0] if len(parts) == 1 else _concat(parts)


def _concat(parts: Sequence[PointChanges]) -> PointChanges:
    ints = [[*one.ints, one.time, one.refs, one.cover, one.n] for one in parts]
    *sums, time, refs, cover, n = (np.concatenate(column) for column in zip(*ints, strict=True))
    pairs = [
        (np.concatenate([high for high, _ in pair]), np.concatenate([low for _, low in pair]))
        for pair in zip(*(one.pairs for one in parts), strict=True)
    ]
    return PointChanges(sums, pairs, time, refs, cover, n)


def _to_columns(changes: PointChanges) -> list[pa.Array]:
    plain = [pa.array(column) for column in (changes.time, changes.refs, changes.cover, changes.n)]
    floats = [part for pair in changes.pairs for part in pair]
    size = len(changes.time)
    return [*plain, _to_lists(changes.ints, size, np.int64), _to_lists(floats, size, np.float64)]


def _to_lists(
    columns: list[Index] | list[npt.NDArray[np.float64]], size: int, kind: npt.DTypeLike
) -> pa.Array:
    """Row by row the values of some columns."""
    values = np.stack(columns, axis=1).ravel() if columns else np.zeros(0, kind)
    return pa.ListArray.from_arrays(np.arange(size + 1, dtype=np.int32) * len(columns), values)
