"""An engine's state as chunks of bytes, named by a digest of their content.

A table is cut at rows whose values decide it, not after so many rows: a few rows more or less change the
chunks they fall into and no others. A chunk that was stored before has the same name, and is not stored
again. A head lists the chunks of every table. Small tables share one chunk.

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

from recension.runners.spark.stream.topology import FORMAT, require_format

HEAD: Final = "head"
_SMALL: Final = 16 << 10
_CHUNK_BYTES: Final = 512 << 10
_CODEC: Final = "lz4_raw"


class Store(Protocol):
    """Named bytes: Spark's state, or a dictionary."""

    def get(self, name: str) -> bytes | None: ...

    def put(self, name: str, value: bytes) -> None: ...

    def remove(self, name: str) -> None: ...


@dataclass(frozen=True)
class Head:
    """What is stored: of whom, as of which micro-batch and attempt, and the chunks of each table."""

    owner: str
    batch: int
    token: str
    tables: dict[str, list[str]]
    small: str
    rows: dict[str, int] = field(default_factory=dict)
    """About how many rows a chunk of each table has: kept as long as it fits, or all chunks would change."""
    format: int = FORMAT

    def chunks(self) -> set[str]:
        """The names of all chunks."""
        return {self.small, *(name for chunks in self.tables.values() for name in chunks)}


def read_head(store: Store) -> Head | None:
    """The head, if anything was stored; one of another format is refused."""
    value = store.get(HEAD)
    if value is None:
        return None
    head = json.loads(value)
    require_format(head["format"])
    return Head(**head)


def save(
    store: Store, tables: Mapping[str, pa.Table], old: Head | None, owner: str, batch: int
) -> tuple[Head, int]:
    """Store what ``old`` does not have, forget what is no longer needed; the number of bytes written."""
    chunks: dict[str, bytes] = {}
    named: dict[str, list[str]] = {}
    rows: dict[str, int] = {}
    for name, table in tables.items():
        if table.nbytes >= _SMALL:
            rows[name] = _chunk_rows(table, None if old is None else old.rows.get(name))
            own = [(_digest(part), part) for part in map(_to_bytes, _parts(table, rows[name]))]
            named[name] = [chunk for chunk, _ in own]
            chunks |= own
    small = _bundle({name: _to_bytes(table) for name, table in tables.items() if name not in named})
    chunks[_digest(small)] = small
    head = Head(owner, batch, uuid4().hex, named, _digest(small), rows)
    return head, _store(store, chunks, set() if old is None else old.chunks(), head)


def _store(store: Store, chunks: Mapping[str, bytes], kept: set[str], head: Head) -> int:
    written = 0
    for name in kept - chunks.keys():
        store.remove(name)
    for name in chunks.keys() - kept:
        value = _compress(chunks[name])
        store.put(name, value)
        written += len(value)
    store.put(HEAD, json.dumps(vars(head)).encode())
    return written


def load(store: Store, head: Head, known: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables of a head; chunks that ``known`` tables (those of an older engine) hold are not read."""
    at_hand = dict(_parts_by_name(known, head.rows))
    tables: dict[str, pa.Table] = {}
    for name, chunks in head.tables.items():
        parts = [at_hand[p] if p in at_hand else _to_table(_decompress(_require(store, p))) for p in chunks]
        tables[name] = pa.concat_tables(parts)
    small = _unbundle(_decompress(_require(store, head.small)))
    return tables | {name: _to_table(value) for name, value in small}


def _parts_by_name(known: Mapping[str, pa.Table], rows: Mapping[str, int]) -> Iterator[tuple[str, pa.Table]]:
    for name, table in known.items():
        if name in rows:
            for part in _parts(table, rows[name]):
                yield _digest(_to_bytes(part)), part


def _require(store: Store, name: str) -> bytes:
    value = store.get(name)
    assert value is not None, f"state without its chunk {name}"
    return value


def _digest(chunk: bytes) -> str:
    return hashlib.blake2b(chunk, digest_size=12).hexdigest()


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    # One batch, so that equal rows are equal bytes however they were put together.
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def _to_table(chunk: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(chunk)).read_all()


def _compress(chunk: bytes) -> bytes:
    return struct.pack("<q", len(chunk)) + bytes(pa.compress(chunk, _CODEC, asbytes=True))


def _decompress(value: bytes) -> bytes:
    (size,) = struct.unpack_from("<q", value)
    return bytes(pa.decompress(value[8:], size, _CODEC, asbytes=True))


def _bundle(chunks: Mapping[str, bytes]) -> bytes:
    listing = json.dumps([[name, len(chunk)] for name, chunk in chunks.items()]).encode()
    return b"".join([struct.pack("<q", len(listing)), listing, *chunks.values()])


def _unbundle(bundle: bytes) -> Iterator[tuple[str, bytes]]:
    (size,) = struct.unpack_from("<q", bundle)
    at = 8 + size
    for name, length in json.loads(bundle[8:at]):
        yield name, bundle[at : at + length]
        at += length


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
