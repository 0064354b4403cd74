"""Due by the clock on Spark: what is due comes though no row comes, after a restart too."""

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


def start(spark: Any, query: rc.Stream, folder: Path, trigger: dict[str, Any] | None = None) -> Any:
    answers = rc.spark.stream(spark, query, {"s": folder / "in"}, shards=2)
    return rc.spark.write(
        answers,
        history=folder / "table",
        checkpoint=folder / "checkpoint",
        trigger=trigger or {"processingTime": "1 second"},
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
    """One comes while the query runs; the other when it has been started again, and no row since."""
    past, now = datetime.now(UTC) - timedelta(days=1), datetime.now(UTC)
    soon, later = (now + timedelta(seconds=seconds) for seconds in (25, 50))
    put(tmp_path / "in", 0, {"a": past, "b": soon, "c": later})
    shown: set[datetime] = set()
    for awaited in ([past, soon], [later]):
        running = start(spark, QUERIES[name], tmp_path)
        try:
            for alert in awaited:
                wait_for(running, lambda alert=alert: alert in starts(spark, tmp_path))  # type: ignore[misc]
                assert datetime.now(UTC) >= alert
                shown |= {alert}
        finally:
            running.stop()
    assert starts(spark, tmp_path) == {past, soon, later} == shown


def test_a_query_that_is_to_end_ends(spark: Any, tmp_path: Path) -> None:
    """Started once more, later, it shows what has become due."""
    past, soon = datetime.now(UTC) - timedelta(days=1), datetime.now(UTC) + timedelta(seconds=20)
    put(tmp_path / "in", 0, {"a": past, "b": soon})
    assert start(spark, QUERIES["one stage"], tmp_path, {"availableNow": True}).awaitTermination(PATIENCE)
    time.sleep(max(0.0, (soon - datetime.now(UTC)).total_seconds()))
    assert start(spark, QUERIES["one stage"], tmp_path, {"availableNow": True}).awaitTermination(PATIENCE)
    assert starts(spark, tmp_path) == {past, soon}
