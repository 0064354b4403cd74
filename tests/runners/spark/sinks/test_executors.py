"""Queries whose tasks write: they fail, run twice, are killed, run elsewhere; the tables are right."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from tests.runners.spark.sinks.feeding import assert_same, prefixes, read, revised
from tests.runners.spark.sinks.test_queries import NOW, finished, put, stream

import recension as rc
from recension.core.batch import from_elements
from recension.core.formats.manifest import FOLDER, current_manifest
from recension.runners.spark.sinks import writing
from recension.runners.spark.sinks.changelog import Changelog
from recension.runners.spark.sinks.history_table import HistoryTable


def write(spark: Any, folder: Path) -> None:
    """All files that are there, into both tables."""
    where: dict[str, Any] = {"changelog": folder / "log", "history": folder / "table"}
    finished(rc.spark.write(stream(spark, folder / "in"), **where, checkpoint=folder / "ck", trigger=NOW))


@pytest.fixture
def by_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows there are."""
    monkeypatch.setattr(writing, "FEW", -1)


def assert_written(folder: Path, expected: Any) -> None:
    for name in ("log", "table"):
        assert_same(read(folder / name), expected)


def test_tasks_write_and_the_driver_commits(spark: Any, tmp_path: Path, by_tasks: None) -> None:
    """CTIs in the midst of a micro-batch, copies, revisions of events of all buckets."""
    batches = revised(0, 5)
    put(tmp_path / "in", batches)
    write(spark, tmp_path)
    assert_written(tmp_path, prefixes(batches)[-1])
    manifest = current_manifest(tmp_path / "table")
    assert manifest is not None
    assert manifest.buckets == spark.sparkContext.defaultParallelism
    assert {file.bucket for file in manifest.files} == set(range(manifest.buckets))
    assert list((tmp_path / "log").glob("part-000000000004-*"))
    log = rc.spark.read_changelog(spark, tmp_path / "log")
    assert log.count() == sum(map(len, batches))


def test_an_event_of_any_type_finds_its_bucket(spark: Any, tmp_path: Path, by_tasks: None) -> None:
    """Zero and minus zero are one value, and maps and lists have no hash in Spark."""
    schema = pa.schema(
        [("f", pa.float64()), ("m", pa.map_(pa.string(), pa.int64())), ("a.b", pa.list_(pa.int64()))]
    )
    zeros = [{"f": sign * 0.0, "m": [("x", n)], "a.b": [n, None]} for n in range(20) for sign in (1, -1)]
    batches = [
        from_elements([rc.Insert(zeros[2 * n], 1) for n in range(20)], schema),
        from_elements([rc.Retract(zeros[2 * n + 1], 1, rc.FOREVER, 5) for n in range(20)], schema),
    ]
    put(tmp_path / "in", batches)
    write(spark, tmp_path)
    assert read(tmp_path / "table").ve.tolist() == [5] * 20


FAILING = """
class Failing:
    # The first attempt of the first bucket writes a half and dies, and so does its worker with `kill`.
    # Had it written all, its files would be those that count: their names follow from what is in them.
    def __init__(self, writer, how):
        self.writer, self.how = writer, how

    @property
    def buckets(self):
        return self.writer.buckets

    def write(self, batch, bucket, buckets):
        import os, signal
        import pyarrow as pa
        from pyspark import TaskContext
        if bucket or TaskContext.get().attemptNumber():
            return self.writer.write(batch, bucket, buckets)
        half = batch.rows.slice(0, len(batch.rows) // 2)
        self.writer.write(batch.with_rows(pa.Table.from_batches([half])), bucket, buckets)
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError("a disk that fails once")
"""


@pytest.mark.parametrize("how", ["throw", "kill"])
def test_a_task_that_dies_between_writing_and_commit(
    spark: Any, tmp_path: Path, by_tasks: None, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Spark tries it again: the same files are written again, in the place of those of the first attempt."""
    # Not importable in the workers, so that it is sent to them.
    names: dict[str, Any] = {}
    exec(FAILING, names)
    for kind in (Changelog, HistoryTable):
        _wrap(monkeypatch, kind, names["Failing"], how)
    batches = revised(3, 3)
    put(tmp_path / "in", batches)
    write(spark, tmp_path)
    assert_written(tmp_path, prefixes(batches)[-1])
    manifest = current_manifest(tmp_path / "table")
    assert manifest is not None
    there = {file.name for file in (tmp_path / "table" / FOLDER).glob("*.parquet")}
    assert there == manifest.all_files()


def _wrap(monkeypatch: pytest.MonkeyPatch, kind: Any, wrapper: Any, how: str) -> None:
    hold = kind.hold

    @contextmanager
    def held(self: Any, batch: Any) -> Iterator[Any]:
        with hold(self, batch) as writer:
            yield None if writer is None else wrapper(writer, how)

    monkeypatch.setattr(kind, "hold", held)


def test_a_bad_element_is_told_once_and_leaves_no_trace(spark: Any, tmp_path: Path, by_tasks: None) -> None:
    schema = pa.schema([("name", pa.string())])
    good = from_elements([rc.Insert({"name": str(n)}, n) for n in range(9)], schema)
    bad = from_elements([rc.Insert({"name": "c"}, 1), rc.Retract({"name": "b"}, 1, 5, 3)], schema)
    put(tmp_path / "in", [good, bad])
    with pytest.raises(Exception, match=r"micro-batch 1: retracts an event that is not there: .*'b'") as why:
        write(spark, tmp_path)
    assert rc.spark.reason_of(why.value).startswith("micro-batch 1: retracts an event")
    for name in ("log", "table"):
        assert len(read(tmp_path / name)) == 9


CLUSTER = """
import sys
import recension as rc
from recension.runners.spark.sinks import writing

writing.FEW = -1
folder = sys.argv[1]
spark = rc.spark.session("local-cluster[2,1,1024]", spark__executorEnv__PYTHONPATH=":".join(sys.path))
schema = spark.read.parquet(folder + "/in").schema
frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder + "/in")
query = rc.spark.write(
    frame, changelog=folder + "/log", history=folder + "/table", checkpoint=folder + "/ck",
    trigger={"availableNow": True},
)
query.awaitTermination()
print("read", rc.spark.read_history(spark, folder + "/table").count())
"""


@pytest.mark.soak
def test_tasks_in_other_processes(tmp_path: Path) -> None:
    """Two executors on a file system that they share."""
    batches = revised(4, 8, size=5000)
    put(tmp_path / "in", batches)
    home = {"SPARK_HOME": str(Path(pyspark.__path__[0]))}
    run = subprocess.run(
        [sys.executable, "-c", CLUSTER, str(tmp_path)],
        env=os.environ | home,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    expected = prefixes(batches)[-1]
    assert f"read {len(expected)}" in run.stdout
    assert_written(tmp_path, expected)
