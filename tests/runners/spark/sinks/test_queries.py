"""Streaming queries into both sinks: written once, read by Spark, by the command and by another query."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.runners.spark.sinks.feeding import assert_same, prefixes, read, revised, rows_of
from tests.short_sessions import short_session
from typer.testing import CliRunner

import recension as rc
from recension.cli import load_commands
from recension.core.batch import EventBatch, empty, from_elements
from recension.core.errors import FormatError, RecensionError, SchemaError
from recension.core.formats.manifest import current_manifest
from recension.core.history import History
from recension.testing.generator.settings import SCHEMA

NOW = {"availableNow": True}
NAMES = pa.schema([("name", pa.string()), ("tags", pa.map_(pa.string(), pa.int64()))])


def put(
    folder: Path, batches: list[EventBatch], first: int = 0, time_type: pa.DataType | None = None
) -> None:
    """One file per micro-batch, in order of modification."""
    folder.mkdir(exist_ok=True)
    for number, batch in enumerate(batches, first):
        file = folder / f"{number:04}.parquet"
        pq.write_table(rows_of(batch, number, time_type), file)
        os.utime(file, (1_000_000 + number, 1_000_000 + number))


def stream(spark: Any, folder: Path) -> Any:
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def finished(query: Any) -> None:
    query.awaitTermination()
    if query.exception() is not None:
        raise query.exception()


def history_of(frame: Any) -> History:
    return History.from_arrow(frame.toArrow())


def test_one_query_writes_changelog_and_history(spark: Any, tmp_path: Path) -> None:
    """In two runs of one checkpoint; Spark, our readers and the command agree on what is there."""
    batches = revised(0, 5)
    batches.insert(1, empty(SCHEMA))
    expected = prefixes(batches)
    where: dict[str, Any] = {"changelog": tmp_path / "log", "history": f"file://{tmp_path}/table"}
    earlier: list[tuple[Any, History]] = []
    for first, last in ((0, 3), (3, 6)):
        put(tmp_path / "in", batches[first:last], first)
        query = rc.spark.write(
            stream(spark, tmp_path / "in"),
            **where,
            checkpoint=tmp_path / "ck",
            trigger=NOW,
            query_name="both",
        )
        assert query.name == "both"
        finished(query)
        for path in ("log", "table"):
            assert_same(read(tmp_path / path), expected[last - 1])
        earlier.append((rc.spark.read_history(spark, tmp_path / "table"), expected[last - 1]))
    for frame, then in earlier:
        assert_same(history_of(frame), then)
    log = rc.spark.read_changelog(spark, tmp_path / "log")
    assert log.count() == sum(map(len, batches))
    run = CliRunner().invoke(load_commands(), ["diff", str(tmp_path / "log"), str(tmp_path / "table")])
    assert (run.exit_code, "equivalent" in run.output) == (0, True)
    run = CliRunner().invoke(load_commands(), ["check", str(tmp_path / "log")])
    assert run.exit_code == 0


def test_another_query_reads_the_changelog(spark: Any, tmp_path: Path) -> None:
    batches = revised(1, 3)
    put(tmp_path / "in", batches)
    finished(
        rc.spark.write_changelog(
            stream(spark, tmp_path / "in"), tmp_path / "log", checkpoint=tmp_path / "ck", trigger=NOW
        )
    )
    finished(
        rc.spark.write_history(
            stream(spark, tmp_path / "log"), tmp_path / "table", checkpoint=tmp_path / "ck2", trigger=NOW
        )
    )
    manifest = current_manifest(tmp_path / "table")
    assert manifest is not None
    assert manifest.batch == len(list((tmp_path / "log").glob("part-*"))) - 1
    assert_same(read(tmp_path / "table"), prefixes(batches)[-1])


@pytest.mark.parametrize("zone", ["UTC", None])
def test_times_keep_their_type(spark: Any, tmp_path: Path, zone: str | None) -> None:
    """Timestamps come back as timestamps, no end as null, and columns that Spark cannot compare pass."""
    a, b = {"name": "a", "tags": [("x", 1)]}, {"name": "b", "tags": None}
    second = 1_000_000
    batches = [
        from_elements([rc.Insert(a, second), rc.Insert(b, 2 * second, 9 * second)], NAMES),
        from_elements([rc.Retract(b, 2 * second, 9 * second, 4 * second), rc.Cti(second)], NAMES),
    ]
    kind = pa.timestamp("us", zone)
    put(tmp_path / "in", batches, time_type=kind)
    finished(
        rc.spark.write_history(
            stream(spark, tmp_path / "in"), tmp_path / "table", checkpoint=tmp_path / "ck", trigger=NOW
        )
    )
    frame = rc.spark.read_history(spark, tmp_path / "table")
    assert frame.schema["_vs"].dataType.typeName() == ("timestamp" if zone else "timestamp_ntz")
    found = frame.selectExpr(
        "unix_micros(timestamp(_vs)) s", "unix_micros(timestamp(_ve)) e", "tags"
    ).collect()
    assert sorted((row.s, row.e, row.tags) for row in found) == [
        (second, None, {"x": 1}),
        (2 * second, 4 * second, None),
    ]
    assert sorted(read(tmp_path / "table").ve.tolist()) == [4 * second, rc.FOREVER]


def test_a_bad_retraction_stops_the_query_and_not_the_table(spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([("name", pa.string())])
    good = from_elements([rc.Insert({"name": "a"}, 1)], schema)
    bad = from_elements([rc.Insert({"name": "c"}, 1), rc.Retract({"name": "b"}, 1, 5, 3)], schema)
    put(tmp_path / "in", [good, bad])
    where: dict[str, Any] = {
        "changelog": tmp_path / "log",
        "history": tmp_path / "table",
        "checkpoint": tmp_path / "ck",
    }
    query = rc.spark.write(stream(spark, tmp_path / "in"), **where, trigger=NOW)
    with pytest.raises(Exception, match=r"micro-batch 1: retracts an event that is not there: .*'b'"):
        query.awaitTermination()
    assert_same(read(tmp_path / "table"), read(tmp_path / "log"))
    assert read(tmp_path / "table").payload["name"].to_pylist() == ["a"]


def test_what_a_sink_refuses_before_it_starts(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "in", revised(0, 1))
    frame = stream(spark, tmp_path / "in")
    where: dict[str, Any] = {"checkpoint": tmp_path / "ck"}
    with pytest.raises(RecensionError, match=r"s3://bucket/t: this is kept in a directory"):
        rc.spark.write_history(frame, "s3://bucket/t", **where)
    with pytest.raises(RecensionError, match="nothing to write"):
        rc.spark.write(frame, **where)
    with pytest.raises(RecensionError, match="need a directory each"):
        rc.spark.write(frame, changelog=tmp_path / "t", history=f"file://{tmp_path}/t", **where)
    with pytest.raises(SchemaError, match="no column _seq"):
        rc.spark.write_history(frame.drop("_seq"), tmp_path / "t", **where)
    with pytest.raises(FormatError, match="_mine: names that start with _ are reserved"):
        rc.spark.write_history(frame.withColumn("_mine", frame._vs), tmp_path / "t", **where)
    with pytest.raises(RecensionError, match="a streaming DataFrame is needed"):
        rc.spark.write_history(spark.read.parquet(str(tmp_path / "in")), tmp_path / "t", **where)
    with pytest.raises(FormatError, match="not a history table"):
        rc.spark.read_history(spark, tmp_path)
    with pytest.raises(FormatError, match="not a changelog"):
        rc.spark.read_changelog(spark, tmp_path)


DRIVER = f"""
import sys
import recension as rc
folder = sys.argv[1]
spark = rc.spark.session("local[1]", **{short_session()})
schema = spark.read.parquet(folder + "/in").schema
frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder + "/in")
rc.spark.write(
    frame, changelog=folder + "/log", history=folder + "/table", checkpoint=folder + "/ck",
    trigger={NOW},
).awaitTermination()
"""


@pytest.mark.soak
def test_a_killed_driver_leaves_a_table_to_go_on_with(spark: Any, tmp_path: Path) -> None:
    """As in `stream/test_recovery.py`, which every run of the tests plays, and without a query between."""
    batches = revised(3, 10, size=2000)
    put(tmp_path / "in", batches)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], start_new_session=True, **quiet)
    deadline = time.monotonic() + 300
    while len(list((tmp_path / "log").glob("part-*"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    # Spark with it, which would else go on until it misses the driver.
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    done = current_manifest(tmp_path / "table")
    assert done is not None
    assert 2 <= done.batch < len(batches) - 1
    expected = prefixes(batches)
    assert_same(read(tmp_path / "table"), expected[done.batch])
    where: dict[str, Any] = {
        "changelog": tmp_path / "log",
        "history": tmp_path / "table",
        "checkpoint": tmp_path / "ck",
    }
    finished(rc.spark.write(stream(spark, tmp_path / "in"), **where, trigger=NOW))
    assert_same(read(tmp_path / "table"), expected[-1])
    assert_same(read(tmp_path / "log"), expected[-1])
