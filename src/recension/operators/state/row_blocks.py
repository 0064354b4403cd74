"""A `BlockTable` whose rows each name a payload, logged by (time, row): together they tell rows apart.

Whoever writes to it says which rows came, changed or went. They are looked up when they are to be stored, so
that it does no harm to name some that did not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.change_log import Change
from recension.core.netting import cancel
from recension.core.rowhash import Hashes, combine
from recension.core.sorted_runs import Columns, take_columns
from recension.operators.state.block_table import BlockTable

_KEY: Final = ("group", "time", "row")


class RowBlocks(BlockTable):
    """Columns of eight bytes, among them ``row``; rows of one group and time are in no certain order."""

    key: Final = ("time", "row")

    def clear(self) -> None:
        super().clear()
        # The keys of rows that may have changed since the last checkpoint; None: all may have.
        self._changed: list[Columns] | None = None

    @property
    def keeps_account(self) -> bool:
        """Does it have to be told what changes?"""
        return self._changed is not None

    def note(self, rows: Mapping[str, Any]) -> None:
        """These rows come, change or go."""
        if self._changed is not None:
            self._changed.append({name: rows[name] for name in _KEY})

    def exchange(self, gone: Columns, added: Columns, by: tuple[str, ...] = _KEY) -> Columns:
        """Take out rows that are equal in some columns, one for each that is gone, and add others.

        Gives those taken out.
        """
        named = sort_rows({name: np.append(gone[name], added[name]) for name in ("group", "time")})
        extract = self.extract(named["group"], named["time"], named["time"])
        held = take_columns(extract.columns, ~extract.follower)
        stays, _, _ = cancel(_hash_rows(held, by), _hash_rows(gone, by))
        removed = take_columns(held, ~stays)
        self.note(removed)
        self.note(added)
        merged = {name: np.concatenate([column[stays], added[name]]) for name, column in held.items()}
        self.replace(extract.blocks, sort_rows(merged))
        return removed

    def restore(self, table: pa.Table | Change) -> None:
        """Become the table that `snapshot` gave, or take over changes."""
        if not isinstance(table, Change):
            super().restore(table)
            return
        rows = {name: table.rows[name].to_numpy() for name in self._types}
        if table.is_whole:
            super().restore(pa.table(sort_rows(rows)))
        else:
            gone = {name: np.append(table.gone[name].to_numpy(), rows[name]) for name in _KEY}
            self.exchange(gone, rows)
        self._changed = []

    def take_changes(self, version: int) -> Change:
        """See `Logged.take_changes`."""
        changed, self._changed = self._changed, []
        if changed is None:
            rows = self.snapshot()
            return Change(rows, rows.select(_KEY).slice(0, 0), is_whole=True)
        none = self.empty_columns()
        keys = {name: np.concatenate([none[name], *(each[name] for each in changed)]) for name in _KEY}
        once = np.unique(_hash_rows(keys, _KEY), return_index=True)[1]
        keys = take_columns(keys, once)
        rows, at = self._find_rows(keys)
        gone = pa.table(take_columns(keys, at < 0))
        return Change(pa.table(take_columns(rows, at[at >= 0])), gone)

    def find_current(self, change: Change, version: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        stored = {name: change.rows[name].to_numpy() for name in self._types}
        rows, at = self._find_rows(stored)
        is_same = at >= 0
        for name, column in stored.items():
            is_same[is_same] = rows[name][at[is_same]] == column[is_same]
        _, there = self._find_rows({name: change.gone[name].to_numpy() for name in _KEY})
        return is_same, there < 0

    def _find_rows(self, keys: Columns) -> tuple[Columns, Index]:
        """Rows that hold those with these keys, and where each stands among them, -1 if nowhere."""
        named = sort_rows({name: keys[name] for name in ("group", "time")})
        extract = self.extract(named["group"], named["time"], named["time"])
        rows = take_columns(extract.columns, ~extract.follower)
        at = np.full(len(keys["row"]), -1)
        _, found, wanted = cancel(_hash_rows(rows, _KEY), _hash_rows(keys, _KEY))
        at[wanted] = found
        return rows, at


def sort_rows(columns: Columns) -> Columns:
    """By group and time; groups are mostly in order and alone."""
    order = columns["group"].argsort(kind="stable")
    group = columns["group"][order]
    is_same = group[1:] == group[:-1]
    tied = (np.append(is_same, False) | np.append(False, is_same)).nonzero()[0][: len(order)]
    if len(tied):
        own = order[tied]
        order[tied] = own[np.lexsort((columns["time"][own], group[tied]))]
    return take_columns(columns, order)


def _hash_rows(rows: Columns, names: tuple[str, ...]) -> Hashes:
    hashes = np.zeros(len(rows[names[0]]), np.uint64)
    for name in names:
        hashes = combine(hashes, rows[name])
    return hashes
