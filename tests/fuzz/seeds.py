"""Sound files of every format, small and with many types: what the mutations start from."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

_WORDS: Final = ("", "ann", "bob", "=1+1", "a,b", 'say "no"', "naïve", "名前", "\U0001f600", "x" * 40, "007")


@dataclass(frozen=True, slots=True)
class Seed:
    """A sound file: its suffix, its bytes and how many rows it has."""

    suffix: str
    data: bytes
    rows: int


def seed_of(suffix: str, random_: random.Random) -> Seed:
    """A sound file of the format that the suffix announces."""
    rows = random_.choice((1, 3, 20, 60, 60, 150))
    table = stream_table(rows, random_, is_flat=suffix == "csv")
    return Seed(suffix, _ENCODERS[suffix](table, random_), rows)


def stream_table(rows: int, random_: random.Random, *, is_flat: bool) -> pa.Table:
    """A valid stream, or a plain table: starts go up, an event in ten is shortened by the next row."""
    is_stream, is_timed = random_.random() < 0.7, random_.random() < 0.3
    events = _events(rows, random_, is_stream)
    time = pa.timestamp("us", "UTC") if is_timed else pa.int64()
    names = [n for n in (*_CONTROL, *_COLUMNS) if n in _chosen(random_, is_stream, is_flat)]
    columns = {n: pa.array([e.get(n) for e in events], time if n in _TIMES else _type(n)) for n in names}
    return pa.table(columns)


_TIMES: Final = ("_vs", "_ve", "_new_ve")
_CONTROL: Final = {"_kind": pa.string(), "_vs": pa.int64(), "_ve": pa.int64(), "_new_ve": pa.int64()}
_COLUMNS: Final[dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]]] = {
    "word": (pa.string(), lambda r: r.choice(_WORDS)),
    "number": (pa.int64(), lambda r: r.randrange(-(2**63), 2**63) if r.random() < 0.1 else r.randrange(9)),
    "ratio": (pa.float64(), lambda r: r.choice((0.5, -0.0, 1e300, 2.0, 0.1))),
    "flag": (pa.bool_(), lambda r: r.random() < 0.5),
    "day": (pa.date32(), lambda r: datetime(2024, 1, 1, tzinfo=UTC).date() + timedelta(r.randrange(99))),
    "at": (pa.timestamp("us"), lambda r: datetime(2024, 1, 1) + timedelta(0, r.randrange(99))),
    "price": (pa.decimal128(9, 2), lambda r: Decimal(r.randrange(99999)).scaleb(-2)),
    "list": (pa.list_(pa.int32()), lambda r: [r.randrange(9) for _ in range(r.randrange(4))]),
    "names": (pa.list_(pa.string()), lambda r: [r.choice(_WORDS) for _ in range(r.randrange(3))]),
    "pair": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        lambda r: {"a": r.randrange(9), "b": r.choice(_WORDS)},
    ),
    "code": (pa.dictionary(pa.int8(), pa.string()), lambda r: r.choice("abc")),
    "map": (pa.map_(pa.string(), pa.int64()), lambda r: [("k", r.randrange(9))]),
    "view": (pa.string_view(), lambda r: r.choice(_WORDS)),
    "bytes": (pa.binary(), lambda r: r.randbytes(r.randrange(5))),
    "large": (pa.large_string(), lambda r: r.choice(_WORDS)),
    "fixed": (pa.binary(3), lambda r: r.randbytes(3)),
    "three": (pa.list_(pa.float32(), 3), lambda r: [0.5, 1.0, r.random()]),
}
_FLAT: Final = ("word", "number", "ratio", "flag", "day", "at", "price")
_TYPED_ONLY: Final = ("code", "map", "view", "bytes", "large", "fixed", "three")


def _type(name: str) -> pa.DataType:
    return _CONTROL[name] if name in _CONTROL else _COLUMNS[name][0]


def _chosen(random_: random.Random, is_stream: bool, is_flat: bool) -> set[str]:
    payload = random_.sample(_FLAT if is_flat else list(_COLUMNS), random_.randrange(1, 5))
    return {*payload, *(_CONTROL if is_stream else ("_vs", "_ve"))}


def _events(rows: int, random_: random.Random, is_stream: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    now = 0
    while len(found) < rows:
        now += random_.randrange(3)
        payload = {
            name: None if random_.random() < 0.1 else make(random_) for name, (_, make) in _COLUMNS.items()
        }
        found.append({"_kind": "insert", "_vs": now, "_ve": now + random_.randrange(1, 9), **payload})
        if is_stream and random_.random() < 0.2:
            found.append({**found[-1], "_kind": "retract", "_new_ve": now + random_.randrange(9)})
            found[-1]["_new_ve"] = now if found[-1]["_new_ve"] == found[-1]["_ve"] else found[-1]["_new_ve"]
        if is_stream and random_.random() < 0.1:
            found.append({"_kind": "cti", "_vs": now})
    return found[:rows]


def _json(table: pa.Table, random_: random.Random) -> bytes:
    lines = [json.dumps(row, default=str, ensure_ascii=random_.random() < 0.5) for row in _plain(table)]
    return "\n".join(lines).encode() + b"\n"


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    keep = [n for n in table.column_names if n not in _TYPED_ONLY]
    rows: list[dict[str, Any]] = table.select(keep).to_pylist()
    return rows


def _csv(table: pa.Table, random_: random.Random) -> bytes:
    sink = BytesIO()
    style = random_.choice(("needed", "all_valid"))
    pcsv.write_csv(table, sink, pcsv.WriteOptions(quoting_style=style))
    text = sink.getvalue()
    return text.replace(b"\n", b"\r\n") if random_.random() < 0.1 else text


def _parquet(table: pa.Table, random_: random.Random) -> bytes:
    sink = BytesIO()
    pq.write_table(
        table,
        sink,
        compression=random_.choice(("none", "none", "snappy", "lz4", "zstd", "gzip")),
        use_dictionary=random_.random() < 0.5,
        data_page_version=random_.choice(("1.0", "2.0")),
        data_page_size=random_.choice((64, 1 << 20)),
        write_page_checksum=random_.random() < 0.3,
        write_page_index=random_.random() < 0.3,
        row_group_size=random_.choice((7, 1000)),
        store_schema=random_.random() < 0.7,
    )
    return sink.getvalue()


def _arrow(table: pa.Table, random_: random.Random) -> bytes:
    sink = BytesIO()
    options = pa.ipc.IpcWriteOptions(
        compression=random_.choice((None, None, "lz4", "zstd")), emit_dictionary_deltas=True
    )
    form = random_.choice((pa.ipc.new_file, pa.ipc.new_stream))
    with form(sink, table.schema, options=options) as writer:
        for number, batch in enumerate(table.to_batches(max_chunksize=random_.choice((7, 1000)))):
            writer.write_batch(_with_growing_dictionary(batch, number))
    return sink.getvalue()


def _with_growing_dictionary(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    """The dictionary of a later batch has words more, which the file holds as a difference."""
    at = batch.schema.get_field_index("code")
    if at < 0:
        return batch
    words = pa.array([*"abc", *(f"more{i}" for i in range(number))])
    indices = pc.index_in(batch.column(at).dictionary_decode(), words).cast(pa.int8())
    return batch.set_column(at, batch.schema.field(at), pa.DictionaryArray.from_arrays(indices, words))


_ENCODERS: Final = {"jsonl": _json, "csv": _csv, "parquet": _parquet, "arrow": _arrow}
