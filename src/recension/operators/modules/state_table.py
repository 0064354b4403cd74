"""States by group and place, stored by their changes.

A state has no numbers to compare it by, so that the table knows which version stored each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Mask
from recension.core.change_log import Change
from recension.operators.modules.hosting import StateCalls

_SCHEMA = pa.schema(
    [("group", pa.uint64()), ("low", pa.int64()), ("high", pa.int64()), ("state", pa.large_binary())]
)
StateKey: TypeAlias = tuple[int, int]


class StateTable:
    """What is held for each key: where it ends on the axis, and the state."""

    key: Final = ("group", "low")

    def __init__(self, calls: StateCalls) -> None:
        self._calls = calls
        self.clear()

    def clear(self) -> None:
        """Forget all states."""
        self._held: dict[StateKey, tuple[int, Any]] = {}
        # The version that stored each state, or will store it; None: none was stored.
        self._written: dict[StateKey, int] | None = None
        self._changed: set[StateKey] = set()
        self._version = 0

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: StateKey) -> tuple[int | None, Any]:
        """The end and the state of a key; None and nothing if it has none."""
        return self._held.get(key, (None, None))

    def set(self, key: StateKey, high: int, state: Any) -> None:
        """The state of a key is new, or has changed."""
        self._held[key] = high, state
        if self._written is not None:
            self._written[key] = self._version + 1
            self._changed.add(key)

    def remove(self, keys: Iterable[StateKey]) -> None:
        """Forget the states of keys, if they have any."""
        for key in keys:
            if self._held.pop(key, None) is not None and self._written is not None:
                del self._written[key]
                self._changed.add(key)

    def remove_where(self, is_past: Callable[[StateKey, int], bool]) -> None:
        """Forget some, by their keys and ends."""
        self.remove([key for key, (high, _) in self._held.items() if is_past(key, high)])

    def snapshot(self) -> pa.Table:
        """The states, as plain values."""
        return self._to_table(self._held)

    def _to_table(self, keys: Iterable[StateKey]) -> pa.Table:
        held = ((key, self._held[key]) for key in keys)
        rows = [(*key, high, self._calls.store(state)) for key, (high, state) in held]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(_SCHEMA)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=_SCHEMA)

    def restore(self, table: pa.Table | Change) -> None:
        """Become what `snapshot` gave, or take over changes."""
        if not isinstance(table, Change):
            self.clear()
            self._add(table)
            return
        if table.is_whole:
            self.clear()
        self._add(table.rows)
        self.remove(_keys(table.gone))
        self._note_stored(table)

    def _add(self, rows: pa.Table) -> None:
        highs, states = (rows[name].to_pylist() for name in ("high", "state"))
        for key, high, state in zip(_keys(rows), highs, states, strict=True):
            self._held[key] = high, self._calls.restore(state)

    def _note_stored(self, change: Change) -> None:
        assert change.versions is not None
        self._written = {} if self._written is None else self._written
        self._written.update(zip(_keys(change.rows), change.versions.tolist(), strict=True))
        self._changed, self._version = set(), change.memo["version"]

    def take_changes(self, version: int) -> Change:
        """See `Logged.take_changes`."""
        is_whole = self._written is None
        if self._written is None:
            self._written, self._changed = dict.fromkeys(self._held, version), set(self._held)
        changed, self._changed, self._version = sorted(self._changed), set(), version
        gone = [key for key in changed if key not in self._held]
        arrays = [np.array([key[i] for key in gone], kind) for i, kind in enumerate((np.uint64, np.int64))]
        marks = pa.table(arrays, list(self.key))
        rows = self._to_table(key for key in changed if key in self._held)
        return Change(rows, marks, is_whole, {"version": version})

    def find_current(self, change: Change, version: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        written = self._written or {}
        rows = [written.get(key, version + 1) <= version for key in _keys(change.rows)]
        gone = [key not in written for key in _keys(change.gone)]
        return np.array(rows, np.bool_), np.array(gone, np.bool_)


def _keys(rows: pa.Table) -> Iterator[StateKey]:
    return zip(*(rows[name].to_pylist() for name in StateTable.key), strict=True)
