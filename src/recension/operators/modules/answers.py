"""What modules answer for windows: named values, one row a window, or the rows of one operator.

The output policy gives the rows of user-defined operators their lifetimes:

align           a row lives as long as its window, whatever the module gives
keep            as the module gives it; nothing before the window (§III.C)
clip            as the module gives it, cut to the window; what lies outside is dropped
time_bound      as keep; revisions never reach back before what made them (§V.F)
unrestricted    as the module gives it
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, payload_of, take_rows
from recension.core.errors import RecensionError
from recension.core.events import Event
from recension.core.ticks import Ticks
from recension.core.values import MISFITS, describe_misfit
from recension.modules.calls import describe_interval
from recension.modules.members import Window
from recension.modules.module import Stamping
from recension.operators.modules.contents import EventChanges, WindowContents
from recension.operators.modules.hosting import Caller, Given, HostedModule
from recension.operators.modules.states import States
from recension.operators.windowed import double_double as dd
from recension.operators.windowed.accumulators import OVERFLOWS, Accumulator, overflow_error
from recension.operators.windowed.aggregates import Aggregation
from recension.operators.windowed.events import CoveringEvents
from recension.operators.windowed.selections import Selection

WindowKeys: TypeAlias = list[tuple[int, int]]
"""Windows that were shown and are no longer."""


class ModuleAnswers(ABC):
    """Makes the output rows of windows; ``states`` are those its incremental modules keep."""

    def __init__(self, schema: pa.Schema, states: Sequence[States]) -> None:
        self.schema, self.states = schema, list(states)

    @abstractmethod
    def compute(
        self, contents: WindowContents, keys: pa.RecordBatch, changes: EventChanges | None, gone: WindowKeys
    ) -> ModuleRows:
        """The rows of windows as they are now."""

    @abstractmethod
    def recompute(self, contents: WindowContents, keys: pa.RecordBatch) -> ModuleRows:
        """The rows of windows as they were shown, made again."""


class NamedValues(ModuleAnswers):
    """One row a window, as long as the window."""

    def __init__(self, schema: pa.Schema, values: Sequence[Value]) -> None:
        super().__init__(schema, [value.states for value in values if isinstance(value, StateValues)])
        self._values = list(values)

    def compute(
        self, contents: WindowContents, keys: pa.RecordBatch, changes: EventChanges | None, gone: WindowKeys
    ) -> ModuleRows:
        return self._rows(contents, keys, lambda value: value.compute(contents, changes, gone))

    def recompute(self, contents: WindowContents, keys: pa.RecordBatch) -> ModuleRows:
        return self._rows(contents, keys, lambda value: value.recompute(contents))

    def _rows(
        self, contents: WindowContents, keys: pa.RecordBatch, compute: Callable[[Value], pa.Array]
    ) -> ModuleRows:
        columns = []
        for name, value in zip(self.schema.names[keys.num_columns :], self._values, strict=True):
            try:
                columns.append(compute(value))
            except OVERFLOWS as why:
                raise overflow_error(why, name, lambda row: keys.slice(row, 1)) from None
        payload = pa.RecordBatch.from_arrays([*keys.columns, *columns], schema=self.schema)
        windows = contents.windows
        return ModuleRows(np.arange(len(windows)), windows.start, windows.end, payload)


class OperatorRows(ModuleAnswers):
    """Any number of rows a window, with the lifetimes that the policy gives them."""

    def __init__(
        self, schema: pa.Schema, keys: int, hosted: HostedModule, stamp: Stamping, states: States | None
    ) -> None:
        super().__init__(schema, [] if states is None else [states])
        self.hosted, self._stamp = hosted, stamp
        self._own = pa.schema(list(schema)[keys:])

    def compute(
        self, contents: WindowContents, keys: pa.RecordBatch, changes: EventChanges | None, gone: WindowKeys
    ) -> ModuleRows:
        if not self.states:
            return self.recompute(contents, keys)
        return self._collect(contents, keys, self.states[0].compute(contents, changes, gone))

    def recompute(self, contents: WindowContents, keys: pa.RecordBatch) -> ModuleRows:
        if self.states:
            return self._collect(contents, keys, self.states[0].recompute(contents))
        collector = RowCollector(self._own, self._stamp, self.hosted.caller)
        given = self.hosted.windows_with_members(contents.windows, contents.members(self.hosted))
        for row, (window, members) in enumerate(given):
            collector.add(row, window, self.hosted.compute(window, members), members)
        return collector.rows().with_keys(keys, self.schema)

    def _collect(self, contents: WindowContents, keys: pa.RecordBatch, results: list[object]) -> ModuleRows:
        collector = RowCollector(self._own, self._stamp, self.hosted.caller)
        members_for = contents.members_for(self.hosted)
        for row, answer in enumerate(results):
            window, members = members_for(row)
            collector.add(row, window, answer, members)
        return collector.rows().with_keys(keys, self.schema)


class Value(ABC):
    """One value a window."""

    def compute(self, contents: WindowContents, changes: EventChanges | None, gone: WindowKeys) -> pa.Array:
        """The value of each window; computed from the changes, if states are kept."""
        return self.recompute(contents)

    @abstractmethod
    def recompute(self, contents: WindowContents) -> pa.Array:
        """The value of each window from all that is known of it."""


class BuiltIn(Value):
    """A built-in aggregate in a query that has modules too."""

    def __init__(self, aggregation: Aggregation) -> None:
        self._argument: Callable[[pa.RecordBatch], pa.Array] | None = aggregation.argument
        self._measure = aggregation.measure

    def recompute(self, contents: WindowContents) -> pa.Array:
        events = contents.events
        values = None if self._argument is None else self._argument(events.payload)
        if isinstance(self._measure, Selection):
            return self._measure.result(events, values)
        assert isinstance(self._measure, Accumulator)
        return self._sum(self._measure, events, values)

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
        return self._hosted.to_array(values, self._kind, contents.members_for(self._hosted))


class StateValues(Value):
    """An incremental module."""

    def __init__(self, hosted: HostedModule, kind: pa.DataType, states: States) -> None:
        self._hosted, self._kind, self.states = hosted, kind, states

    def compute(self, contents: WindowContents, changes: EventChanges | None, gone: WindowKeys) -> pa.Array:
        return self._to_array(contents, self.states.compute(contents, changes, gone))

    def recompute(self, contents: WindowContents) -> pa.Array:
        return self._to_array(contents, self.states.recompute(contents))

    def _to_array(self, contents: WindowContents, values: list[Any]) -> pa.Array:
        return self._hosted.to_array(values, self._kind, contents.members_for(self._hosted))


@dataclass(frozen=True, slots=True)
class ModuleRows:
    """Rows that modules gave: ``owner`` is the window of each, ``[vs, ve)`` when it is true."""

    owner: Index
    vs: Ticks
    ve: Ticks
    payload: pa.RecordBatch

    def with_keys(self, keys: pa.RecordBatch, schema: pa.Schema) -> ModuleRows:
        """The rows with the keys of their windows first."""
        own = take_rows(keys, self.owner)
        rest = [self.payload.column(name) for name in schema.names[len(own.columns) :]]
        payload = pa.RecordBatch.from_arrays([*own.columns, *rest], schema=schema)
        return ModuleRows(self.owner, self.vs, self.ve, payload)


class RowCollector:
    """The rows of many windows, as modules give them."""

    def __init__(self, schema: pa.Schema, stamp: Stamping, caller: Caller) -> None:
        self._schema, self._stamp, self._caller = schema, stamp, caller
        self._owner: list[int] = []
        self._vs: list[int] = []
        self._ve: list[int] = []
        self._parts: list[pa.RecordBatch] = []
        self._rows: list[Mapping[str, Any]] = []
        self._of: list[tuple[Window, Given]] = []

    def add(self, owner: int, window: Window, given: Any, members: Given) -> None:
        """What the module gave for a window."""
        if hasattr(given, "__arrow_c_stream__") or isinstance(given, pa.RecordBatch):
            self._add_table(owner, window, given, members)
            return
        if isinstance(given, Mapping | str) or not isinstance(given, Iterable):
            raise self._caller.failure(f"it gives rows, not {given!r}", window, members)
        for row in self._caller.call_once(lambda: list(given), window, members):
            self._add_row(owner, window, row, members)

    def _add_row(self, owner: int, window: Window, row: Any, members: Given) -> None:
        if not isinstance(row, Event | Mapping):
            raise self._caller.failure(f"a row is a mapping or an event, not {row!r}", window, members)
        event = row if isinstance(row, Event) else Event(row, *window)
        lifetime = self._lifetime(event, window, members)
        if lifetime is None:
            return
        if missing := [name for name in self._schema.names if name not in event.payload]:
            raise self._caller.failure(
                f"the row {dict(event.payload)} has no {missing[0]!r}", window, members
            )
        self._owner.append(owner)
        self._vs.append(lifetime[0])
        self._ve.append(lifetime[1])
        self._rows.append(event.payload)
        self._of.append((window, members))

    def _lifetime(self, event: Event, window: Window, members: Given) -> tuple[int, int] | None:
        if self._stamp == "align":
            return window
        vs, ve = int(event.vs), int(event.ve)
        if self._stamp == "clip":
            vs, ve = max(vs, window.start), min(ve, window.end)
            return (vs, ve) if vs < ve else None
        if vs < window.start and self._stamp != "unrestricted":
            at = describe_interval(Window(vs, ve))
            raise self._caller.failure(
                f"it put a row in the past, at {at}, before its window", window, members
            )
        if ve <= vs:
            raise self._caller.failure(
                f"it gave the lifetime {describe_interval(Window(vs, ve))}", window, members
            )
        return vs, ve

    def _add_table(self, owner: int, window: Window, given: Any, members: Given) -> None:
        self._flush()
        try:
            table = pa.table(given).select(self._schema.names).cast(self._schema).combine_chunks()
        except (pa.ArrowException, KeyError, ValueError) as why:
            raise self._caller.failure(str(why).splitlines()[0], window, members) from None
        self._parts += table.to_batches()
        self._owner += [owner] * table.num_rows
        self._vs += [window.start] * table.num_rows
        self._ve += [window.end] * table.num_rows

    def _flush(self) -> None:
        if self._rows:
            try:
                self._parts.append(payload_of(self._rows, self._schema))
            except MISFITS:
                raise self._misfit() from None
            self._of = []
            self._rows = []

    def _misfit(self) -> RecensionError:
        """Which of the rows has a value that is not of the declared type?"""
        for (window, members), row in zip(self._of, self._rows, strict=True):
            for field in self._schema:
                if (reason := describe_misfit(row[field.name], field.type)) is not None:
                    given = f"it gave {row[field.name]!r} as {field.name!r}, but declares {field.type}"
                    return self._caller.failure(f"{given}: {reason}", window, members)
        raise AssertionError("each row fits, and all together do not")

    def rows(self) -> ModuleRows:
        """All rows, in the order of their windows."""
        self._flush()
        empty = payload_of([], self._schema)
        payload = pa.concat_batches(self._parts) if self._parts else empty
        owner = np.array(self._owner, np.int64)
        return ModuleRows(owner, np.array(self._vs, np.int64), np.array(self._ve, np.int64), payload)
