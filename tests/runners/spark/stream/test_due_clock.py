"""Due by the clock on Spark: what is due comes though no row comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recension as rc

SCHEMA = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC"))])
QUERIES = {
    "one stage": rc.source("s", {"k": "string"}, start="at").due(by="clock"),
    "two stages": rc.source("s", {"k": "string"}, start="at")
    .group_by("k")
    .agg(n=rc.count(), speculate="eager")
    .due(by="clock")
    .agg(m=rc.count(), speculate="eager"),
}
PATIENCE = 120.0


def put(folder: Path, number: int, rows: dict[str, datetime]) -> None:
    folder.mkdir(exist_ok=True)
    table = pa.table([list(rows), list(rows.values())], schema=SCHEMA)
    pq.write_table(table, folder / f".{number:04}.parquet")
    (folder / f".{number:04}.parquet").rename(folder / f"{number:04}.parquet")


def start(spark: Any, query: rc.Stream, folder: Path) -> Any:
    answers = rc.spark.stream(spark, query, {"s": folder / "in"}, shards=2)
    return rc.spark.write(
        answers,
        history=folder / "table",
        checkpoint=folder / "checkpoint",
        trigger={"processingTime": "1 second"},
    )


def starts(spark: Any, folder: Path) -> set[datetime]:
    """What the table shows: the starts of its rows."""
    try:
        rows = rc.spark.read_history(spark, folder / "table").toArrow().to_pylist()
    except rc.RecensionError:
        return set()  # nothing was committed yet
    return {row["_vs"] for row in rows}


def wait_for(running: Any, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert running.exception() is None, running.exception()
        assert time.monotonic() < deadline, [p["numInputRows"] for p in running.recentProgress]
        time.sleep(0.3)


@pytest.mark.parametrize("name", QUERIES)
def test_an_alert_comes_though_no_row_comes(spark: Any, tmp_path: Path, name: str) -> None:
    past, soon = datetime.now(UTC) - timedelta(days=1), datetime.now(UTC) + timedelta(seconds=30)
    put(tmp_path / "in", 0, {"a": past, "b": soon})
    running = start(spark, QUERIES[name], tmp_path)
    try:
        wait_for(running, lambda: past in starts(spark, tmp_path))
        assert soon not in starts(spark, tmp_path) or datetime.now(UTC) >= soon
        wait_for(running, lambda: soon in starts(spark, tmp_path))
        assert datetime.now(UTC) >= soon
        assert running.lastProgress["numInputRows"] == 0
    finally:
        running.stop()
