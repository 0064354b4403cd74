"""Answers leave the last operator as rows where they can, else as packets; a reader sees no difference."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recension as rc
from recension.gate.files import open_stream
from recension.runners.spark.session import prepare_streaming
from recension.runners.spark.types import arrow_carrier

COLUMNS = {
    "k": "int64",
    "name": "string",
    "x": "float64",
    "raw": "binary",
    "is_new": "bool",
    "small": "int16",
}
NAMES = ["élan", None, "", "b"]
VALUES = [math.nan, None, -math.inf, 0.25]


def _written(folder: Path, **more: pa.Array) -> None:
    folder.mkdir()
    stamps = [datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(4)]
    columns = {
        "ts": pa.array(stamps, pa.timestamp("us", "UTC")),
        "k": pa.array([1, 2, 3, None]),
        "name": pa.array(NAMES),
        "x": pa.array(VALUES),
        "raw": pa.array([b"\x00", None, b"", b"\xff"]),
        "is_new": pa.array([True, False, None, True]),
        "small": pa.array([-1, None, 2**15 - 1, 0], pa.int16()),
    }
    pq.write_table(pa.table(columns | more), folder / "0.parquet")


def _answered(spark: Any, query: rc.Stream, folder: Path) -> tuple[pa.Table, Any]:
    found = rc.spark.stream(spark, query, {"s": str(folder / "in")}, shards=1, watermark={"s": "1s"})
    plan = found._jdf.queryExecution().toString()
    where: dict[str, Any] = {"checkpoint": folder / "ck", "trigger": {"availableNow": True}}
    running = rc.spark.write_changelog(found, folder / "log", **where)
    running.awaitTermination()
    assert rc.spark.metrics(running).turns == 1
    rows = (
        rc.spark.read_changelog(spark, folder / "log")
        .toArrow()
        .sort_by([("_batch", "ascending"), ("_seq", "ascending")])
    )
    return rows, plan


@pytest.mark.parametrize("kind", ["rows", "packets"])
def test_every_kind_of_column_arrives_as_it_is(spark: Any, tmp_path: Path, kind: str) -> None:
    lists = pa.array([[1], None, [], [2, None]], pa.list_(pa.int64()))
    more = {} if kind == "rows" else {"all": lists}
    _written(tmp_path / "in", **more)
    source = rc.source("s", COLUMNS | {name: column.type for name, column in more.items()}, start="ts")
    rows, plan = _answered(spark, source, tmp_path)
    assert ("MapInArrow" in plan) == (kind == "packets")
    events, promise = rows.slice(0, 4), rows.slice(4).to_pylist()
    given = pq.read_table(tmp_path / "in")
    for name in source.schema.names:
        # Spark has no column that is never null, so that only the values can be compared.
        assert repr(events[name].to_pylist()) == repr(given[name].to_pylist()), name
    assert [(row["_kind"], row["_vs"]) for row in promise] == [
        ("cti", datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC))
    ]
    assert "_report" not in rows.schema.names


CARRIED = {
    "tiny": pa.array([200, None, 0, 1], pa.uint8()),
    "huge": pa.array([2**64 - 1, None, 0, 1], pa.uint64()),
    "half": pa.array([0.5, None, 1.0, 2.0], pa.float16()),
    "day": pa.array([datetime(2026, 1, 1, 5), None, None, None], pa.timestamp("s")),
    "tag": pa.array([b"abc", None, b"def", b"ghi"], pa.binary(3)),
}


def test_types_that_spark_lacks_are_carried(spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([(name, column.type) for name, column in CARRIED.items()])
    own = pa.table({"_vs": [0, 1, 2, 3], **CARRIED})
    carried = {name: column.cast(arrow_carrier(column.type, name)) for name, column in CARRIED.items()}
    for name, rows in {"folder": own, "frame": pa.table({"_vs": [4, 5, 6, 7], **carried})}.items():
        (tmp_path / name).mkdir()
        pq.write_table(rows, tmp_path / name / "0.parquet")
    ddl = "_vs long, tiny smallint, huge decimal(20, 0), half float, day timestamp_ntz, tag binary"
    frame = spark.readStream.schema(ddl).parquet(str(tmp_path / "frame"))
    query = rc.source("folder", schema).union(rc.source("frame", schema))
    given = {"folder": str(tmp_path / "folder"), "frame": frame}
    found = rc.spark.stream(spark, query, given, shards=1)
    where: dict[str, Any] = {"checkpoint": tmp_path / "ck", "trigger": {"availableNow": True}}
    rc.spark.write_changelog(found, tmp_path / "log", **where).awaitTermination()
    (read,) = open_stream(tmp_path / "log", schema=schema)
    rows = pa.table(read.payload).take(np.argsort(read.vs))
    assert {name: rows[name].to_pylist() for name in CARRIED} == {
        name: column.to_pylist() * 2 for name, column in CARRIED.items()
    }


REFUSED = [pa.timestamp("ns"), pa.date64(), pa.time64("us"), pa.duration("us"), pa.decimal256(50, 2)]


@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_types_without_a_carrier_are_refused_beforehand(spark: Any, tmp_path: Path, kind: Any) -> None:
    pq.write_table(pa.table({"_vs": [0], "at": pa.nulls(1, pa.int32())}), tmp_path / "0.parquet")
    with pytest.raises(rc.RecensionError, match=r"column at is .*, which Spark cannot hold; cast it first"):
        rc.spark.stream(spark, rc.source("s", {"at": kind}), {"s": str(tmp_path)}, shards=1)


def test_how_the_files_of_a_checkpoint_are_written_is_left_to_spark(spark: Any) -> None:
    """Spark's own way replaces what an attempt left that failed; others that it has do not."""
    prepare_streaming(spark)
    assert spark.conf.get("spark.sql.streaming.checkpointFileManagerClass", None) is None
