"""The output of a query: a physical stream, and its history."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from recension.core import frames
from recension.core.batch import EventBatch, concat, empty
from recension.core.errors import RecensionError, StreamError, TimeError
from recension.core.events import Element
from recension.core.formats.columns import KIND, TimeColumns, layout_of
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.formats.stream_files import sort_rows
from recension.core.history import History, show_changes
from recension.core.pictures import MOST, RetractedParts, draw, history_html, plot
from recension.core.reconstitution import reconstitute
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.time_kind import TICKS, merge_kinds
from recension.gate.gate import Gate
from recension.gate.readings import Reading
from recension.plan.properties import NOTHING_KNOWN, Properties
from recension.plan.source import Source

if TYPE_CHECKING:
    from recension.runners.metrics import Metrics


@dataclass(frozen=True, repr=False)
class Result:
    """The output of a run, or of a session since the last read. Results of one query can be added."""

    batches: list[EventBatch]
    schema: pa.Schema
    properties: Properties
    time_type: pa.DataType = field(default_factory=pa.int64)
    dropped: dict[str, list[tuple[str, EventBatch]]] = field(default_factory=dict)
    reading: Reading = field(default=Reading(), compare=False)
    """Which part of a session's answer it is."""
    measure: Callable[[], list[Metrics]] = field(default=list, compare=False)
    """Gives `metrics` when they are first asked for."""

    @property
    def is_whole(self) -> bool:
        """Does it begin with the stream's first element? A later result of a session does not."""
        return self.reading.is_whole

    @cached_property
    def metrics(self) -> list[Metrics]:
        """What every operator had done when this was read.

        Some numbers are expensive (rows and bytes of state, all dropped elements, the states of a merge's
        inputs). They are computed when this is first asked for, from the session as it is then. To get them
        as of the read, ask before you push more.
        """
        return self.measure()

    def __getstate__(self) -> dict[str, Any]:
        """For pickling, without the session that gave it."""
        return {**self.__dict__, "metrics": self.metrics, "measure": list}

    def __repr__(self) -> str:
        return f"<Result of {sum(map(len, self.batches)):,} elements: {', '.join(self.schema.names)}>"

    def elements(self) -> list[Element]:
        """The physical stream as Python values."""
        return [element for batch in self.batches for element in batch.to_elements(self.time_type)]

    def batch(self) -> EventBatch:
        """The physical stream as one batch."""
        return concat(self.batches) if self.batches else empty(self.schema)

    def history(self) -> History:
        """The canonical history: what remains when every retraction is applied.

        For a later result of a session, it is the history of its own elements alone.
        """
        try:
            found = reconstitute(self.batches, self.schema)
        except StreamError as why:
            if self.is_whole:
                raise
            raise StreamError(
                f"{why.reason}: this result follows an earlier one, which has that event; use "
                "session.history(), or add the results up: (first + second).history()"
            ) from None
        return replace(found, time_type=self.time_type)

    def __add__(self, later: Result) -> Result:
        """This result and the next one of the same query, as one result.

        The results of a session must follow each other; empty ones may be skipped.

        >>> import recension as rc
        >>> s = rc.source("s", {"x": "int64"})
        >>> live = rc.session(s)
        >>> live.push("s", [rc.Insert({"x": 1}, 0, 9)])
        >>> first = live.read()
        >>> live.push("s", [rc.Retract({"x": 1}, 0, 9, 5)])
        >>> (first + live.read()).show()
        _vs  _ve  x
        0    5    1
        """
        if not isinstance(later, Result):
            return NotImplemented
        if not self.schema.equals(later.schema):
            raise RecensionError(
                f"results of one query add up: one has the columns {self.schema.names}, the other "
                f"{later.schema.names}"
            )
        reading = later.reading.follow(self.reading)
        dropped = {where: [*elements] for where, elements in self.dropped.items()}
        for where, elements in later.dropped.items():
            dropped.setdefault(where, []).extend(elements)
        time_type = _merged_times(self, later)
        batches = [*self.batches, *later.batches]
        return replace(
            later,
            batches=batches,
            time_type=time_type,
            dropped=dropped,
            reading=reading,
            measure=lambda: later.metrics,
        )

    @staticmethod
    def concat(results: Iterable[Result]) -> Result:
        """Several results of one query, in the order in which they were read, as one."""
        several = list(results)
        if not several:
            raise RecensionError("concat needs at least one result")
        return reduce(Result.__add__, several)

    def to_arrow(self) -> pa.Table:
        """The physical stream as a table with control columns."""
        columns = stream_schema(self.schema, self.time_type)
        return pa.Table.from_batches([stream_rows(batch, columns) for batch in self.batches], columns)

    def to_pandas(self) -> Any:
        """The physical stream as a pandas frame, in nullable types."""
        return frames.to_pandas(self.to_arrow())

    def to_polars(self) -> Any:
        """The physical stream as a polars frame."""
        return frames.to_polars(self.to_arrow())

    @staticmethod
    def from_arrow(table: pa.Table) -> Result:
        """A result from a table with control columns, as `to_arrow` gives it; it must be a valid stream."""
        table = frames.arrow_table(table, "Result.from_arrow")
        if KIND not in table.column_names:
            raise RecensionError("a result needs a column _kind; a table without one is a history")
        layout = layout_of(table.schema, TimeColumns(), "result")
        # A later reading of a session retracts events that an earlier one has.
        gate = Gate(Source("result", layout.payload), check_orphans=False)
        batches = [gate.admit(gate.judge(rows)) for rows in sort_rows(table).to_batches()]
        return Result(batches, layout.payload, NOTHING_KNOWN, layout.time_type)

    @staticmethod
    def from_pandas(frame: Any) -> Result:
        """A result from a pandas frame with control columns, as `to_pandas` gives it."""
        return Result.from_arrow(frames.table_of(frame, "result"))

    @staticmethod
    def from_polars(frame: Any) -> Result:
        """A result from a polars frame with control columns, as `to_polars` gives it."""
        return Result.from_arrow(frames.table_of(frame, "result"))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """For libraries that take Arrow: the table of `to_arrow`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def plot(self, ax: Any = None, *, lanes: str | None = None, most: int = MOST) -> Any:
        """Draw its history on matplotlib axes, with its retractions and how far it is final.

        Like `History.plot`; a later result of a session has no history of its own and is refused.

        >>> import matplotlib; matplotlib.use("agg")
        >>> import recension as rc
        >>> s = rc.source("s", {"user": "string"})
        >>> out = rc.run(s, {"s": [rc.Insert({"user": "ann"}, 1, 9), rc.Retract({"user": "ann"}, 1, 9, 5)]})
        >>> len(out.plot().containers)
        3
        """
        return plot(draw(self.history(), self._retracted_parts(), lanes=lanes, most=most), ax)

    def _retracted_parts(self) -> RetractedParts:
        return RetractedParts.of(self.batch(), self.time_type)

    def _repr_html_(self) -> str:
        """For notebooks: the timeline and the first events; for a later result of a session, the changes."""
        if self.is_whole:
            return history_html(self.history(), self._retracted_parts())
        return f"<pre>{escape(show_changes(self.batch(), 20, self.time_type))}</pre>"

    def show(self, rows: int = 20) -> None:
        """Print the history as a table; for a later result of a session, the changes."""
        if self.is_whole:
            self.history().show(rows)
        else:
            print(show_changes(self.batch(), rows, self.time_type))


def _merged_times(one: Result, other: Result) -> pa.DataType:
    """How both write times; one without times, read before anything was pushed, does not know."""
    kinds = [None if _is_timeless(result) else result.time_type for result in (one, other)]
    try:
        kind = merge_kinds(*kinds)
    except TimeError as why:
        raise TimeError(f"results of one query add up: {why}") from None
    return TICKS if kind is None else kind


def _is_timeless(result: Result) -> bool:
    """Ticks is also what a result says before a session has seen a time."""
    return pa.types.is_int64(result.time_type) and not any(map(_has_times, result.batches))


def _has_times(batch: EventBatch) -> bool:
    """Is there a time that is not an end of time?"""
    return any(
        bool(((times > BEGINNING) & (times < FOREVER)).any()) for times in (batch.vs, batch.ve, batch.new_ve)
    )
