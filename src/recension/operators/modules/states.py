"""The states that an incremental module keeps: one for each window in view, changed by what comes and goes.

A window that comes into view, or that was split or merged, gets its state from all of its members at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from recension.modules.members import Payloads, Window
from recension.operators.modules.contents import EventChanges, WindowContents
from recension.operators.modules.hosting import HostedModule, StateCalls
from recension.operators.modules.members import Members
from recension.operators.modules.panes import Panes
from recension.operators.windowed.events import Placement

_SCHEMA = pa.schema(
    [("group", pa.uint64()), ("low", pa.int64()), ("high", pa.int64()), ("state", pa.large_binary())]
)


class States:
    """The states of one module; ``panes`` if overlapping windows can share them."""

    def __init__(self, hosted: HostedModule, place: Placement | None, panes: Panes | None) -> None:
        self._hosted, self._place, self._panes = hosted, place, panes
        self._calls = StateCalls(hosted)
        self._held: dict[tuple[int, int], tuple[int, Any]] = {}

    def __len__(self) -> int:
        return len(self._held) + (0 if self._panes is None else len(self._panes))

    def compute(
        self, contents: WindowContents, changes: EventChanges | None, gone: list[tuple[int, int]]
    ) -> list[Any]:
        """What the module gives for each window now; ``gone``: windows that were shown and are no longer."""
        for key in gone:
            self._held.pop(key, None)
        if self._panes is not None and changes is not None:
            self._panes.forget_changed(changes)
        keys, highs = contents.identities(), contents.windows.high.tolist()
        held = [self._held.get(key, (None, None)) for key in keys]
        known = np.array([was == high for (was, _), high in zip(held, highs, strict=True)], np.bool_)
        states = [state for _, state in held]
        fresh = np.flatnonzero(~known)
        if len(fresh):
            built = self._build(contents.take(fresh) if len(fresh) < len(keys) else contents)
            for row, state in zip(fresh.tolist(), built, strict=True):
                states[row] = state
        if changes is not None and len(fresh) < len(keys):
            self._change(contents, changes, known, states)
        self._held.update((key, (high, state)) for key, high, state in zip(keys, highs, states, strict=True))
        return self._results(contents, states)

    def recompute(self, contents: WindowContents) -> list[Any]:
        """What the module gave for windows in view when it was last asked."""
        return self._results(contents, [self._held[key][1] for key in contents.identities()])

    def _results(self, contents: WindowContents, states: list[Any]) -> list[Any]:
        given_to = contents.given_to(self._hosted)
        return [self._calls.compute(state, *given_to(row)) for row, state in enumerate(states)]

    def _build(self, contents: WindowContents) -> list[Any]:
        """The states of windows from all of their members."""
        members = contents.members(self._hosted)
        if self._panes is not None:
            return self._panes.states(contents, members)
        given = self._hosted.windows_with_members(contents.windows, members)
        return [self._calls.build(some, window) for window, some in given]

    def _change(self, contents: WindowContents, changes: EventChanges, known: Any, states: list[Any]) -> None:
        goes, comes = changes.by_window(contents.windows, self._place, self._hosted)
        for change, some in ((self._calls.remove, goes), (self._calls.add, comes)):
            table = self._hosted.table(some.payload)
            for row in np.flatnonzero(known & (some.high > some.low)).tolist():
                window = Window(int(contents.windows.start[row]), int(contents.windows.end[row]))
                states[row] = change(states[row], self._slice(table, some, row, window), window)

    def _slice(self, table: Any, some: Members, row: int, window: Window) -> Payloads:
        low, high = int(some.low[row]), int(some.high[row])
        return self._hosted.slice(table, low, high, some.vs[low:high], some.ve[low:high], window)

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

    def snapshot(self) -> pa.Table:
        """The states, as plain values."""
        return _table([(*key, high, self._calls.store(state)) for key, (high, state) in self._held.items()])

    def snapshot_panes(self) -> pa.Table:
        """The states of the panes, likewise."""
        held = {} if self._panes is None else self._panes.held
        return _table([(*key, 0, self._calls.store(state)) for key, state in held.items()])

    def restore(self, windows: pa.Table, panes: pa.Table) -> None:
        """Become what `snapshot` and `snapshot_panes` gave."""
        self._held = {key: (high, state) for key, high, state in self._rows(windows)}
        if self._panes is not None:
            self._panes.held = {key: state for key, _, state in self._rows(panes)}

    def _rows(self, table: pa.Table) -> list[tuple[tuple[int, int], int, Any]]:
        columns = (column.to_pylist() for column in table.columns)
        return [
            ((group, low), high, self._calls.restore(state))
            for group, low, high, state in zip(*columns, strict=True)
        ]


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)
