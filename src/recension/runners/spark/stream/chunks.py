"""An engine's state as pieces of bytes, named by what they hold.

A table is cut where the content says so, not after so many rows: a few rows more or less change the pieces
they fall into and no others. A piece that was stored before has the same name, and is not stored again; a
head lists the pieces of every table. Small tables travel together in one piece.

Cost    finding what changed reads the state once, at memory speed; storing costs what changed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import uuid4

import numpy as np
import pyarrow as pa

from recension.runners.spark.stream.identity import FORMAT, require_format

HEAD: Final = "head"
_SMALL: Final = 16 << 10
_PIECE: Final = 512 << 10
_CODEC: Final = "lz4_raw"


class Store(Protocol):
    """Named bytes: Spark's state, or a dictionary."""

    def get(self, name: str) -> bytes | None: ...

    def put(self, name: str, value: bytes) -> None: ...

    def remove(self, name: str) -> None: ...


@dataclass(frozen=True)
class Head:
    """What is stored: of whom, as of which micro-batch and attempt, and the pieces of each table."""

    owner: str
    batch: int
    token: str
    tables: dict[str, list[str]]
    small: str
    rows: dict[str, int] = field(default_factory=dict)
    """About how many rows a piece of each table has: kept as long as it fits, or all pieces would change."""
    format: int = FORMAT

    def pieces(self) -> set[str]:
        """The names of all pieces."""
        return {self.small, *(name for pieces in self.tables.values() for name in pieces)}


def read_head(store: Store) -> Head | None:
    """The head, if anything was stored; one of another format is refused."""
    value = store.get(HEAD)
    if value is None:
        return None
    told = json.loads(value)
    require_format(told["format"])
    return Head(**told)


def save(
    store: Store, tables: Mapping[str, pa.Table], old: Head | None, owner: str, batch: int
) -> tuple[Head, int]:
    """Store what ``old`` does not have, forget what is no longer needed; the number of bytes written."""
    pieces: dict[str, bytes] = {}
    named: dict[str, list[str]] = {}
    rows: dict[str, int] = {}
    for name, table in tables.items():
        if table.nbytes >= _SMALL:
            rows[name] = _piece_rows(table, None if old is None else old.rows.get(name))
            own = [(_name(part), part) for part in map(_bytes, _parts(table, rows[name]))]
            named[name] = [piece for piece, _ in own]
            pieces |= own
    small = _bundle({name: _bytes(table) for name, table in tables.items() if name not in named})
    pieces[_name(small)] = small
    head = Head(owner, batch, uuid4().hex, named, _name(small), rows)
    return head, _store(store, pieces, set() if old is None else old.pieces(), head)


def _store(store: Store, pieces: Mapping[str, bytes], kept: set[str], head: Head) -> int:
    written = 0
    for name in kept - pieces.keys():
        store.remove(name)
    for name in pieces.keys() - kept:
        value = _packed(pieces[name])
        store.put(name, value)
        written += len(value)
    store.put(HEAD, json.dumps(vars(head)).encode())
    return written


def load(store: Store, head: Head, known: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables of a head; pieces that ``known`` tables (those of an older engine) hold are not read."""
    at_hand = dict(_named_parts(known, head.rows))
    tables: dict[str, pa.Table] = {}
    for name, pieces in head.tables.items():
        parts = [at_hand[p] if p in at_hand else _table(_unpacked(_found(store, p))) for p in pieces]
        tables[name] = pa.concat_tables(parts)
    small = _unbundle(_unpacked(_found(store, head.small)))
    return tables | {name: _table(value) for name, value in small}


def _named_parts(known: Mapping[str, pa.Table], rows: Mapping[str, int]) -> Iterator[tuple[str, pa.Table]]:
    for name, table in known.items():
        if name in rows:
            for part in _parts(table, rows[name]):
                yield _name(_bytes(part)), part


def _found(store: Store, name: str) -> bytes:
    value = store.get(name)
    assert value is not None, f"state without its piece {name}"
    return value


def _name(piece: bytes) -> str:
    return hashlib.blake2b(piece, digest_size=12).hexdigest()


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    # One batch, so that equal rows are equal bytes however they were put together.
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def _table(piece: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(piece)).read_all()


def _packed(piece: bytes) -> bytes:
    return struct.pack("<q", len(piece)) + bytes(pa.compress(piece, _CODEC, asbytes=True))


def _unpacked(value: bytes) -> bytes:
    (size,) = struct.unpack_from("<q", value)
    return bytes(pa.decompress(value[8:], size, _CODEC, asbytes=True))


def _bundle(pieces: Mapping[str, bytes]) -> bytes:
    listing = json.dumps([[name, len(piece)] for name, piece in pieces.items()]).encode()
    return b"".join([struct.pack("<q", len(listing)), listing, *pieces.values()])


def _unbundle(bundle: bytes) -> Iterator[tuple[str, bytes]]:
    (size,) = struct.unpack_from("<q", bundle)
    at = 8 + size
    for name, length in json.loads(bundle[8:at]):
        yield name, bundle[at : at + length]
        at += length


def _piece_rows(table: pa.Table, before: int | None) -> int:
    """How many rows make a piece of the wished size; as before, unless that is twice or half as many."""
    wished = max(1, table.num_rows * _PIECE // max(table.nbytes, 1))
    return before if before is not None and wished <= 2 * before <= 4 * wished else wished


def _parts(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    """The table cut by content into pieces of about so many rows."""
    table = table.combine_chunks()
    edges = [0, *_boundaries(table, rows), table.num_rows]
    for start, stop in itertools.pairwise(edges):
        yield table.slice(start, stop - start)


def _boundaries(table: pa.Table, rows: int) -> list[int]:
    """Where pieces end: at rows whose own values say so; after four times the wished size in any case."""
    marks = np.flatnonzero(_mixed(table) % np.uint64(rows) == 0)
    found, last = [], 0
    for mark in [*marks.tolist(), table.num_rows]:
        while mark - last > 4 * rows:
            last += 4 * rows
            found.append(last)
        if mark - last >= max(1, rows // 4) and mark < table.num_rows:
            found.append(mark)
            last = mark
    return found


def _mixed(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """A hash of each row's first numbers; rows without numbers are cut by count alone."""
    mixed = np.full(table.num_rows, 1, np.uint64)
    numbers = [c for c in table.columns if pa.types.is_int64(c.type) and not c.null_count][:2]
    for column in numbers:
        mixed = (mixed ^ column.to_numpy().view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed
