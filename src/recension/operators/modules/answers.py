"""All that is asked of windows together: named values, one row a window, or the rows of one operator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Index
from recension.modules.module import Stamping
from recension.operators import double_double as dd
from recension.operators.modules.contents import EventChanges, WindowContents
from recension.operators.modules.hosting import HostedModule
from recension.operators.modules.rows import RowCollector, Rows
from recension.operators.modules.states import States
from recension.operators.windowed.accumulators import Accumulator, BeyondInt64Error, TooLargeError
from recension.operators.windowed.aggregates import Aggregation
from recension.operators.windowed.events import CoveringEvents
from recension.operators.windowed.selections import Selection

WindowKeys: TypeAlias = list[tuple[int, int]]
"""Windows that were shown and are no longer."""


class Answers(ABC):
    """Makes the output rows of windows; ``states`` are those its incremental modules keep."""

    def __init__(self, schema: pa.Schema, states: Sequence[States]) -> None:
        self.schema, self.states = schema, list(states)

    @abstractmethod
    def compute(
        self, contents: WindowContents, keys: pa.RecordBatch, changes: EventChanges | None, gone: WindowKeys
    ) -> Rows:
        """The rows of windows as they are now."""

    @abstractmethod
    def recompute(self, contents: WindowContents, keys: pa.RecordBatch) -> Rows:
        """The rows of windows as they were shown, made again."""


class NamedValues(Answers):
    """One row a window, as long as the window."""

    def __init__(self, schema: pa.Schema, values: Sequence[Value]) -> None:
        super().__init__(schema, [value.states for value in values if isinstance(value, StateValues)])
        self._values = list(values)

    def compute(
        self, contents: WindowContents, keys: pa.RecordBatch, changes: EventChanges | None, gone: WindowKeys
    ) -> Rows:
        return self._rows(contents, keys, [value.compute(contents, changes, gone) for value in self._values])

    def recompute(self, contents: WindowContents, keys: pa.RecordBatch) -> Rows:
        return self._rows(contents, keys, [value.recompute(contents) for value in self._values])

    def _rows(self, contents: WindowContents, keys: pa.RecordBatch, columns: list[pa.Array]) -> Rows:
        payload = pa.RecordBatch.from_arrays([*keys.columns, *columns], schema=self.schema)
        windows = contents.windows
        return Rows(np.arange(len(windows)), windows.start, windows.end, payload)


class OperatorRows(Answers):
    """Any number of rows a window, with the lifetimes that the policy gives them."""

    def __init__(
        self, schema: pa.Schema, keys: int, hosted: HostedModule, stamp: Stamping, states: States | None
    ) -> None:
        super().__init__(schema, [] if states is None else [states])
        self.hosted, self._stamp = hosted, stamp
        self._own = pa.schema(list(schema)[keys:])

    def compute(
        self, contents: WindowContents, keys: pa.RecordBatch, changes: EventChanges | None, gone: WindowKeys
    ) -> Rows:
        if not self.states:
            return self.recompute(contents, keys)
        return self._collect(contents, keys, self.states[0].compute(contents, changes, gone))

    def recompute(self, contents: WindowContents, keys: pa.RecordBatch) -> Rows:
        if self.states:
            return self._collect(contents, keys, self.states[0].recompute(contents))
        collector = RowCollector(self._own, self._stamp, self.hosted.caller)
        given = self.hosted.windows_with_members(contents.windows, contents.members(self.hosted))
        for row, (window, members) in enumerate(given):
            collector.add(row, window, self.hosted.compute(window, members), members)
        return collector.rows().with_keys(keys, self.schema)

    def _collect(self, contents: WindowContents, keys: pa.RecordBatch, results: list[object]) -> Rows:
        collector = RowCollector(self._own, self._stamp, self.hosted.caller)
        given_to = contents.given_to(self.hosted)
        for row, answer in enumerate(results):
            window, members = given_to(row)
            collector.add(row, window, answer, members)
        return collector.rows().with_keys(keys, self.schema)


class Value(ABC):
    """One value a window."""

    def compute(self, contents: WindowContents, changes: EventChanges | None, gone: WindowKeys) -> pa.Array:
        """The value of each window; from what changed, if states are kept."""
        return self.recompute(contents)

    @abstractmethod
    def recompute(self, contents: WindowContents) -> pa.Array:
        """The value of each window from all that is known of it."""


class BuiltIn(Value):
    """An aggregate of the library, beside modules."""

    def __init__(self, aggregation: Aggregation) -> None:
        self._argument: Callable[[pa.RecordBatch], pa.Array] | None = aggregation.argument
        self._measure = aggregation.measure

    def recompute(self, contents: WindowContents) -> pa.Array:
        events = contents.events
        values = None if self._argument is None else self._argument(events.payload)
        if isinstance(self._measure, Selection):
            return self._measure.result(events, values)
        assert isinstance(self._measure, Accumulator)
        try:
            return self._sum(self._measure, events, values)
        except TooLargeError as why:
            raise OverflowError(
                f"the value {why}, where sums may leave float64; scale the values down"
            ) from None
        except BeyondInt64Error:
            raise OverflowError("a sum does not fit in int64; give the column as float64") from None

    def _sum(self, measure: Accumulator, events: CoveringEvents, values: pa.Array | None) -> pa.Array:
        window, event = events.incidence_in(np.arange(len(events.vs)))
        parts = measure.contributions(values, len(events.vs))
        lengths = np.bincount(window, minlength=events.snapshots)
        ints = [_sums(column[event], lengths) for column in parts.ints]
        pairs = [dd.sums((high[event], low[event]), lengths) for high, low in parts.pairs]
        return measure.result(lengths, ints, pairs)


def _sums(column: Index, lengths: Index) -> Index:
    running = np.append(np.zeros(1, column.dtype), np.cumsum(column))
    ends = np.cumsum(lengths)
    sums: Index = running[ends] - running[ends - lengths]
    return sums


class ModuleValues(Value):
    """A module that is given all members of a window."""

    def __init__(self, hosted: HostedModule, kind: pa.DataType) -> None:
        self._hosted, self._kind = hosted, kind

    def recompute(self, contents: WindowContents) -> pa.Array:
        given = self._hosted.windows_with_members(contents.windows, contents.members(self._hosted))
        values = [self._hosted.compute(*one) for one in given]
        return self._hosted.to_array(values, self._kind, contents.given_to(self._hosted))


class StateValues(Value):
    """An incremental module."""

    def __init__(self, hosted: HostedModule, kind: pa.DataType, states: States) -> None:
        self._hosted, self._kind, self.states = hosted, kind, states

    def compute(self, contents: WindowContents, changes: EventChanges | None, gone: WindowKeys) -> pa.Array:
        return self._to_array(contents, self.states.compute(contents, changes, gone))

    def recompute(self, contents: WindowContents) -> pa.Array:
        return self._to_array(contents, self.states.recompute(contents))

    def _to_array(self, contents: WindowContents, values: list[Any]) -> pa.Array:
        return self._hosted.to_array(values, self._kind, contents.given_to(self._hosted))
