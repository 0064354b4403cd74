"""What is written is what is read, in every format."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recension.core.batch import EventBatch, concat, from_elements
from recension.core.events import Cti, Element, Event, ExternalCti, Insert, Retract
from recension.core.formats import write_history, write_stream
from recension.core.history import History
from recension.core.rowhash import rows_equal
from recension.core.ticks import BEGINNING, FOREVER
from recension.gate.files import open_stream, read_history

TEXT = ["csv", "jsonl"]
TYPED = ["parquet", "arrow", "arrows"]
EVERY = [*TEXT, *TYPED]
TIME_TYPES = [pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC")]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    [
        "",
        " ",
        '"',
        '""',
        ",",
        "\n",
        "\r\n",
        "a\nb",
        "null",
        "NaN",
        "007",
        "é∞𝄞",
        "\\",
        "\x01",
        "insert",
        "2024-01-01",
    ]
)
floats = st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e300, 5e-324, 0.1])


def integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)


def instants(per_second: int) -> st.SearchStrategy[int]:
    least, greatest = -62_135_596_800 * per_second, 253_402_300_800 * per_second - 1
    return st.integers(max(least, -(FOREVER // per_second) * per_second), min(greatest, FOREVER))


SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), integers(64)),
    (pa.int8(), integers(8)),
    (pa.uint64(), integers(64, signed=False)),
    (pa.float64(), floats),
    (pa.float32(), st.floats(width=32)),
    (pa.bool_(), st.booleans()),
    (pa.string(), texts),
    (pa.large_string(), texts),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), instants(10**6)),
    (pa.timestamp("s", "Europe/Paris"), instants(1)),
    (pa.timestamp("ns", "UTC"), instants(10**9)),
    (pa.time64("us"), st.times()),
    (pa.duration("ms"), integers(40)),
    (pa.decimal128(20, 4), st.decimals(-(10**15), 10**15, places=4)),
    (pa.null(), st.none()),
]
NESTED: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.list_(pa.int64()), st.lists(integers(64) | st.none(), max_size=3)),
    (pa.list_(pa.timestamp("us")), st.lists(instants(10**6) | st.none(), max_size=3)),
    (
        pa.list_(pa.list_(pa.string())),
        st.lists(st.lists(texts | st.none(), max_size=2) | st.none(), max_size=2),
    ),
    (
        pa.struct([("x", pa.date32()), ("y", pa.float64())]),
        st.fixed_dictionaries({"x": st.dates() | st.none(), "y": floats | st.none()}),
    ),
]
BYTES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [(pa.binary(), st.binary(max_size=5))]
BY_FORMAT = {"csv": SCALARS, "jsonl": SCALARS + NESTED} | dict.fromkeys(TYPED, SCALARS + NESTED + BYTES)


@st.composite
def streams(draw: st.DrawFn, form: str, *, lowest: int = BEGINNING) -> EventBatch:
    """Elements of every kind, in no contradiction to their CTIs, over payloads of any type."""
    columns = draw(st.lists(st.sampled_from(BY_FORMAT[form]), max_size=4))
    schema = pa.schema([(f"c{i}", kind) for i, (kind, _) in enumerate(columns)])
    payloads = st.fixed_dictionaries({f"c{i}": values | st.none() for i, (_, values) in enumerate(columns)})
    rest = draw(st.integers(-100, 100))
    before = draw(st.lists(elements(payloads, lowest), max_size=5))
    after = draw(st.lists(elements(payloads, rest), max_size=3))
    end: list[Element] = [Cti(FOREVER)] if draw(st.booleans()) else []
    return from_elements([*before, Cti(rest), *after, *end], schema)


@st.composite
def elements(draw: st.DrawFn, payloads: st.SearchStrategy[dict[str, Any]], lowest: int) -> Element:
    times = st.integers(lowest, FOREVER) | st.sampled_from([lowest, FOREVER - 1, FOREVER])
    if draw(st.integers(0, 9)) == 0:
        vs, ve = draw(_ascending(times, 2))
        return ExternalCti(vs, ve, draw(st.integers(0, 2**40)))
    if draw(st.booleans()):
        vs, ve = draw(_ascending(times, 2))
        return Insert(draw(payloads), vs, ve)
    vs, one, other = draw(_ascending(times, 3))
    return Retract(draw(payloads), vs, *draw(st.sampled_from([(one, other), (other, one), (one, vs)])))


def _ascending(times: st.SearchStrategy[int], size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(times, min_size=size, max_size=size, unique=True).map(sorted)


def assert_same(read: EventBatch, written: EventBatch) -> None:
    assert read.schema == written.schema
    for name in ("kind", "vs", "ve", "new_ve", "count"):
        np.testing.assert_array_equal(getattr(read, name), getattr(written, name), err_msg=name)
    assert rows_equal(read.payload, written.payload, len(read)).all(), (
        read.payload.to_pylist(),
        written.payload.to_pylist(),
    )


def there_and_back(path: Path, batch: EventBatch, time_type: pa.DataType, cut: int) -> None:
    parts = [batch.slice(0, cut), batch.slice(cut, len(batch))]
    assert write_stream(path, parts, batch.schema, time_type) == len(batch)
    reader = open_stream(path, schema=batch.schema, check_orphans=False, batch_size=3)
    assert_same(concat(list(reader)), batch)
    assert not reader.is_table
    assert not any(reader.counts.values())


@pytest.mark.parametrize("form", EVERY)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_streams(form: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    batch = data.draw(streams(form))
    time_type = data.draw(st.sampled_from(TIME_TYPES))
    cut = data.draw(st.integers(0, len(batch)))
    there_and_back(tmp_path_factory.getbasetemp() / f"stream.{form}", batch, time_type, cut)


@pytest.mark.parametrize("form", EVERY)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_histories(form: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    batch = data.draw(streams(form))
    inserts = batch.filter(batch.kind == 0)
    history = History(inserts.vs, inserts.ve, pa.Table.from_batches([inserts.payload]))
    path = tmp_path_factory.getbasetemp() / f"history.{form}"
    assert write_history(path, history, data.draw(st.sampled_from(TIME_TYPES))) == len(history)
    again = read_history(path, schema=history.schema)
    np.testing.assert_array_equal(again.vs, history.vs)
    np.testing.assert_array_equal(again.ve, history.ve)
    np.testing.assert_array_equal(again.identity(), history.identity())


@pytest.mark.parametrize("form", EVERY)
@pytest.mark.parametrize("time_type", TIME_TYPES, ids=str)
def test_time_type_is_kept(form: str, time_type: pa.DataType, tmp_path: Path) -> None:
    written = from_elements([Insert({"a": 1}, 0, 10**15), Cti(5)], pa.schema([("a", pa.int64())]))
    write_stream(tmp_path / f"s.{form}", [written], written.schema, time_type)
    reader = open_stream(tmp_path / f"s.{form}")
    assert reader.time_type == time_type
    assert_same(concat(list(reader)), written)


@pytest.mark.parametrize("form", EVERY)
def test_empty_streams(form: str, tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64())])
    assert write_stream(tmp_path / f"s.{form}", [], schema) == 0
    assert list(open_stream(tmp_path / f"s.{form}", schema=schema)) == []
    assert list(open_stream(tmp_path / f"s.{form}")) == []


@pytest.mark.parametrize("form", EVERY)
def test_without_payload_columns(form: str, tmp_path: Path) -> None:
    written = from_elements([Insert({}, 1, 5), Insert({}, 1, 5), Cti(2)], pa.schema([]))
    write_stream(tmp_path / f"s.{form}", [written], written.schema)
    assert_same(concat(list(open_stream(tmp_path / f"s.{form}"))), written)


@pytest.mark.parametrize("form", TEXT)
def test_types_that_text_shows_need_no_schema(form: str, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"i": 2**62, "f": 1.0, "g": math.nan, "b": True, "s": "x y", "n": None},
        {"i": None, "f": -math.inf, "g": 0.1, "b": None, "s": "", "n": None},
    ]
    types = {"i": "int64", "f": "float64", "g": "float64", "b": "bool", "s": "string", "n": "null"}
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in types.items()])
    written = from_elements([Insert(row, 1, 5) for row in rows], schema)
    write_stream(tmp_path / f"s.{form}", [written], schema)
    assert_same(concat(list(open_stream(tmp_path / f"s.{form}"))), written)


def test_dictionaries_are_an_encoding_not_a_type(tmp_path: Path) -> None:
    column = pa.array(["a", "b", "a"]).dictionary_encode()
    history = History(np.array([1, 2, 3]), np.array([4, 5, 6]), pa.table({"k": column}))
    for form in EVERY:
        write_history(tmp_path / f"h.{form}", history)
        again = read_history(tmp_path / f"h.{form}")
        assert again.schema == pa.schema([("k", pa.string())])
        assert again.payload["k"].to_pylist() == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("form", "kind"), [("csv", pa.binary()), ("csv", pa.list_(pa.int64())), ("jsonl", pa.binary())]
)
def test_types_a_format_cannot_hold(form: str, kind: pa.DataType, tmp_path: Path) -> None:
    path = tmp_path / f"s.{form}"
    path.write_text("what was there before")
    with pytest.raises(ValueError, match=rf"{path}: column blob: {kind}.* cannot be written"):
        write_stream(path, [], pa.schema([("blob", kind)]))
    assert path.read_text() == "what was there before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_writing_leaves_nothing(tmp_path: Path) -> None:
    far = from_elements([Insert({"t": 2**62}, 1, 2)], pa.schema([("t", pa.timestamp("us"))]))
    for form in TEXT:
        with pytest.raises(ValueError, match=r"column t: .* outside the years 1 to 9999"):
            write_stream(tmp_path / f"s.{form}", [far], far.schema)
    assert list(tmp_path.iterdir()) == []


def test_writing_into_nowhere(tmp_path: Path) -> None:
    history = History.from_events([Event({"a": 1}, 1, 2)])
    with pytest.raises(ValueError, match=r"none/h.csv: no such file or directory"):
        write_history(tmp_path / "none" / "h.csv", history)
    with pytest.raises(ValueError, match=r"h.xls: unknown format '.xls'"):
        write_history(tmp_path / "h.xls", history)
    with pytest.raises(ValueError, match=r"payload column _x: the name is reserved"):
        write_history(tmp_path / "h.csv", History.from_events([Event({"_x": 1}, 1, 2)]))


def test_decimals_keep_every_digit(tmp_path: Path) -> None:
    schema = pa.schema([("d", pa.decimal128(38, 10))])
    values = [Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001"), None]
    written = from_elements([Insert({"d": value}, 1, 2) for value in values], schema)
    for form in EVERY:
        write_stream(tmp_path / f"s.{form}", [written], schema)
        assert_same(concat(list(open_stream(tmp_path / f"s.{form}", schema=schema))), written)


def test_times_of_day_keep_their_unit(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.time32("s"))])
    written = from_elements([Insert({"t": dt.time(23, 59, 59)}, 1, 2)], schema)
    for form in EVERY:
        write_stream(tmp_path / f"s.{form}", [written], schema)
        assert_same(concat(list(open_stream(tmp_path / f"s.{form}", schema=schema))), written)
