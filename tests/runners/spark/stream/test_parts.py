"""Aggregates in parts on real Spark: with a key that has nine of ten events, and without a key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import recension as rc
from recension.gate.files import read_history
from recension.testing import assert_equivalent

READINGS = rc.source("readings", {"site": "string", "value": "float64"}, start="at", end="until")
ANSWERS: dict[str, Any] = {"n": rc.count(), "total": rc.sum("value"), "mean": rc.mean("value")}
FILES, ROWS = 3, 400


def _write_readings(folder: Path) -> pa.Table:
    """Of one site, and some of others; small values beside such as swallow their digits."""
    numbers = range(FILES * ROWS)
    columns = {
        "site": ["hot" if n % 10 else f"cold {n % 7}" for n in numbers],
        "value": [(0.1, -1e15, 1e15, 3e-4)[n % 4] for n in numbers],
        "at": [n // 4 for n in numbers],
        "until": [n // 4 + 1 + n % 5 for n in numbers],
    }
    table = pa.table(columns)
    folder.mkdir()
    for number in range(FILES):
        file = folder / f"{number}.parquet"
        pq.write_table(table.slice(number * ROWS, ROWS), file)
        os.utime(file, (number, number))  # Spark takes the older first
    return table


def _run(spark: Any, tmp_path: Path, name: str, query: rc.Stream, **how: Any) -> Any:
    inputs, watermark = {"readings": str(tmp_path / "in")}, {"readings": 10}
    answers = rc.spark.stream(spark, query, inputs, shards=3, watermark=watermark, files_per_batch=1, **how)
    where: dict[str, Any] = {"checkpoint": tmp_path / f"{name} ck", "trigger": {"availableNow": True}}
    running = rc.spark.write_history(answers, tmp_path / name, **where)
    running.awaitTermination()
    return running


def test_a_key_with_most_of_the_events(spark: Any, tmp_path: Path) -> None:
    table = _write_readings(tmp_path / "in")
    by_site = READINGS.group_by("site").tumbling(20).agg(**ANSWERS, speculate="eager")
    running = _run(spark, tmp_path, "by site", by_site, skew="site")
    local = rc.run(by_site, {"readings": table})
    assert_equivalent(read_history(tmp_path / "by site").to_events(), local.history().to_events())
    first, second = rc.spark.metrics(running).levels
    assert first.rows.total() == FILES * ROWS
    assert first.largest_share < 0.4
    assert second.rows.total() < 600


def test_without_a_key_and_waiting(spark: Any, tmp_path: Path) -> None:
    table = _write_readings(tmp_path / "in")
    whole = READINGS.agg(**ANSWERS)
    running = _run(spark, tmp_path, "whole", whole)
    assert "partial aggregate" in " ".join(line.name for line in rc.spark.metrics(running).operators)
    # Up to the watermark, which stays 10 behind the last start.
    local = [e for e in rc.run(whole, {"readings": table}, close=True).history().to_events() if e.ve <= 299]
    assert_equivalent(read_history(tmp_path / "whole").to_events(), local)
