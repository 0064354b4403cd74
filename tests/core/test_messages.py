"""Rows in the values of messages: each format, and messages that cannot be read."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recension.core.errors import RecensionError
from recension.core.formats.columns import TimeColumns
from recension.core.formats.messages import TOMBSTONE, MessageReader, header_columns
from recension.core.time_kind import AWARE

PAYLOAD = pa.schema([("k", pa.string()), ("v", pa.int64())])
ROW = {"_kind": "insert", "_vs": 1, "_ve": 5, "k": "a", "v": 7}
READ = ROW | {"_new_ve": None, "_count": None}


def values(*messages: Any) -> pa.Array:
    return pa.array([m if m is None or isinstance(m, bytes) else json.dumps(m).encode() for m in messages])


def reader(form: Any = "json", payload: pa.Schema = PAYLOAD, **how: Any) -> MessageReader:
    return MessageReader(form, payload, how.pop("times", TimeColumns()), **how)


def test_json_objects_are_rows() -> None:
    close = {"_kind": "close", "_ve": 9, "k": "a", "v": None, "other": [1, {"x": 2}]}
    found = reader().read(values(ROW, {"_kind": "cti", "_vs": 4}, close))
    assert found.bad == []
    assert found.message.tolist() == [0, 1, 2]
    assert found.rows.schema == reader().schema
    assert found.rows.to_pylist()[0] == READ
    assert [row["_vs"] for row in found.rows.to_pylist()] == [1, 4, None]


def test_a_row_without_a_kind_is_an_insert_whatever_it_comes_with() -> None:
    plain = {name: value for name, value in ROW.items() if name != "_kind"}
    for others in ([], [{"_kind": "cti", "_vs": 1}]):
        assert reader().read(values(plain, *others)).rows.to_pylist()[0] == READ


def test_line_breaks_between_the_parts_of_a_value() -> None:
    found = reader().read(values(json.dumps(ROW, indent=1).encode(), b'{"_vs": 2,\r\n"k": "b\\n"}'))
    assert [row["k"] for row in found.rows.to_pylist()] == ["a", "b\n"]


@pytest.mark.parametrize(
    "message",
    [b"", b" ", b"{", b"[1]", b"7", b"\xff\xfe", b'{"_vs": 1}{"_vs": 2}', {"_vs": "soon"}, ROW | {"v": "x"}],
    ids=str,
)
def test_a_message_that_cannot_be_read_leaves_the_others(message: Any) -> None:
    found = reader().read(values(*[ROW] * 5, message, *[ROW] * 4, None))
    assert [at for at, _ in found.bad] == [5, 10]
    assert all(reason and "\n" not in reason for _, reason in found.bad)
    assert found.bad[1][1] == TOMBSTONE
    assert found.message.tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert found.rows.to_pylist() == [READ] * 9


def test_integers_beyond_a_float_stay_exact() -> None:
    found = reader().read(values({"_vs": 1, "v": 2**53 + 1}, {"_vs": 1, "v": 1.5}))
    assert found.rows.column("v").to_pylist() == [2**53 + 1]
    assert [at for at, _ in found.bad] == [1]


def test_times_are_of_the_kind_of_the_source() -> None:
    spelled, ticks = {"_vs": "2024-03-31T00:00:00Z", "k": "a"}, {"_vs": 3, "k": "b"}
    found = reader(kind=AWARE).read(values(spelled, ticks))
    assert found.rows.column("_vs").type == AWARE
    assert found.rows.column("k").to_pylist() == ["a"]
    assert [at for at, _ in found.bad] == [1]
    found = reader().read(values(spelled, ticks))
    assert found.rows.column("k").to_pylist() == ["b"]


def test_columns_of_times_of_ones_own() -> None:
    times = TimeColumns.of("at", None, PAYLOAD)
    found = reader(times=times).read(values({"at": 3, "k": "a", "v": 1}, ROW | {"at": 3}))
    assert found.rows.to_pylist() == [{"at": 3, "k": "a", "v": 1}]
    assert [(at, "start" in reason) for at, reason in found.bad] == [(1, True)]


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows))


def arrow(rows: pa.Table, new: Any = pa.ipc.new_stream) -> bytes:
    sink = pa.BufferOutputStream()
    with new(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def parquet(rows: pa.Table) -> bytes:
    sink = BytesIO()
    pq.write_table(rows, sink)
    return sink.getvalue()


@pytest.mark.parametrize("encode", [arrow, lambda rows: arrow(rows, pa.ipc.new_file), parquet])
def test_tables_of_many_rows(encode: Any) -> None:
    two, one = encode(table(ROW, ROW | {"v": 8})), encode(table({"_vs": 2, "k": "b", "v": 9}))
    misspelt = encode(table({"_vs": 2, "K": "b", "v": 9}))
    found = reader("arrow").read(values(two, two[:-9], one, misspelt, b"", encode(table(ROW).slice(1))))
    assert found.message.tolist() == [0, 0, 2]
    assert found.rows.column("v").to_pylist() == [7, 8, 9]
    assert [at for at, _ in found.bad] == [1, 3, 4]
    assert "no column k (did you mean 'K'?)" in found.bad[1][1]


def test_avro() -> None:
    avro = pytest.importorskip("fastavro", reason="fastavro is not installed: pip install 'recension[avro]'")
    number = ["null", "long"]
    fields = [{"name": n, "type": ["null", "string"] if n in ("_kind", "k") else number} for n in ROW]
    schema = {"type": "record", "name": "R", "fields": fields}

    def encode(row: dict[str, Any], before: bytes = b"") -> bytes:
        body = BytesIO()
        avro.schemaless_writer(body, avro.parse_schema(schema), row)
        return before + body.getvalue()

    found = reader("avro", avro_schema=json.dumps(schema)).read(
        values(encode(ROW), b"\x02", encode(ROW, b"x"))
    )
    assert found.rows.to_pylist() == [READ]
    assert [at for at, _ in found.bad] == [1, 2]
    known = b"\0\0\0\0\7"
    found = reader("confluent-avro", avro_schema=schema).read(values(encode(ROW, known), encode(ROW)))
    assert found.rows.to_pylist() == [READ]
    assert "schema id" in found.bad[0][1]
    with pytest.raises(RecensionError, match="need their schema"):
        reader("avro")
    with pytest.raises(RecensionError, match="cannot be used"):
        reader("avro", avro_schema={"type": "nothing"})


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(RecensionError, match="not 'xml'"):
        reader("xml")
    with pytest.raises(RecensionError, match="for messages of Avro"):
        reader("json", avro_schema={})


def test_headers_by_name() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array(
        [[("_run", b"r"), ("_seq", b"1"), ("_seq", b"2")], None, [], [("_seq", None)], [("_run", b"q")]], kind
    )
    run, seq = header_columns(headers, ["_run", "_seq"])
    assert run.to_pylist() == ["r", None, None, None, "q"]
    assert seq.to_pylist() == ["2", None, None, None, None]
    assert header_columns(headers.slice(2), ["_run"])[0].to_pylist() == [None, None, "q"]
    assert np.array_equal(header_columns(pa.nulls(2), ["_run"])[0].is_null(), [True, True])
