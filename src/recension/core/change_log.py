"""State that is stored by its changes.

A logged store tells rows apart by a key. It gives all its rows as a table, or what has changed since it was
last asked: rows as they are now, and keys that have no row any more. So it does no harm to apply a change
twice, and of several changes to a key the last one counts. Until it is asked for the first time, a store
keeps no account of what changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.ticks import FOREVER

Mask = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Change:
    """Rows as they are now, sorted by key, and keys that have no row any more.

    ``is_whole`` says that there is nothing else: what was stored before is void. ``memo`` is what a store
    wants to know when it is loaded. For a store that is loaded, ``versions`` says when each row was stored,
    and ``since`` which version it has.
    """

    rows: pa.Table
    gone: pa.Table
    is_whole: bool = False
    memo: Mapping[str, Any] = field(default_factory=dict)
    versions: Index | None = None
    since: int = -1

    def filter(self, rows: Mask, gone: Mask) -> Change:
        """Some of it."""
        return replace(self, rows=_filter(self.rows, rows), gone=_filter(self.gone, gone))


def _filter(table: pa.Table, keep: Mask) -> pa.Table:
    return table if bool(keep.all()) else table.filter(pa.array(keep))


class Logged(Protocol):
    """A store of rows that is stored by its changes."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell rows apart, one or two whole numbers."""

    def __len__(self) -> int: ...

    def snapshot(self) -> pa.Table:
        """All rows."""

    def take_changes(self, version: int) -> Change:
        """What has changed since the last call, or since it was loaded; it is being stored as ``version``."""

    def find_current(self, change: Change, version: int) -> tuple[Mask, Mask]:
        """Which rows and which gone keys of a change, stored as ``version``, are as they are now."""


def tables_of(parts: Mapping[str, Any]) -> dict[str, pa.Table]:
    """The tables among the parts of a state, and those of its logged stores."""
    return {name: part if isinstance(part, pa.Table) else part.snapshot() for name, part in parts.items()}


def newest(changes: Sequence[Change], versions: Sequence[int], key: Sequence[str]) -> Change:
    """Several changes as one: the last of each key."""
    later = _from_last_whole(changes)
    changes, versions = changes[later:], versions[later:]
    if len(changes) == 1:
        return replace(changes[0], versions=np.full(len(changes[0].rows), versions[0]))
    parts = [table for change in changes for table in (change.rows, change.gone)]
    columns = [np.concatenate([table[name].to_numpy() for table in parts]) for name in key]
    order = _order_runs(columns)
    is_last = np.ones(len(order), np.bool_)
    if len(order):
        is_last[:-1] = np.any([c[order[1:]] != c[order[:-1]] for c in columns], axis=0)
    kept = order[is_last]
    # Rows and marks take turns in the order, and stand one after the other in tables.
    sizes = np.array([len(table) for table in parts])
    is_row = np.repeat(np.arange(len(parts)) % 2 == 0, sizes)
    place = np.where(is_row, np.cumsum(is_row), np.cumsum(~is_row)) - 1
    stays, goes = kept[is_row[kept]], kept[~is_row[kept]]
    rows, gone = (pa.concat_tables(parts[first::2]) for first in (0, 1))
    return Change(
        rows.take(pa.array(place[stays])), gone.take(pa.array(place[goes])), changes[0].is_whole,
        changes[-1].memo, np.repeat(np.repeat(versions, 2), sizes)[stays],
    )  # fmt: skip


def _order_runs(columns: Sequence[Index]) -> Index:
    """A stable order of rows that are a few sorted runs: by one number, if two numbers fit into one."""
    if len(columns) == 1:
        return np.argsort(columns[0], kind="stable")
    (low, width), (other_low, other_width) = map(_finite_span, columns)
    if width * other_width > 1 << 62 or columns[0].dtype != np.int64:
        return np.lexsort(columns[::-1])
    first = np.minimum(columns[0], low + width - 1) - low
    second = np.minimum(columns[1], other_low + other_width - 1) - other_low
    return np.argsort(first * other_width + second, kind="stable")


def _finite_span(column: Index) -> tuple[int, int]:
    """The least of these numbers, and how many there may be; the end of time comes next after the others."""
    finite = column[column != FOREVER]
    low, high = (int(finite.min()), int(finite.max())) if len(finite) else (0, 0)
    return low, high - low + 2


def _from_last_whole(changes: Sequence[Change]) -> int:
    return max((place for place, change in enumerate(changes) if change.is_whole), default=0)
