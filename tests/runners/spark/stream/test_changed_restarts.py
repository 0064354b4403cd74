"""A query started again where something has changed: settings of the session, or what its input lies in."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from tests.runners.spark.sinks import feeding
from tests.runners.spark.sinks.test_rollback import state_of

import recension as rc
from recension.api.stream import Stream
from recension.core.errors import FormatError, RecensionError, SchemaError
from recension.core.formats.columns import neutral_schema
from recension.core.time_kind import AWARE
from recension.runners.spark.sinks.micro_batch import micro_batch
from recension.runners.spark.stream.topology import Inlet, fingerprint_of, require_same, topology

COLUMNS = {"k": "string", "at": AWARE, "words": pa.list_(pa.string())}


def _asked() -> Stream:
    return rc.source("s", COLUMNS).where(rc.col("k") != "x")


def _rows(number: int) -> pa.Table:
    """Two events and a CTI."""
    times = [number * 100, number * 100 + 1, number * 100 + 50]
    return pa.table(
        {
            "_kind": ["insert", "insert", "cti"],
            "_vs": pa.array(times, AWARE),
            "_ve": pa.array([times[0] + 30, times[1] + 30, None], AWARE),
            "k": ["a", "b", None],
            "at": pa.array([times[0], None, None], AWARE),
            "words": pa.array([["one", None], [], None], pa.list_(pa.string())),
        }
    )


def _put(folder: Path, number: int, ending: str = "parquet") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file, rows = folder / f"{number:04}.{ending}", _rows(number)
    if ending == "parquet":
        pq.write_table(rows, file)
    else:
        lines = [json.dumps(row, default=lambda time: time.isoformat()) for row in rows.to_pylist()]
        file.write_text("\n".join(lines) + "\n")
    os.utime(file, (1_000_000 + number, 1_000_000 + number))
    return file


@contextmanager
def _set(spark: Any, **settings: str) -> Iterator[None]:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    before = {name: spark.conf.get(name) for name in named}
    for name, value in named.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def _run(spark: Any, folder: Path, given: Path | DataFrame) -> None:
    out = rc.spark.stream(spark, _asked(), {"s": given}, shards=2, files_per_batch=1)
    where: dict[str, Any] = {"checkpoint": folder / "ck", "trigger": {"availableNow": True}}
    rc.spark.write(out, changelog=folder / "log", history=folder / "table", **where).awaitTermination()


@pytest.mark.slow
def test_whatever_lies_there_and_whatever_the_session_says(spark: Any, tmp_path: Path) -> None:
    """Parquet; JSON Lines beside it, in a session of another zone with large text; nothing; a DataFrame."""
    place, elsewhere = tmp_path / "in", tmp_path / "archive"
    place.mkdir()
    with pytest.raises(FormatError, match="in: a directory without data files"):
        _run(spark, tmp_path, place)
    _put(place, 0)
    _run(spark, tmp_path, place)
    _put(place, 1, "jsonl")
    _put(place, 2)
    with _set(
        spark,
        spark__sql__session__timeZone="America/New_York",
        spark__sql__execution__arrow__useLargeVarTypes="true",
    ):
        _run(spark, tmp_path, place)
    place.rename(elsewhere)
    place.mkdir()
    _run(spark, tmp_path, place)
    _put(place, 3)
    schema = spark.read.parquet(str(place)).withColumnsRenamed({"words": "Words", "k": "K"}).schema
    _run(spark, tmp_path, spark.readStream.schema(schema).parquet(str(place)))
    expected = rc.run(_asked(), {"s": pa.concat_tables([_rows(number) for number in range(4)])}).history()
    for table in ("log", "table"):
        feeding.assert_same(feeding.read(tmp_path / table), expected)
    parts = [pq.read_schema(file) for file in (tmp_path / "log").glob("*.parquet")]
    assert len(parts) > 2
    assert {part.remove_metadata() for part in parts} == {neutral_schema(parts[0]).remove_metadata()}


def test_rows_of_a_micro_batch_are_written_in_types_of_the_query_alone() -> None:
    """Not in those of the session that computed them."""
    kinds = {
        "_vs": pa.timestamp("us", "America/New_York"),
        "_batch": pa.int64(),
        "_seq": pa.int64(),
        "text": pa.large_string(),
        "nested": pa.struct([("a", pa.list_(pa.large_string())), ("b", pa.timestamp("us", "Asia/Tokyo"))]),
        "named": pa.map_(pa.large_string(), pa.large_binary()),
    }
    row = {
        "_vs": 5,
        "_batch": 0,
        "_seq": 0,
        "text": "é",
        "nested": {"a": ["x"], "b": 7},
        "named": [("n", b"")],
    }
    table = pa.table({name: pa.array([row[name]], kind) for name, kind in kinds.items()})
    rows = micro_batch("q", 0, table).rows
    assert rows.schema.field("_vs").type == AWARE
    assert rows.schema.field("text").type == pa.string()
    assert rows.schema.field("nested").type == pa.struct([("a", pa.list_(pa.string())), ("b", AWARE)])
    assert rows.schema.field("named").type == pa.map_(pa.string(), pa.binary())
    assert rows.cast(table.schema).equals(table.to_batches()[0])


def test_parts_in_two_zones_are_one_stream(tmp_path: Path) -> None:
    """An earlier version wrote some in the zone of the session."""
    tokyo = pa.timestamp("us", "Asia/Tokyo")
    for number, zone in enumerate((AWARE, tokyo)):
        rows = _rows(number)
        rows = rows.set_column(rows.schema.get_field_index("at"), "at", rows["at"].cast(zone))
        pq.write_table(rows, tmp_path / f"{number}.parquet")
    found = feeding.read(tmp_path)
    expected = rc.run(_asked(), {"s": pa.concat_tables([_rows(number) for number in range(2)])}).history()
    feeding.assert_same(found, expected)


def _owner(delay: int | None) -> str:
    return topology([_asked().plan], 2, {"s": Inlet(delay, kind=AWARE)}).owner


def test_a_watermark_is_not_added_to_a_checkpoint_nor_taken_away() -> None:
    """What it has made of CTIs stays, and refuses rows that the query without it takes."""
    require_same(_owner(5), _owner(9))
    with pytest.raises(RecensionError, match=r"made without a watermark for 's', .*: leave it out, or start"):
        require_same(_owner(None), _owner(5))
    with pytest.raises(RecensionError, match=r"made with a watermark for 's', .*: give it, 5 ticks"):
        require_same(_owner(5), _owner(None))
    known = json.loads(_owner(None))
    of_before = {name: known[name] for name in ("format", "shards", "plan")}
    require_same(json.dumps(of_before, ensure_ascii=False), _owner(5))
    assert fingerprint_of(_owner(5)) == fingerprint_of(json.dumps(of_before, ensure_ascii=False))


def test_it_is_refused_before_anything_changes(spark: Any, tmp_path: Path) -> None:
    _put(tmp_path / "in", 0)
    _run(spark, tmp_path, tmp_path / "in")
    before = state_of(tmp_path)
    late = rc.spark.stream(spark, _asked(), {"s": tmp_path / "in"}, shards=2, watermark={"s": "1s"})
    where: dict[str, Any] = {"checkpoint": tmp_path / "ck", "trigger": {"availableNow": True}}
    with pytest.raises(RecensionError, match="made without a watermark for 's'"):
        rc.spark.write(late, changelog=tmp_path / "log", history=tmp_path / "table", **where)
    assert state_of(tmp_path) == before


def test_columns_are_found_as_spark_finds_them(spark: Any) -> None:
    """Whatever their case, unless the session is case-sensitive: then the message names them."""
    source = rc.source("s", {"k": "string"}, start="ts")
    frame = spark.readStream.format("rate").load().selectExpr("timestamp AS TS", "'a' AS K")
    assert "k" in rc.spark.stream(spark, source, {"s": frame}, shards=1).columns
    finite = spark.createDataFrame([(1, "a")], "TS long, K string")
    found = rc.spark.batch(spark, source, {"s": finite}).collect()
    assert [row.asDict() for row in found] == [{"_vs": 1, "_ve": 2, "k": "a"}]
    with (
        _set(spark, spark__sql__caseSensitive="true"),
        pytest.raises(SchemaError, match=r"s: no column k \(did you mean 'K'\?\); there are TS, K"),
    ):
        rc.spark.stream(spark, source, {"s": frame}, shards=1)
