"""Tables as bytes, and where the bytes of a shard's state are kept."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

import pyarrow as pa

from recension.runners.spark.stream.task import lost_part_error

_CODEC: Final = "lz4_raw"


class Store(Protocol):
    """Named bytes: Spark's state, or a dictionary."""

    def get(self, name: str) -> bytes | None: ...

    def put(self, name: str, value: bytes) -> None: ...

    def remove(self, name: str) -> None: ...


def require(store: Store, name: str) -> bytes:
    """What must be there."""
    value = store.get(name)
    if value is None:
        raise lost_part_error(name)
    return value


def to_bytes(table: pa.Table) -> bytes:
    """A table as one Arrow stream."""
    sink = pa.BufferOutputStream()
    # One batch, so that equal rows are equal bytes however they were put together.
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def to_table(chunk: bytes) -> pa.Table:
    """What `to_bytes` gave."""
    return pa.ipc.open_stream(pa.py_buffer(chunk)).read_all()


def digest(chunk: bytes) -> str:
    """What tells bytes from others: a part of their names."""
    return hashlib.blake2b(chunk, digest_size=12).hexdigest()


def compress(chunk: bytes) -> bytes:
    """Fewer bytes, if they repeat."""
    return struct.pack("<q", len(chunk)) + bytes(pa.compress(chunk, _CODEC, asbytes=True))


def decompress(value: bytes) -> bytes:
    """What was compressed."""
    (size,) = struct.unpack_from("<q", value)
    return bytes(pa.decompress(value[8:], size, _CODEC, asbytes=True))


def pack_tables(tables: Mapping[str, pa.Table]) -> bytes:
    """Named tables as one chunk."""
    chunks = {name: to_bytes(table) for name, table in tables.items()}
    listing = json.dumps([[name, len(chunk)] for name, chunk in chunks.items()]).encode()
    return b"".join([struct.pack("<q", len(listing)), listing, *chunks.values()])


def unpack_tables(bundle: bytes) -> dict[str, pa.Table]:
    """What `pack_tables` gave."""
    return {name: to_table(chunk) for name, chunk in _unbundle(bundle)}


def _unbundle(bundle: bytes) -> Iterator[tuple[str, bytes]]:
    (size,) = struct.unpack_from("<q", bundle)
    at = 8 + size
    for name, length in json.loads(bundle[8:at]):
        yield name, bundle[at : at + length]
        at += length
