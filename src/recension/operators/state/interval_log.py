"""Which intervals of an index were stored when: an interval is known by the number of its row.

A row keeps its number, and no other row ever gets it. It may be taken away and come back with another end.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.change_log import Change
from recension.core.netting import distinct
from recension.core.sorted_runs import Columns, take_columns

_GONE: Final = -1
_PAGE: Final = 1024


class _Versions:
    """A version for each number, `_GONE` unless it is set; pages that are all gone take no room."""

    def __init__(self) -> None:
        # Where the versions of each page are, the last page being after all numbers. The first place is that
        # of pages where all are gone.
        self._place = np.zeros(1, np.int64)
        self._room = np.full((1, _PAGE), _GONE)
        self._held = np.zeros(1, np.int64)

    def __getitem__(self, rows: Index) -> Index:
        place = self._place[np.minimum(rows // _PAGE, len(self._place) - 1)]
        found: Index = self._room[place, rows % _PAGE]
        return found

    def set(self, rows: Index, versions: Index | int) -> None:
        """Set the versions of distinct rows."""
        page, at = rows // _PAGE, rows % _PAGE
        pages = distinct(page)
        self._make_room(pages)
        place = self._place[page]
        before = self._room[place, at] != _GONE
        self._room[place, at] = versions
        np.add.at(self._held, place, (self._room[place, at] != _GONE) - before.astype(np.int64))
        self._place[pages[self._held[self._place[pages]] == 0]] = 0

    def _make_room(self, pages: Index) -> None:
        if len(pages) and pages[-1] + 1 >= len(self._place):
            self._place = np.append(self._place, np.zeros(pages[-1] + 1, np.int64))
        new = pages[self._place[pages] == 0]
        free = (self._held[1:] == 0).nonzero()[0] + 1 if len(new) else new
        if len(free) < len(new):
            more = len(self._room) + len(new)
            free = np.append(free, np.arange(len(self._room), len(self._room) + more))
            self._room = np.concatenate([self._room, np.full((more, _PAGE), _GONE)])
            self._held = np.append(self._held, np.zeros(more, np.int64))
        self._place[new] = free[: len(new)]


class IntervalLog:
    """``base`` is the version that stored all rows when it was begun."""

    def __init__(self, version: int, base: int) -> None:
        self._version, self._base = version, base
        # The version that stored each row, or will store it.
        self._written = _Versions()
        self._numbered = 0
        self._added: list[Columns] = []
        self._removed: list[Columns] = []

    def load(self, rows: Index, versions: Index, numbered: int) -> None:
        """These rows are stored; so many numbers are given."""
        self._numbered = numbered
        self._written.set(rows, versions)

    def holds(self, rows: Index) -> Mask:
        """Which rows are there, among them those that have expired."""
        known: Mask = self._written[rows] != _GONE
        return known

    def add(self, columns: Columns, numbered: int) -> None:
        """Intervals came."""
        self.load(columns["row"], np.full(len(columns["row"]), self._version + 1), numbered)
        self._added.append(columns)

    def remove(self, columns: Columns) -> None:
        """Intervals went; their rows, tags and ends."""
        is_stored = self._written[columns["row"]] <= self._version
        self._written.set(columns["row"], _GONE)
        self._removed.append(take_columns(columns, is_stored))

    def let_go(self, rows: Index) -> None:
        """These rows were removed or have expired, and will not come back."""
        self._written.set(rows, _GONE)

    def forget(self, change: Change) -> None:
        """These rows are gone, and all is stored as of its version."""
        self._written.set(change.gone["row"].to_numpy(), _GONE)
        self._version, self._base = change.memo["version"], change.memo["base"]

    def take_changes(self, version: int, empty: Columns, expired_until: int) -> Change:
        """See `Logged.take_changes`."""
        none = {name: empty[name] for name in ("row", "tag", "ve")}
        added, removed = _last_of_each([empty, *self._added]), _last_of_each([none, *self._removed])
        there = self.holds(added["row"]) & (added["ve"] > expired_until)
        added = take_columns(added, there)
        # One that came back with another end, and has expired since, is gone as well.
        gone = ~np.isin(removed["row"], added["row"]) & (removed["ve"] > expired_until)
        self._version, self._added, self._removed = version, [], []
        return Change(pa.table(added), pa.table(take_columns(removed, gone)), memo=self.memo())

    def memo(self) -> dict[str, int]:
        """What is to be known when it is loaded."""
        return {"version": self._version, "base": self._base, "numbered": self._numbered}

    def find_current(self, change: Change, version: int, expired_until: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        if version < self._base:
            return np.zeros(len(change.rows), np.bool_), np.zeros(len(change.gone), np.bool_)
        is_open = [t["ve"].to_numpy() > expired_until for t in (change.rows, change.gone)]
        rows, gone = change.rows["row"].to_numpy(), change.gone["row"].to_numpy()
        is_latest = self.holds(rows) & (self._written[rows] <= version)
        return is_open[0] & is_latest, is_open[1] & ~self.holds(gone)


def _last_of_each(parts: list[Columns]) -> Columns:
    """Of the rows with one number the last, by number."""
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = columns["row"].argsort(kind="stable")
    number = columns["row"][order]
    return take_columns(columns, order[np.append(number[1:] != number[:-1], True)[: len(order)]])
