"""What all aggregates keep, whatever their windows are: groups, sums, events, and how far time has come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Index
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.base import Chunks, Operator
from recension.operators.snapshot.emission import Results
from recension.operators.snapshot.events import EventsOfGroups, Place
from recension.operators.snapshot.measures import Aggregation, Measures
from recension.operators.snapshot.selections import FunctionError
from recension.operators.snapshot.views import Variant
from recension.operators.snapshot.working_set import Side, WorkingSet, state_columns
from recension.operators.state.end_points import EndPoints
from recension.operators.state.time_queue import TimeQueue

Kept = TypeVar("Kept", bound=EndPoints)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of an aggregate, whatever its windows are; without ``keys`` it is not grouped.

    ``breaks_ties`` says that some aggregate depends on the order of events that begin together, which the
    ends decide: then a moved end can change the past back to the start of the event, and CTIs must wait.
    """

    schema: pa.Schema
    input_schema: pa.Schema
    aggregations: Sequence[Aggregation]
    variant: Variant
    keys: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    key_schema: pa.Schema | None = None
    breaks_ties: bool = False


class GroupedAggregate(Operator, Generic[Kept]):
    """Keeps ``points`` with the sums that hold there, and the events for aggregates that are not sums.

    ``place`` puts lifetimes on another axis than that of time.
    """

    def __init__(self, asked: Asked, points: type[Kept], place: Place | None = None) -> None:
        super().__init__(asked.schema)
        self._keys, self._breaks_ties = asked.keys, asked.breaks_ties
        self._measures = Measures(asked.schema, asked.aggregations)
        columns = state_columns(self._measures.ints, self._measures.pairs)
        self._points = points(columns, pa.schema([]) if asked.key_schema is None else asked.key_schema)
        self._events = EventsOfGroups(asked.input_schema, place) if self._measures.needs_events else None
        self._upcoming = TimeQueue()
        self._watermark = BEGINNING

    def _groups(self, batch: EventBatch) -> Index:
        """The group of each element."""
        keys = pa.record_batch([]) if self._keys is None else self._keys(batch.payload)
        return self._points.number(keys, len(batch))

    def _watermark_after(self, batch: EventBatch) -> int:
        """The greatest start or CTI seen once this batch is taken in; retractions do not move it (B9)."""
        return max(self._watermark, int(batch.vs[batch.kind == INSERT].max(initial=BEGINNING)))

    def _remember(self, batch: EventBatch, group: Index) -> None:
        if self._events is not None:
            self._events.take(batch, self._points.group_hash(group))

    def _settled(self, t: int, limit: int) -> int:
        """``limit``, or where the first tie is that a change after ``t`` can still decide otherwise."""
        if self._events is not None and self._breaks_ties:
            return min(limit, self._events.earliest_tie(t))
        return limit

    def _retire_groups(self) -> None:
        if (numbers := self._points.retire()) is not None:
            self._upcoming.renumber(numbers)

    def _forget_all(self) -> None:
        self._points.clear()
        self._upcoming = TimeQueue()
        if self._events is not None:
            self._events.forget_before(FOREVER)

    def trace(self) -> tuple[int, ...] | None:
        return (self._watermark,)

    def state_rows(self) -> int:
        return len(self._points) + (0 if self._events is None else len(self._events))

    def state_bytes(self) -> int:
        events = 0 if self._events is None else self._events.nbytes()
        return self._points.nbytes() + 16 * len(self._upcoming) + events

    def state_chunks(self) -> Chunks:
        events = {} if self._events is None else self._events.to_chunks()
        own = {"upcoming": self._upcoming.to_arrow(), "watermark": pa.table({"t": [self._watermark]})}
        return {**self._points.to_chunks(), **own, **events}

    def load_chunks(self, chunks: Chunks) -> None:
        self._points.load(chunks)
        self._upcoming.load(chunks["upcoming"])
        self._watermark = chunks["watermark"]["t"][0].as_py()
        if self._events is not None:
            self._events.load(chunks)


class StretchAggregate(GroupedAggregate[EndPoints]):
    """An aggregate whose results hold from one end point to the next."""

    def _results(self, work: WorkingSet, side: Side, rows: Index) -> Results:
        events = None
        if self._events is not None:
            events = self._events.covering(self._points.group_hash, work, side, rows)
        try:
            return self._measures.results(self._points.keys_of(work.group[rows]), side, rows, events)
        except FunctionError as why:
            at = rows[why.row]
            raise why.in_window(*self._window(int(work.time[at]), int(side.following[at]))) from why

    def _window(self, low: int, high: int) -> tuple[int, int]:
        """The first window of a stretch of its axis."""
        return low, high

    def _write_back(self, work: WorkingSet, blocks: Index) -> None:
        """Keep what the end points became."""
        keep = work.new.is_point & ~work.is_context
        gone, born = work.old.is_point & ~work.new.is_point, work.born
        self._points.replace(
            blocks, work.columns(keep), (work.group[born], work.time[born]), work.group[gone]
        )

    def _forget_before(self, t: int) -> None:
        self._points.forget_before(t)
        if self._events is not None:
            # An end at t itself may still move, and the snapshot it closes merge with the next.
            self._events.forget_before(t)
        self._retire_groups()
