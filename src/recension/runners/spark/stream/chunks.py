"""An engine's state as bytes: what is logged as pieces, all other tables as chunks; a head lists both.

A table that is not logged is cut at rows whose values decide it, not after so many rows: a few rows more or
less change the chunks they fall into and no others. Chunks are named by a digest of their content, so that
one that was stored before is not stored again. Small tables share one chunk.

Cost    that of the log (`pieces`); finding what changed in other tables reads them once, at memory speed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recension.core.change_log import Logged
from recension.runners.spark.stream import pieces
from recension.runners.spark.stream.attempts import TwoVersions
from recension.runners.spark.stream.codec import (
    Store,
    compress,
    decompress,
    digest,
    pack_tables,
    require,
    to_bytes,
    to_table,
    unpack_tables,
)
from recension.runners.spark.stream.pieces import Piece, PieceLog, pack_piece, unpack_piece
from recension.runners.spark.stream.topology import FORMAT, require_format

HEAD: Final = "head"
# Of heads that note what they wrote. Those of `FORMAT`, written before, do not, and are read as well.
_NOTING: Final = FORMAT + 1
_SMALL: Final = 16 << 10
_CHUNK_BYTES: Final = 512 << 10


@dataclass(frozen=True)
class Head:
    """What is stored: of whom, as of which micro-batch; the pieces, and the chunks of tables.

    Two attempts at a micro-batch that store the same have the same token.
    """

    owner: str
    batch: int
    token: str
    version: int = 0
    lineage: list[str] = field(default_factory=list)
    """The tokens of the last versions, the latest first."""
    pieces: list[list[Any]] = field(default_factory=list)
    cleaned: str = ""
    round: int = 0
    keys: dict[str, list[str]] = field(default_factory=dict)
    """The logged stores, and what tells their rows apart."""
    memos: dict[str, Any] = field(default_factory=dict)
    schemas: str = ""
    """The chunk that says what the tables of the logged stores look like."""
    tables: dict[str, list[str]] = field(default_factory=dict)
    small: str = ""
    rows: dict[str, int] = field(default_factory=dict)
    """About how many rows a chunk of each table has: kept as long as it fits, or all chunks would change."""
    written: list[str] | None = None
    """What this version wrote, and the next one writes again (see `attempts`); None: it was not noted."""
    dropped: list[str] = field(default_factory=list)
    """What this version does not name any more, and the next one removes."""
    format: int = _NOTING

    def with_own_token(self) -> Head:
        """The head whose token was that of the version before: it follows from it, and from all there is."""
        token = digest(self.to_bytes())
        return replace(self, token=token, lineage=[token, *self.lineage])

    def to_bytes(self) -> bytes:
        """As it is stored."""
        return json.dumps(vars(self)).encode()

    def chunks(self) -> set[str]:
        """The names of all chunks."""
        return {self.small, self.schemas, *(name for chunks in self.tables.values() for name in chunks)}

    def names(self) -> set[str]:
        """What is there beside the head: what this version needs, and what the next one removes."""
        return {name for name, *_ in self.pieces} | self.chunks() | set(self.dropped)

    def last_written(self) -> list[str]:
        """What this version wrote, or may have written."""
        if self.written is not None:
            return self.written
        return [name for name, last, *_ in self.pieces if last == self.version] + sorted(self.chunks())

    def log(self) -> PieceLog:
        """The pieces."""
        return PieceLog([Piece(*piece) for piece in self.pieces], self.cleaned, self.round, self.memos)

    def rows_written(self) -> int:
        """How many rows and marks this version wrote, those of pieces that it wrote anew included."""
        return sum(rows + gone for name, _, rows, gone in self.pieces if name.startswith(f"{self.version}."))

    def version_of(self, token: str) -> int | None:
        """Which version was stored with this token, if it led to this one and that is not long ago."""
        return self.version - self.lineage.index(token) if token in self.lineage else None


def read_head(store: Store) -> Head | None:
    """The head, if anything was stored; one of another format is refused."""
    value = store.get(HEAD)
    if value is None:
        return None
    head = json.loads(value)
    if head["format"] != _NOTING:
        require_format(head["format"])
    return Head(**head)


def save(
    store: Store, parts: Mapping[str, Any], old: Head | None, owner: str, batch: int
) -> tuple[Head, int]:
    """Store what ``old`` does not have, forget what is no longer needed; the number of bytes written."""
    tables, logged = split_parts(parts)
    before = old or Head(owner, batch, "")
    version, log = before.version + 1, before.log()
    twice = TwoVersions(store, before.last_written() if old else (), before.dropped)
    written = log.extend(twice, logged, version)
    chunks, named, rows = _cut_tables(tables, before)
    small, schemas = next(reversed(chunks)), pack_piece(log.nothing)
    chunks[digest(schemas)] = schemas
    lineage = [] if log.is_new else before.lineage[: pieces.LINEAGE - 1]
    written += _store(twice, chunks, set() if old is None else old.chunks())
    head = Head(
        owner, batch, before.token, version, lineage,
        [list(piece) for piece in log.pieces], log.cleaned, log.round,
        {name: list(part.key) for name, part in logged.items()}, log.memos,
        digest(schemas), named, small, rows, *twice.settle(),
    ).with_own_token()  # fmt: skip
    store.put(HEAD, head.to_bytes())
    return head, written


def split_parts(parts: Mapping[str, Any]) -> tuple[dict[str, pa.Table], dict[str, Logged]]:
    """The tables, and the stores that are logged."""
    tables = {name: part for name, part in parts.items() if isinstance(part, pa.Table)}
    return tables, {name: part for name, part in parts.items() if name not in tables}


def _cut_tables(
    tables: Mapping[str, pa.Table], old: Head
) -> tuple[dict[str, bytes], dict[str, list[str]], dict[str, int]]:
    """All chunks, that of small tables last; the names of those of each large table, and their rows."""
    chunks: dict[str, bytes] = {}
    named: dict[str, list[str]] = {}
    rows: dict[str, int] = {}
    for name, table in tables.items():
        if table.nbytes >= _SMALL:
            rows[name] = _chunk_rows(table, old.rows.get(name))
            own = [(digest(part), part) for part in map(to_bytes, _parts(table, rows[name]))]
            named[name] = [chunk for chunk, _ in own]
            chunks |= own
    small = pack_tables({name: table for name, table in tables.items() if name not in named})
    chunks[digest(small)] = small
    return chunks, named, rows


def _store(store: Store, chunks: Mapping[str, bytes], kept: set[str]) -> int:
    written = 0
    # In an order of their own: that of sets is another in every process.
    for name in sorted(kept - chunks.keys()):
        store.remove(name)
    for name in sorted(chunks.keys() - kept):
        value = compress(chunks[name])
        store.put(name, value)
        written += len(value)
    return written


def load(store: Store, head: Head) -> dict[str, Any]:
    """All that is stored."""
    return _load_tables(store, head, {}) | _open_log(store, head).load(store, head.keys)


def load_since(store: Store, head: Head, parts: Mapping[str, Any], since: int) -> dict[str, Any]:
    """The tables, and what was logged after a version, for an engine that has that version and these parts.

    Chunks that its tables hold are not read.
    """
    known, _ = split_parts(parts)
    return _load_tables(store, head, known) | _open_log(store, head).load_since(store, head.keys, since)


def _open_log(store: Store, head: Head) -> PieceLog:
    return replace(head.log(), nothing=unpack_piece(decompress(require(store, head.schemas))))


def _load_tables(store: Store, head: Head, known: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    at_hand = dict(_parts_by_name(known, head.rows))
    tables: dict[str, pa.Table] = {}
    for name, chunks in head.tables.items():
        parts = [at_hand[p] if p in at_hand else to_table(decompress(require(store, p))) for p in chunks]
        tables[name] = pa.concat_tables(parts)
    return tables | unpack_tables(decompress(require(store, head.small)))


def _parts_by_name(known: Mapping[str, pa.Table], rows: Mapping[str, int]) -> Iterator[tuple[str, pa.Table]]:
    for name, table in known.items():
        if name in rows:
            for part in _parts(table, rows[name]):
                yield digest(to_bytes(part)), part


def _chunk_rows(table: pa.Table, before: int | None) -> int:
    """How many rows make a chunk of the wished size; as before, unless that is twice or half as many."""
    wished = max(1, table.num_rows * _CHUNK_BYTES // max(table.nbytes, 1))
    return before if before is not None and wished <= 2 * before <= 4 * wished else wished


def _parts(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    """The table cut by content into chunks of about so many rows."""
    table = table.combine_chunks()
    edges = [0, *_boundaries(table, rows), table.num_rows]
    for start, stop in itertools.pairwise(edges):
        yield table.slice(start, stop - start)


def _boundaries(table: pa.Table, rows: int) -> list[int]:
    """Where chunks end: at rows whose values decide it, or after four times the wished size."""
    marks = np.flatnonzero(_row_hashes(table) % np.uint64(rows) == 0)
    found, last = [], 0
    for mark in [*marks.tolist(), table.num_rows]:
        while mark - last > 4 * rows:
            last += 4 * rows
            found.append(last)
        if mark - last >= max(1, rows // 4) and mark < table.num_rows:
            found.append(mark)
            last = mark
    return found


def _row_hashes(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """A hash of each row's first numbers; rows without numbers are cut by count alone."""
    mixed = np.full(table.num_rows, 1, np.uint64)
    numbers = [c for c in table.columns if pa.types.is_int64(c.type) and not c.null_count][:2]
    for column in numbers:
        mixed = (mixed ^ column.to_numpy().view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed
