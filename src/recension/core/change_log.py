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
    rows, gone = (pa.concat_tables([getattr(c, of) for c in changes]) for of in ("rows", "gone"))
    sizes = [*(len(c.rows) for c in changes), *(len(c.gone) for c in changes)]
    version = np.repeat([*versions, *versions], sizes)
    columns = [np.concatenate([rows[name].to_numpy(), gone[name].to_numpy()]) for name in key]
    order = np.lexsort((version, *reversed(columns)))
    is_last = np.ones(len(order), np.bool_)
    if len(order):
        is_last[:-1] = np.any([c[order[1:]] != c[order[:-1]] for c in columns], axis=0)
    kept = order[is_last]
    stays, goes = kept[kept < len(rows)], kept[kept >= len(rows)] - len(rows)
    return Change(
        rows.take(pa.array(stays)), gone.take(pa.array(goes)), changes[0].is_whole, changes[-1].memo,
        version[stays],
    )  # fmt: skip


def _from_last_whole(changes: Sequence[Change]) -> int:
    return max((place for place, change in enumerate(changes) if change.is_whole), default=0)
