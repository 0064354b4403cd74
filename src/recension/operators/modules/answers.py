"""What modules and built-in aggregates say of windows, as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Index
from recension.core.ticks import Ticks
from recension.modules.failures import MISFITS, fits
from recension.modules.members import Events, Payloads, Table, Window
from recension.modules.module import Clipping, Module
from recension.operators.modules.calling import Caller, Given
from recension.operators.modules.members import Members, Order
from recension.operators.modules.window_index import WindowList

GivenTo: TypeAlias = Callable[[int], tuple[Window, Given]]
"""The window in a row of a list, and what a module was given of it."""


@dataclass(frozen=True, slots=True)
class Hosted:
    """A module with the names of the stored columns that are its inputs, and what it is to see of time."""

    module: Module
    columns: Sequence[str]
    inputs: pa.Schema
    clip: Clipping
    caller: Caller
    order: Order
    """What matters of the order in which members come."""

    def table(self, payload: pa.RecordBatch) -> Table:
        """The stored columns by the names the module knows."""
        columns = [payload.column(name) for name in self.columns]
        return Table(pa.RecordBatch.from_arrays(columns, schema=self.inputs))

    def given(self, windows: WindowList, members: Members) -> Iterator[tuple[Window, Payloads]]:
        """Each window with what the module sees of its members."""
        table, is_timed = self.table(members.payload), self.module.is_time_sensitive
        bounds = (windows.start, windows.end, members.low, members.high)
        for start, end, low, high in zip(*(column.tolist() for column in bounds), strict=True):
            window = Window(start, end)
            if not is_timed:
                yield window, Payloads(table, low, high)
                continue
            yield window, self.seen(table, low, high, members.vs[low:high], members.ve[low:high], window)

    def seen(self, table: Table, low: int, high: int, vs: Ticks, ve: Ticks, window: Window) -> Payloads:
        """Some rows as the module sees them in a window."""
        if not self.module.is_time_sensitive:
            return Payloads(table, low, high)
        return Events(table, low, high, *clipped(vs, ve, window, self.clip))

    def compute(self, window: Window, members: Payloads) -> Any:
        """What a module that is not incremental gives."""
        timed = (window,) if self.module.is_time_sensitive else ()
        return self.caller.call(lambda: self.module.compute(members, *timed), window, members)


def clipped(vs: Ticks, ve: Ticks, window: Window, clip: Clipping) -> tuple[Ticks, Ticks]:
    """Lifetimes cut to the window on the left, the right, both sides or neither."""
    return (
        np.maximum(vs, window.start) if clip in ("left", "full") else vs,
        np.minimum(ve, window.end) if clip in ("right", "full") else ve,
    )


def as_array(values: list[Any], kind: pa.DataType, hosted: Hosted, given: GivenTo) -> pa.Array:
    """The value of each window as the module gave it, in the declared type."""
    plain = [v.item() if hasattr(v, "item") and getattr(v, "ndim", 0) == 0 else v for v in values]
    try:
        return pa.array(plain, kind)
    except MISFITS:
        bad = next(row for row, value in enumerate(plain) if not fits(value, kind))
    raise hosted.caller.failure(f"it gave {plain[bad]!r}, but declares {kind}", *given(bad))


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that modules gave: ``owner`` is the window of each, ``[vs, ve)`` when it is true."""

    owner: Index
    vs: Ticks
    ve: Ticks
    payload: pa.RecordBatch
