"""Input that is not as it should be: told in a line, and nothing is lost by it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from tests.runners.spark.sinks import feeding
from tests.runners.spark.stream import driver

import recension as rc
from recension.api.stream import Stream
from recension.core.batch import EventBatch, concat, from_elements
from recension.core.errors import RecensionError
from recension.core.events import Element
from recension.runners.spark.stream.metrics import pipeline_metrics

SCHEMA = pa.schema([("k", pa.int64())])


def _batch(*elements: Element) -> EventBatch:
    return from_elements(list(elements), SCHEMA)


def _counted(name: str = "s", **more: Any) -> Stream:
    return rc.source(name, SCHEMA, **more).group_by("k").agg(n=rc.count(), speculate="eager")


GOOD = [
    _batch(rc.Insert({"k": 1}, 1, 9), rc.Insert({"k": 2}, 2, 9), rc.Cti(5)),
    _batch(rc.Insert({"k": 1}, 6, 20), rc.Insert({"k": 2}, 7, 9), rc.Cti(8)),
    _batch(rc.Insert({"k": 2}, 8, 30), rc.Insert({"k": 3}, 9, 12), rc.Insert({"k": 1}, 11, 15)),
    _batch(rc.Retract({"k": 2}, 8, 30, 14), rc.Cti(40)),
]
# Its second row comes too late: the file before promised that nothing changes before 8.
LATE = _batch(rc.Insert({"k": 2}, 8, 30), rc.Insert({"k": 3}, 3, 12), rc.Insert({"k": 1}, 11, 15))


class Pipeline:
    """A query over the files of a folder, started again and again on one checkpoint."""

    def __init__(self, spark: Any, folder: Path, kind: str) -> None:
        self._spark, self._folder, self._kind = spark, folder, kind
        for number, batch in enumerate(GOOD):
            driver.put(folder / "in", number, batch)

    def run(self) -> str:
        """What stopped it, in one line; nothing if it took all files."""
        place = self._folder / "in"
        given = str(place) if self._kind == "folder" else self._frame(place)
        where: dict[str, Any] = {"checkpoint": self._folder / "ck", "trigger": {"availableNow": True}}
        try:
            answers = rc.spark.stream(self._spark, _counted(), {"s": given}, shards=2, files_per_batch=1)
            rc.spark.write_history(answers, self._folder / "table", **where).awaitTermination()
        except StreamingQueryException as why:
            return str(rc.spark.reason_of(why))
        except RecensionError as why:
            return str(why)
        return ""

    def _frame(self, place: Path) -> Any:
        schema = self._spark.read.parquet(str(place / "0000.parquet")).schema
        reader = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.option("ignoreMissingFiles", "true").parquet(str(place))

    def check(self, batches: list[EventBatch]) -> None:
        expected = rc.run(_counted(), {"s": concat(batches)}).history()
        feeding.assert_same(feeding.read(self._folder / "table"), expected)


def _corrupt(file: Path) -> None:
    before = file.stat()
    file.write_bytes(b"PAR1 but nothing more that makes sense PAR1")
    os.utime(file, (before.st_mtime, before.st_mtime))


@pytest.mark.parametrize("kind", ["folder", "frame"])
def test_a_bad_file_stops_the_query_and_not_the_checkpoint(spark: Any, tmp_path: Path, kind: str) -> None:
    """One that cannot be read, then one with a row that breaks a promise; it is put right or taken away."""
    pipeline, expected = Pipeline(spark, tmp_path, kind), list(GOOD)
    bad = driver.put(tmp_path / "in", 2, LATE)
    _corrupt(tmp_path / "in" / "0001.parquet")
    assert re.search(r"(reading file .*|in/)0001\.parquet", pipeline.run())
    driver.put(tmp_path / "in", 1, GOOD[1])
    told = pipeline.run()
    assert "0002.parquet: row 2: breaks an earlier cti: insert [3, 12) {'k': 3}" in told
    assert "\n" not in told
    pipeline.check(GOOD[:2])
    if kind == "folder":
        driver.put(tmp_path / "in", 2, GOOD[2])
    else:
        bad.unlink()
        expected[2:] = [_batch(rc.Cti(40))]
        driver.put(tmp_path / "in", 3, expected[2])
    assert pipeline.run() == ""
    pipeline.check(expected)


def test_policies_and_watermarks_leave_out_what_comes_late_and_count_it(spark: Any, tmp_path: Path) -> None:
    """Three sources in one query: rows dropped, rows moved, and rows behind a watermark."""
    follows = _batch(rc.Retract({"k": 3}, 3, 12, 10))
    late = [GOOD[0], GOOD[1], LATE, follows, GOOD[3]]
    readings = pa.table({"ts": [0, 60, 61, 5, 62], "k": [1, 2, 3, 4, 5], "part": [0, 0, 1, 1, 1]})
    for number, batch in enumerate(late):
        driver.put(tmp_path / "in", number, batch, pa.timestamp("us", "UTC"))
    for part in (0, 1):
        own = readings.filter(pa.compute.equal(readings["part"], part))
        stamps = pa.compute.multiply(own["ts"], 1_000_000).cast(pa.timestamp("us", "UTC"))
        (tmp_path / "rows").mkdir(exist_ok=True)
        file = tmp_path / "rows" / f"{part}.parquet"
        pq.write_table(pa.table({"ts": stamps, "k": own["k"]}), file)
        os.utime(file, (1_000_000 + part, 1_000_000 + part))
    watched = rc.source("w", SCHEMA, start="ts", on_violation="drop").set_duration("1h")
    query = (
        _counted("d", on_violation="drop")
        .union(_counted("a", on_violation="adjust"))
        .union(watched.group_by("k").agg(n=rc.count(), speculate="eager"))
    )
    rows = spark.readStream.schema("ts timestamp, k long").option("maxFilesPerTrigger", 1)
    inputs = {
        "d": str(tmp_path / "in"),
        "a": str(tmp_path / "in"),
        "w": rows.parquet(str(tmp_path / "rows")).withWatermark("ts", "30 seconds"),
    }
    answers = rc.spark.stream(spark, query, inputs, shards=2, files_per_batch=1)
    where: dict[str, Any] = {"checkpoint": tmp_path / "ck", "trigger": {"availableNow": True}}
    running = rc.spark.write_history(answers, tmp_path / "table", **where)
    running.awaitTermination()
    counts = pipeline_metrics(running.recentProgress).counts
    told = [p["observedMetrics"]["recension"] for p in running.recentProgress if p["observedMetrics"]]
    assert (sum(row.late for row in told), sum(row.dropped for row in told)) == (4, 3)
    assert all((row.cti is None) == (row.lag_seconds is None) for row in told)
    assert all(row.lag_seconds > 10**9 for row in told if row.cti is not None)  # it plays in 1970
    assert counts["d"]["breaks an earlier cti"] == 1
    assert counts["d"]["retracts an event that is not there"] == 1
    assert counts["a"]["moved to the last cti"] == 2
    assert counts["w"]["breaks an earlier cti"] == 1
    found = feeding.read(tmp_path / "table")
    local = rc.session(query)
    for name in ("d", "a"):
        local.push(name, concat(late))
    hours = [rc.Insert({"k": k}, t * 10**6) for t, k in ((0, 1), (60, 2))]
    local.push("w", hours)
    local.advance("w", 30 * 10**6)
    local.push("w", [rc.Insert({"k": k}, t * 10**6) for t, k in ((61, 3), (62, 5))])
    feeding.assert_same(found, replace(local.read().history(), time_type=found.time_type))


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        ("_kind string, _vs long, _ve long, _new_ve long, k string", "s: column k is string, .* says int64"),
        ("_kind string, _vs long, _ve long, _new_ve long, j long", "s: no column k; there are"),
        ("_kind string, _vs string, _ve long, _new_ve long, k long", "_vs"),
    ],
)
def test_a_schema_that_does_not_fit(spark: Any, tmp_path: Path, ddl: str, words: str) -> None:
    """Refused when the pipeline is built."""
    frame = spark.readStream.schema(ddl).parquet(str(tmp_path))
    with pytest.raises(RecensionError, match=words) as told:
        rc.spark.stream(spark, _counted(), {"s": frame})
    assert "\n" not in str(told.value)
