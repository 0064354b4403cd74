"""The log of an engine's changes: pieces of bytes, in order.

    versions    1 2 3 4 5     6     7     8        each micro-batch adds a piece, with all that it changed
    pieces     [  1 - 5  ]   [6]   [7]   [8]       some were put together, without what was outdated

A piece holds rows as of its last version. So an engine that has version 6 is up to date after pieces 7 and
8, and one that has nothing after all of them: of several rows with one key the last counts.

What always holds:

    names       a piece is named after the version that wrote it, its number among those, and a digest of what
                it holds: another attempt at the micro-batch that writes the same gives it the same name, and
                one that writes something else another;
    order       pieces cover versions without overlap; one that is written anew keeps its place;
    space       where less than `_IN_USE` of the stored rows are current, pieces are written anew without the
                others, a few in each micro-batch, one after another; so are neighbours where pieces are many;
    removing    goes with the writing of the next head, Spark commits both, or neither; and a version later
                (see `attempts`).

Cost    a micro-batch writes what it changed, and about as much again for space. It looks at no other state.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from recension.core.change_log import Change, Logged, newest
from recension.runners.spark.stream.codec import (
    Store,
    compress,
    decompress,
    digest,
    pack_tables,
    require,
    unpack_tables,
)

_BYTES: Final = 4 << 20
_IN_USE: Final = 0.6
_FEW: Final = 1 << 13  # rows that may be cleaned in any micro-batch
_MANY: Final = 32  # pieces, and one more for every `_SHARE` rows
_SHARE: Final = 1 << 14
LINEAGE: Final = 32
"""An engine that is behind by more versions is loaded anew."""


class Piece(NamedTuple):
    """One piece: the last version it covers, and how many rows and marks of what is gone it holds."""

    name: str
    last: int
    rows: int
    gone: int


Contents = dict[str, Change]


@dataclass
class PieceLog:
    """The stored pieces, which of them was cleaned last, and what stores want to know when loaded."""

    pieces: list[Piece]
    cleaned: str = ""
    """By name: several pieces may be of one version. Those before it are clean too, since ``round``."""
    round: int = 0
    """When cleaning last began with the first piece. What was outdated then is in none cleaned since."""
    memos: dict[str, Any] = field(default_factory=dict)
    nothing: Contents = field(default_factory=dict)
    """A change of each store that says nothing: what its tables look like."""
    is_new: bool = False
    """Has it begun anew? Then what engines that are behind hold is of no use."""

    def extend(self, store: Store, logged: Mapping[str, Logged], version: int) -> int:
        """Store what has changed; gives the number of bytes."""
        writer = _Writer(store, version)
        fresh = {name: part.take_changes(version) for name, part in logged.items()}
        if fresh and all(change.is_whole for change in fresh.values()):
            self._begin_anew(store)
        self.memos = {name: change.memo for name, change in fresh.items()}
        self.nothing = {name: _empty(change) for name, change in fresh.items()}
        added = writer.write({name: change for name, change in fresh.items() if _tells(change)}, version)
        self._clean(_Cleaner(store, logged, writer, version), sum(piece.rows for piece in added))
        self.pieces += added
        return writer.written

    def _begin_anew(self, store: Store) -> None:
        """All stores are whole: they may be others under the same names."""
        for piece in self.pieces:
            store.remove(piece.name)
        self.pieces, self.is_new = [], True

    def _clean(self, cleaner: _Cleaner, written: int) -> None:
        """Write some pieces anew, where that is due."""
        old = cleaner.version - LINEAGE  # engines may miss what is younger: its marks are not waste
        rows = sum(p.rows + p.gone * (p.last <= old) for p in self.pieces) + written
        sizes = np.array([p.rows + p.gone for p in self.pieces], np.int64)
        if is_waste := cleaner.count_rows() < _IN_USE * rows - _FEW:
            first = self._next_to_clean()
            self.round = cleaner.version if first == 0 else self.round
            forget = min(old, self.round)
        elif len(sizes) > _MANY + rows // _SHARE:
            first, forget = int(np.argmin(sizes[1:] + sizes[:-1])), 0
        else:
            return
        fit = int(np.searchsorted(np.cumsum(sizes[first:]), max(2 * written, _FEW), "right"))
        chosen = self.pieces[first : first + max(2, fit)]
        fresh, before = cleaner.rewrite(chosen, forget), self.pieces[first - 1].name if first else ""
        self.pieces[first : first + len(chosen)] = fresh
        if is_waste:
            self.cleaned = fresh[-1].name if fresh else before
        elif any(piece.name == self.cleaned for piece in chosen):
            self.cleaned = before

    def _next_to_clean(self) -> int:
        """The place after the piece that was cleaned last; from the first on, if there is none."""
        names = [piece.name for piece in self.pieces]
        place = names.index(self.cleaned) + 1 if self.cleaned in names else 0
        return place % max(1, len(names))

    def load(self, store: Store, keys: Mapping[str, Sequence[str]]) -> dict[str, Change]:
        """All that was stored, the last of each key; nothing is gone that was not there.

        Marks may be older than the numbers that rows have now.
        """
        loaded = self.load_since(store, keys, -1)
        return {n: replace(c, gone=c.gone.slice(0, 0), is_whole=True) for n, c in loaded.items()}

    def load_since(self, store: Store, keys: Mapping[str, Sequence[str]], since: int) -> dict[str, Change]:
        """What was stored after a version, the last of each key."""
        found: dict[str, list[tuple[Change, int]]] = {name: [] for name in keys}
        for piece in self.pieces:
            if piece.last > since:
                for name, change in unpack_piece(require(store, piece.name)).items():
                    if name in found:
                        found[name].append((change, piece.last))
        return {
            name: replace(
                _unite(own or [(self.nothing[name], since)], keys[name]), memo=self.memos[name], since=since
            )
            for name, own in found.items()
        }


class _Writer:
    """Writes pieces of at most a few MB."""

    def __init__(self, store: Store, version: int) -> None:
        self._store, self._version = store, version
        self._numbers = itertools.count()
        self.written = 0

    def write(self, contents: Contents, last: int) -> list[Piece]:
        return [self._write_piece(part, last) for part in _split(contents)]

    def _write_piece(self, contents: Contents, last: int) -> Piece:
        chunk = _bytes_of(contents)
        value, name = compress(chunk), f"{self._version}.{next(self._numbers)}.{digest(chunk)}"
        self._store.put(name, value)
        self.written += len(value)
        rows, gone = (sum(len(getattr(c, of)) for c in contents.values()) for of in ("rows", "gone"))
        return Piece(name, last, rows, gone)


@dataclass(frozen=True)
class _Cleaner:
    """Writes pieces anew, without what is not current."""

    store: Store
    logged: Mapping[str, Logged]
    writer: _Writer
    version: int

    def count_rows(self) -> int:
        return sum(len(part) for part in self.logged.values())

    def rewrite(self, pieces: Sequence[Piece], forget: int) -> list[Piece]:
        """The same pieces as one, or as few; marks of what is gone stay if younger than ``forget``."""
        kept: dict[str, list[tuple[Change, int]]] = {}
        for piece in pieces:
            for name, change in unpack_piece(require(self.store, piece.name)).items():
                if name in self.logged:
                    rows, gone = self.logged[name].find_current(change, piece.last)
                    change = change.filter(rows, gone & (piece.last > forget))
                    change = replace(change, is_whole=change.is_whole and piece.last > forget)
                    kept.setdefault(name, []).append((change, piece.last))
            self.store.remove(piece.name)
        last = pieces[-1].last
        contents = {name: _unite(own, self.logged[name].key) for name, own in kept.items()}
        return self.writer.write({n: c for n, c in contents.items() if _tells(c)}, last)


def _unite(changes: Sequence[tuple[Change, int]], key: Sequence[str]) -> Change:
    return newest([change for change, _ in changes], [last for _, last in changes], key)


def _tells(change: Change) -> bool:
    return change.is_whole or len(change.rows) > 0 or len(change.gone) > 0


def _empty(change: Change) -> Change:
    return Change(change.rows.slice(0, 0), change.gone.slice(0, 0))


def _split(contents: Contents) -> Iterator[Contents]:
    """Contents in parts of at most about so many bytes; what voids all before comes first."""
    part: Contents = {}
    size = 0
    for name, change in contents.items():
        whole = change.rows.nbytes
        rows = max(1, len(change.rows) * _BYTES // max(whole, 1))
        for start in range(0, max(len(change.rows), 1), rows):
            own = replace(change, rows=change.rows.slice(start, rows))
            if start:
                own = replace(own, is_whole=False, gone=change.gone.slice(0, 0))
            if part and (name in part or size + own.rows.nbytes > _BYTES):
                yield part
                part, size = {}, 0
            part[name] = own
            size += own.rows.nbytes
    if part:
        yield part


def pack_piece(contents: Contents) -> bytes:
    """The bytes of a piece."""
    return compress(_bytes_of(contents))


def _bytes_of(contents: Contents) -> bytes:
    head = {name: [change.is_whole, change.gone.column_names] for name, change in contents.items()}
    tables = {"": pa.table({"head": [json.dumps(head)]})}
    for name, change in contents.items():
        tables[f"{name}:rows"] = change.rows
        if len(change.gone):
            tables[f"{name}:gone"] = change.gone
    return pack_tables(tables)


def unpack_piece(value: bytes) -> Contents:
    """What `pack_piece` gave."""
    tables = unpack_tables(decompress(value))
    head = json.loads(tables[""]["head"][0].as_py())
    contents = {}
    for name, (is_whole, marks) in head.items():
        rows = tables[f"{name}:rows"]
        gone = tables.get(f"{name}:gone", rows.select(marks).slice(0, 0))
        contents[name] = Change(rows, gone, is_whole)
    return contents
