"""The states that an incremental module keeps: one for each window in view, told what comes and goes.

A window that comes into view, or that was split or merged, gets its state from all of its members at once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from recension.modules.members import Payloads, Window
from recension.modules.module import Incremental
from recension.operators.modules.answers import Hosted
from recension.operators.modules.gathered import Delta, Gathered
from recension.operators.modules.members import Members
from recension.operators.modules.panes import Panes
from recension.operators.modules.telling import Told
from recension.operators.snapshot.events import Place

_SCHEMA = pa.schema(
    [("group", pa.uint64()), ("low", pa.int64()), ("high", pa.int64()), ("state", pa.large_binary())]
)


class States:
    """The states of one module; ``panes`` if overlapping windows can share them."""

    def __init__(self, hosted: Hosted, place: Place | None, panes: Panes | None) -> None:
        self._hosted, self._place, self._panes = hosted, place, panes
        self._told = Told(hosted)
        self._held: dict[tuple[int, int], tuple[int, Any]] = {}

    def __len__(self) -> int:
        return len(self._held) + (0 if self._panes is None else len(self._panes))

    @property
    def _module(self) -> Incremental:
        assert isinstance(self._hosted.module, Incremental)
        return self._hosted.module

    def results(self, gathered: Gathered, delta: Delta | None, gone: list[tuple[int, int]]) -> list[Any]:
        """What the module gives for each window now; ``gone``: windows that were shown and are no longer."""
        for key in gone:
            self._held.pop(key, None)
        if self._panes is not None and delta is not None:
            self._panes.change(delta)
        keys, highs = gathered.places(), gathered.windows.high.tolist()
        held = [self._held.get(key, (None, None)) for key in keys]
        known = np.array([was == high for (was, _), high in zip(held, highs, strict=True)], np.bool_)
        states = [state for _, state in held]
        fresh = np.flatnonzero(~known)
        if len(fresh):
            built = self._built(gathered.at(fresh) if len(fresh) < len(keys) else gathered)
            for row, state in zip(fresh.tolist(), built, strict=True):
                states[row] = state
        if delta is not None and len(fresh) < len(keys):
            self._tell(gathered, delta, known, states)
        self._held.update((key, (high, state)) for key, high, state in zip(keys, highs, states, strict=True))
        return self._computed(gathered, states)

    def again(self, gathered: Gathered) -> list[Any]:
        """What the module gave for windows in view when it was last asked."""
        return self._computed(gathered, [self._held[key][1] for key in gathered.places()])

    def _computed(self, gathered: Gathered, states: list[Any]) -> list[Any]:
        results = []
        given_to = gathered.given_to(self._hosted)
        for row, state in enumerate(states):
            window, members = given_to(row)
            compute = partial(self._module.compute, state, *self._told.timed(window))
            results.append(self._hosted.caller.call(compute, window, members))
        return results

    def _built(self, gathered: Gathered) -> list[Any]:
        """The states of windows from all of their members."""
        members = gathered.members(self._hosted)
        if self._panes is not None:
            return self._panes.states(gathered, members)
        given = self._hosted.given(gathered.windows, members)
        return [self._told.fresh(some, window) for window, some in given]

    def _tell(self, gathered: Gathered, delta: Delta, known: Any, states: list[Any]) -> None:
        goes, comes = delta.pairs(gathered.windows, self._place, self._hosted)
        for tell, some in ((self._told.removed, goes), (self._told.added, comes)):
            table = self._hosted.table(some.payload)
            for row in np.flatnonzero(known & (some.high > some.low)).tolist():
                window = Window(int(gathered.windows.start[row]), int(gathered.windows.end[row]))
                states[row] = tell(states[row], self._slice(table, some, row, window), window)

    def _slice(self, table: Any, some: Members, row: int, window: Window) -> Payloads:
        low, high = int(some.low[row]), int(some.high[row])
        return self._hosted.seen(table, low, high, some.vs[low:high], some.ve[low:high], window)

    def forget(self, closed: int, first_open: int) -> None:
        """Windows that end on the axis by ``closed`` will not be asked for again."""
        self._held = {key: held for key, held in self._held.items() if held[0] > closed}
        if self._panes is not None:
            self._panes.forget(first_open)

    def clear(self) -> None:
        """Forget all windows."""
        self._held = {}
        if self._panes is not None:
            self._panes.clear()

    def to_arrow(self) -> pa.Table:
        """The states, as plain values."""
        return _table([(*key, high, self._told.stored(state)) for key, (high, state) in self._held.items()])

    def panes_to_arrow(self) -> pa.Table:
        """The states of the panes, likewise."""
        held = {} if self._panes is None else self._panes.held
        return _table([(*key, 0, self._told.stored(state)) for key, state in held.items()])

    def load(self, windows: pa.Table, panes: pa.Table) -> None:
        """Become what `to_arrow` and `panes_to_arrow` gave."""
        self._held = {key: (high, state) for key, high, state in self._rows(windows)}
        if self._panes is not None:
            self._panes.held = {key: state for key, _, state in self._rows(panes)}

    def _rows(self, table: pa.Table) -> list[tuple[tuple[int, int], int, Any]]:
        columns = (column.to_pylist() for column in table.columns)
        return [
            ((group, low), high, self._told.restored(state))
            for group, low, high, state in zip(*columns, strict=True)
        ]


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)
