"""Rows of user-defined operators: their columns, and the lifetimes that the output policy gives them.

align           a row lives as long as its window, whatever the module said
keep            as the module said; nothing before the window (§III.C)
clip            as the module said, cut to the window; what lies outside is left out
time_bound      as keep; revisions never reach back before what made them (§V.F)
unrestricted    as the module said
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any

import numpy as np
import pyarrow as pa

from recension.core.batch import payload_of, take_rows
from recension.core.errors import RecensionError
from recension.core.events import Event
from recension.core.ticks import BEGINNING, FOREVER
from recension.modules.failures import MISFITS, fits, interval
from recension.modules.members import Window
from recension.modules.module import Stamping
from recension.operators.modules.answers import Rows
from recension.operators.modules.calling import Caller, Given


class Collected:
    """The rows of many windows, as they come."""

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
        for row in self._caller.guarded(lambda: list(given), window, members):
            self._add_row(owner, window, row, members)

    def _add_row(self, owner: int, window: Window, row: Any, members: Given) -> None:
        event = row if isinstance(row, Event) else Event(row, *window)
        if not isinstance(event.payload, Mapping):
            raise self._caller.failure(f"a row is a mapping or an event, not {row!r}", window, members)
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
        try:
            vs, ve = index(event.vs), index(event.ve)
        except TypeError:
            said = f"a lifetime is two whole numbers, not {event.vs!r} and {event.ve!r}"
            raise self._caller.failure(said, window, members) from None
        if self._stamp == "clip":
            vs, ve = max(vs, window.start), min(ve, window.end)
            return (vs, ve) if vs < ve else None
        if vs < window.start and self._stamp != "unrestricted":
            at = interval(Window(vs, ve))
            raise self._caller.failure(
                f"it put a row in the past, at {at}, before its window", window, members
            )
        if vs < BEGINNING or ve <= vs or ve > FOREVER:
            raise self._caller.failure(f"it gave the lifetime {interval(Window(vs, ve))}", window, members)
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
                if not fits(row[field.name], field.type):
                    said = f"it gave {row[field.name]!r} as {field.name!r}, but declares {field.type}"
                    return self._caller.failure(said, window, members)
        raise AssertionError("each row fits, and all together do not")

    def rows(self) -> Rows:
        """All rows, in the order of their windows."""
        self._flush()
        empty = payload_of([], self._schema)
        payload = pa.concat_batches(self._parts) if self._parts else empty
        owner = np.array(self._owner, np.int64)
        return Rows(owner, np.array(self._vs, np.int64), np.array(self._ve, np.int64), payload)


def beside_keys(keys: pa.RecordBatch, rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the keys of their windows first."""
    own = take_rows(keys, rows.owner)
    columns = [*own.columns, *(rows.payload.column(name) for name in schema.names[len(own.columns) :])]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
