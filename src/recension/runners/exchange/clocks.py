"""Clocks: what a step in one shard must know of the rows of all shards, without getting them.

Whoever sends rows marks those that matter to everybody, and sends the marks to every shard. A shard puts them
in order with its own rows, and so knows where it stands before each.

    rows sent         3   9   4   7   12  11      advance_time(2): the CTI after 9 is 7, after 12 it is 10
    to shard 0        3       4       12          4 is late by what the other shard has
    to shard 1            9       7       11
    marks, to both        9           12          3 is not marked: nothing is late by it

Assumes     every row comes with its place among those that were sent together; parts are in the order in
            which `merge_packets` puts them.
Guarantees  before each row: the CTI that the step would have given by then with all rows in one shard, if
            the row is late by it; else one that it is not late by. After all rows: the CTI, or the latest
            time for a step that waits.
State       the latest start of any row, how many rows there were, the time told last.
Cost        a mark for each run of late rows, and one for each part; for each row that starts later than all
            before it if rows of several parts mix by columns of order; for each row if they are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import CTI, EXTERNAL_CTI, EventBatch, Index, Mask, inserts, null_payload
from recension.core.formats.decode import CLOSE
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.advance_time import Pace
from recension.plan.fragments import Clock, Edge
from recension.plan.nodes import AdvanceTime
from recension.runners.exchange.packets import AT, ORDER, Contents, Inflow
from recension.runners.exchange.routing import Router, Shards, path_steps, rows_for, survivors

_NOTHING: Final = pa.schema([])
# The place of a row among all: the number of its part, then its place there.
_PART: Final = 1 << 40
_TIME, _IS_MARK, _PLACE = "time", "is_mark", "place"


class Share(NamedTuple):
    """What one shard gets of rows that are sent together."""

    shard: int
    contents: Contents
    marks: bytes | None


class EdgeSender:
    """Splits what is sent over an edge, and marks what a clock must tell all shards."""

    def __init__(self, edge: Edge, shards: int) -> None:
        self._router = Router(edge.route, edge.origin.schema, shards)
        self._marker = None if edge.clock is None else _Marker(edge.clock)
        self.shards = self._router.shards
        self.has_clock = edge.clock is not None

    def split(
        self,
        events: EventBatch,
        extra: Mapping[str, pa.Array],
        only: int | None = None,
        *,
        by_start: bool = False,
    ) -> Iterator[Share]:
        """For each shard that gets any of it, what it gets; with a clock, for every shard."""
        addressed = self.address(events, extra, by_start=by_start)
        for shard in range(self.shards) if only is None else (only,):
            if (share := addressed.share(events, extra, shard)) is not None:
                yield share

    def address(
        self, events: EventBatch, extra: Mapping[str, pa.Array], *, by_start: bool = False
    ) -> Addressed:
        """Where rows go that are sent together, and what of them all shards must know."""
        marks = None if self._marker is None else self._marker.mark(events, extra)
        return Addressed(self._router.address(events, by_start=by_start), marks)


class Addressed(NamedTuple):
    """Where rows go that are sent together; whoever has all of them can find the share of a shard."""

    shards: Shards | None
    marks: bytes | None

    def share(self, events: EventBatch, extra: Mapping[str, pa.Array], shard: int) -> Share | None:
        """What one shard gets of the rows; None if that is nothing, not even marks."""
        rows = rows_for(self.shards, shard)
        own = events if rows is None else events.take(rows)
        if self.marks is None:
            return Share(shard, Contents(own, _take(extra, rows)), None) if len(own) else None
        at = np.arange(len(events)) if rows is None else rows
        return Share(shard, Contents(own, _take(extra, at) | {AT: pa.array(at)}), self.marks)


def _take(extra: Mapping[str, pa.Array], at: Index | None) -> dict[str, pa.Array]:
    return dict(extra) if at is None else {name: column.take(pa.array(at)) for name, column in extra.items()}


class _Marker:
    """Marks the rows that other shards must know of."""

    def __init__(self, clock: Clock) -> None:
        self._steps = path_steps(clock.path)
        self._pace = _pace_of(clock)

    def mark(self, events: EventBatch, extra: Mapping[str, pa.Array]) -> bytes:
        """The marks of rows that are sent together, as bytes."""
        is_row = (events.kind != CTI) & (events.kind != EXTERNAL_CTI) & (events.kind != CLOSE)
        rows = survivors(self._steps, events, np.flatnonzero(is_row))[0]
        order = {name: column for name, column in extra.items() if name.startswith(ORDER)}
        if order:
            columns = pa.table({name: column.take(pa.array(rows)) for name, column in order.items()})
            rows = rows[_sorted(columns)]
        marked, time = self._choose(events, rows, is_mixed=bool(order))
        columns = {_PLACE: pa.array(marked), _TIME: pa.array(time)} | _take(order, marked)
        return _to_bytes(pa.RecordBatch.from_pydict(columns))

    def _choose(self, events: EventBatch, rows: Index, *, is_mixed: bool) -> tuple[Index, Ticks]:
        """The rows to mark among these, and the time of each."""
        if self._pace is None:
            sync = events.sync()[rows]
            last = int(sync.argmax()) if len(rows) else 0
            return rows[last : last + 1], sync[last : last + 1]
        start = events.vs[rows]
        if self._pace.is_counting:
            return rows, start
        latest = np.maximum.accumulate(start)
        due = self._pace.times(latest)
        is_new = due > np.append(np.int64(BEGINNING), due)[:-1]
        if not is_mixed:
            is_new &= self._is_needed(events, rows, due, is_new)
        return rows[is_new], latest[is_new]

    def _is_needed(self, events: EventBatch, rows: Index, due: Ticks, is_new: Mask) -> Mask:
        """Which new CTIs make a row late that comes before the next one; and the last, for all that follows.

        When a close takes effect is known only where its event is: any may be late.
        """
        fresh = np.flatnonzero(is_new)
        needed = np.zeros(len(rows), np.bool_)
        if not len(fresh):
            return needed
        needed[fresh[-1]] = True
        # Of the CTIs that are new, the last before each row of all that are sent.
        before = np.searchsorted(rows[fresh], np.arange(len(events))) - 1
        follows = before >= 0
        is_late = follows & ((events.sync() < due[fresh[before]]) | (events.kind == CLOSE))
        needed[fresh[before[is_late]]] = True
        return needed


class ClockState(NamedTuple):
    """How far the rows of all shards have got."""

    latest: int = BEGINNING
    rows: int = 0
    time: int = BEGINNING
    """What was told last."""


class ClockReader:
    """Tells a step in one shard what came in all."""

    def __init__(self, clock: Clock) -> None:
        self._pace = _pace_of(clock)

    def read(self, came: Inflow, state: ClockState) -> tuple[Ticks, ClockState]:
        """What the step must know before the rows that came here, and where the clock is after all rows.

        That is how far CTIs are before each row; or the latest time of all.
        """
        marks, own = _in_order(came)
        latest = np.maximum.accumulate(np.maximum(marks.time, state.latest))
        rows = state.rows + len(latest)
        if self._pace is None:
            time, told = latest, latest[-1:]
        else:
            turns = self._pace.is_turn(state.rows + 1 + np.arange(len(latest)))
            time = np.where(turns, self._pace.times(latest), np.int64(BEGINNING))
            time = np.maximum.accumulate(np.maximum(time, state.time))
            told = np.append(np.int64(state.time), time)[np.searchsorted(marks.place, own)]
        if not len(latest):
            return told, state
        return told, ClockState(int(latest[-1]), rows, int(time[-1]))


def told_times(time: Ticks) -> EventBatch:
    """The times before each row as events of a clock."""
    return inserts(time, np.full(len(time), FOREVER), null_payload(len(time), _NOTHING))


def number_rows(events: EventBatch) -> EventBatch:
    """The same events, each with its number, for a step that the times were told to."""
    is_row = (events.kind != CTI) & (events.kind != EXTERNAL_CTI)
    return replace(events, count=np.where(is_row, np.arange(1, len(events) + 1), events.count))


def _pace_of(clock: Clock) -> Pace | None:
    """The pace of CTIs; None: only the latest time matters."""
    step = clock.step
    return Pace(step.delay, step.events, step.interval) if isinstance(step, AdvanceTime) else None


class _Marks(NamedTuple):
    """Marks in the order of all rows."""

    place: Index
    time: Ticks


def _in_order(came: Inflow) -> tuple[_Marks, Index]:
    """The marks of all parts in order, and the places of the rows that came here."""
    marked = [next(iter(pa.ipc.open_stream(pa.py_buffer(marks)))) for marks in came.marks]
    own = [contents.extra[AT] for _, contents in came.parts]
    place = _places([batch.column(_PLACE) for batch in marked])
    time = np.concatenate([np.zeros(0, np.int64), *(batch.column(_TIME).to_numpy() for batch in marked)])
    mine = _places(own)
    names = [name for name in (marked[0].schema.names if marked else []) if name.startswith(ORDER)]
    if names:
        sent = pa.table({name: _chunks(batch.column(name) for batch in marked) for name in names})
        here = pa.table({name: _chunks(part.extra[name] for _, part in came.parts) for name in names})
        rank = _rank(sent, place, here, mine)
        place, mine = rank[: len(place)], rank[len(place) :]
        order = np.argsort(place)
        place, time = place[order], time[order]
    return _Marks(place, time), mine if came.order is None else mine[came.order]


def _places(columns: list[pa.Array]) -> Index:
    parts = [number * _PART + column.to_numpy() for number, column in enumerate(columns)]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _chunks(columns: Iterator[pa.Array]) -> pa.ChunkedArray:
    return pa.chunked_array(list(columns))


def _rank(sent: pa.Table, sent_place: Index, here: pa.Table, place: Index) -> Index:
    """Numbers for marks and rows, by the columns that order them and their places; a row before its mark."""
    is_mark = np.repeat([1, 0], [len(sent_place), len(place)])
    keys = pa.concat_tables([sent, here]).append_column(_PLACE, [pa.array(np.append(sent_place, place))])
    order = _sorted(keys.append_column(_IS_MARK, [pa.array(is_mark)]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank


def _sorted(columns: pa.Table) -> Index:
    keys = [(name, "ascending") for name in columns.column_names]
    order: Index = pc.sort_indices(columns, sort_keys=keys).to_numpy().astype(np.int64)
    return order


def _to_bytes(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())
