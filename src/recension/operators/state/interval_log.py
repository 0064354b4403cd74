"""Which intervals of an index were stored when: an interval is known by the number of its row.

A row keeps its number for as long as the index does not number its rows anew. It may be taken away and come
back with another end.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.change_log import Change
from recension.core.sorted_runs import Columns, take_columns
from recension.operators.state.arena import Arena

_GONE: Final = -1


class IntervalLog:
    """``base`` is the version that stored all rows, when they had been numbered anew."""

    def __init__(self, version: int, base: int) -> None:
        self._version, self._base = version, base
        # The version that stored each row, or will store it.
        self._written = Arena({"version": np.int64})
        self._added: list[Columns] = []
        self._removed: list[Columns] = []

    def load(self, rows: Index, versions: Index, numbered: int) -> None:
        """These rows are stored; so many numbers are given."""
        new = np.full(numbered - len(self._written), _GONE)
        self._written.append({"version": new})
        self._written["version"][rows] = versions

    def holds(self, rows: Index) -> Mask:
        """Which rows are there, among them those that have expired."""
        known = rows < len(self._written)
        known[known] = self._written["version"][rows[known]] != _GONE
        return known

    def add(self, columns: Columns, numbered: int) -> None:
        """Intervals came."""
        self.load(columns["row"], np.full(len(columns["row"]), self._version + 1), numbered)
        self._added.append(columns)

    def remove(self, columns: Columns) -> None:
        """Intervals went; their rows, tags and ends."""
        written = self._written["version"]
        is_stored = written[columns["row"]] <= self._version
        written[columns["row"]] = _GONE
        self._removed.append(take_columns(columns, is_stored))

    def forget(self, change: Change) -> None:
        """These rows are gone, and all is stored as of its version."""
        gone = change.gone["row"].to_numpy()
        self._written["version"][gone[gone < len(self._written)]] = _GONE
        self._version, self._base = change.memo["version"], change.memo["base"]

    def take_changes(self, version: int, empty: Columns, expired_until: int) -> Change:
        """See `Logged.take_changes`."""
        none = {name: empty[name] for name in ("row", "tag", "ve")}
        added, removed = _last_of_each([empty, *self._added]), _last_of_each([none, *self._removed])
        there = self.holds(added["row"]) & (added["ve"] > expired_until)
        gone = ~self.holds(removed["row"]) & (removed["ve"] > expired_until)
        self._version, self._added, self._removed = version, [], []
        rows, marks = pa.table(take_columns(added, there)), pa.table(take_columns(removed, gone))
        return Change(rows, marks, memo=self.memo())

    def memo(self) -> dict[str, int]:
        """What is to be known when it is loaded."""
        return {"version": self._version, "base": self._base, "numbered": len(self._written)}

    def find_current(self, change: Change, version: int, expired_until: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        if version < self._base:
            return np.zeros(len(change.rows), np.bool_), np.zeros(len(change.gone), np.bool_)
        is_open = [t["ve"].to_numpy() > expired_until for t in (change.rows, change.gone)]
        rows, gone = change.rows["row"].to_numpy(), change.gone["row"].to_numpy()
        is_latest = self.holds(rows) & (self._written["version"][rows] <= version)
        return is_open[0] & is_latest, is_open[1] & ~self.holds(gone)


def _last_of_each(parts: list[Columns]) -> Columns:
    """Of the rows with one number the last, by number."""
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(columns["row"], kind="stable")
    number = columns["row"][order]
    return take_columns(columns, order[np.append(number[1:] != number[:-1], True)[: len(order)]])
