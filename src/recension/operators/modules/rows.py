"""The rows that are put out for windows: collected from what modules give, and kept to be taken back.

The output policy gives the rows of user-defined operators their lifetimes:

align           a row lives as long as its window, whatever the module said
keep            as the module said; nothing before the window (§III.C)
clip            as the module said, cut to the window; what lies outside is left out
time_bound      as keep; revisions never reach back before what made them (§V.F)
unrestricted    as the module said
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, payload_of, take_rows
from recension.core.errors import RecensionError
from recension.core.events import Event
from recension.core.rowhash import Hashes
from recension.core.ticks import Ticks
from recension.core.values import MISFITS, misfit
from recension.modules.failures import interval
from recension.modules.members import Window
from recension.modules.module import Stamping
from recension.operators.base import Chunks
from recension.operators.modules.hosting import Caller, Given
from recension.operators.modules.members import WindowList
from recension.operators.state.live_events import LiveEvents


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that modules gave: ``owner`` is the window of each, ``[vs, ve)`` when it is true."""

    owner: Index
    vs: Ticks
    ve: Ticks
    payload: pa.RecordBatch

    def with_keys(self, keys: pa.RecordBatch, schema: pa.Schema) -> Rows:
        """The rows with the keys of their windows first."""
        own = take_rows(keys, self.owner)
        rest = [self.payload.column(name) for name in schema.names[len(own.columns) :]]
        payload = pa.RecordBatch.from_arrays([*own.columns, *rest], schema=schema)
        return Rows(self.owner, self.vs, self.ve, payload)


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
            at = interval(Window(vs, ve))
            raise self._caller.failure(
                f"it put a row in the past, at {at}, before its window", window, members
            )
        if ve <= vs:
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
                if (reason := misfit(row[field.name], field.type)) is not None:
                    given = f"it gave {row[field.name]!r} as {field.name!r}, but declares {field.type}"
                    said = f"{given}: {reason}"
                    return self._caller.failure(said, window, members)
        raise AssertionError("each row fits, and all together do not")

    def rows(self) -> Rows:
        """All rows, in the order of their windows."""
        self._flush()
        empty = payload_of([], self._schema)
        payload = pa.concat_batches(self._parts) if self._parts else empty
        owner = np.array(self._owner, np.int64)
        return Rows(owner, np.array(self._vs, np.int64), np.array(self._ve, np.int64), payload)


class KeptRows:
    """What is shown for each window, by its place on the axis: its group and where it begins.

    A window is dropped when it is closed.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._held = LiveEvents(schema, ("start", "end"))

    def __len__(self) -> int:
        return self._held.live()

    def take(self, windows: WindowList, group: Hashes) -> Rows:
        """The rows of these windows, which are no longer kept."""
        asked, at = self._held.overlapping(group, windows.low, windows.low + 1)
        own = np.flatnonzero(self._held.column("vs", at) == windows.low[asked])
        asked, at = asked[own], at[own]
        start, end = (self._held.column(name, at) for name in ("start", "end"))
        rows = Rows(asked, start, end, self._held.payload(at))
        self._held.remove(at)
        return rows

    def put(self, windows: WindowList, group: Hashes, rows: Rows) -> None:
        """Keep the rows of these windows, but of those that are closed already."""
        owner = rows.owner
        open_ = np.flatnonzero(windows.high[owner] > self._held.frontier)
        at: Index = owner[open_]
        payload = rows.payload.take(pa.array(open_)) if rows.payload.num_columns else rows.payload
        tag = np.zeros(len(at), np.uint64)
        lifetime = {"start": rows.vs[open_], "end": rows.ve[open_]}
        self._held.insert(group[at], windows.low[at], windows.high[at], tag, payload, **lifetime)

    def forget(self, closed: int) -> None:
        """Windows that end on the axis by then are closed."""
        self._held.expire(closed)

    def nbytes(self) -> int:
        """Memory taken."""
        return self._held.nbytes()

    def snapshot(self) -> Chunks:
        """The rows as named Arrow tables."""
        return self._held.snapshot("shown")

    def restore(self, chunks: Chunks) -> None:
        """Become what `snapshot` gave."""
        self._held.restore("shown", chunks)
