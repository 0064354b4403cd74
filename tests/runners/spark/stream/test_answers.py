"""Answers leave the last operator as rows where they can, else as packets; a reader sees no difference."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recension as rc
from recension.runners.spark.session import FILE_MANAGER, prepare_streaming

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


def test_a_local_disk_has_its_files_renamed_without_starting_processes(spark: Any) -> None:
    spark.conf.unset(FILE_MANAGER)
    prepare_streaming(spark)
    ours = spark.conf.get(FILE_MANAGER)
    assert ours.endswith("FileSystemBasedCheckpointFileManager")
    own = ours.replace("FileSystemBased", "FileContextBased")
    spark.conf.set(FILE_MANAGER, own)
    prepare_streaming(spark)
    assert spark.conf.get(FILE_MANAGER) == own
    spark.conf.set(FILE_MANAGER, ours)
