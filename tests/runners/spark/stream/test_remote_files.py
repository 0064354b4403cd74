"""Folders and checkpoints on a file system that only Spark sees: one that is mounted over a local disk."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from scripts.lake_jars import NoJarsError, jars

import recension as rc
from recension.core.difference import difference
from recension.core.placement import PartitionColumns
from recension.gate.files import open_stream, read_history

COLUMNS = {"k": "string", "v": "int64"}
MOUNTS = count()
Mount = Callable[[str], str]


@pytest.fixture
def mount(spark: Any, tmp_path: Path) -> Mount:
    """The address of a folder of the test's, in a file system with a scheme and a server of its own."""
    server = f"server{next(MOUNTS)}"
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set("fs.lake.impl", "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme")
    settings.set(f"fs.viewfs.mounttable.{server}.link./data", f"file://{tmp_path}")
    return lambda name: f"lake://{server}/data/{name}"


def _element(kind: str, vs: int, **more: Any) -> str:
    return json.dumps({"_kind": kind, "_vs": vs} | more) + "\n"


ROWS = [{"k": "ab"[n % 2], "v": n} for n in range(8)]
FIRST = "".join(_element("insert", n, _ve=n + 3, **row) for n, row in enumerate(ROWS))
SECOND = (
    _element("retract", 7, _ve=10, _new_ve=8, **ROWS[7])
    + _element("insert", 9, _ve=11, k="a", v=9)
    + _element("cti", 20)
)


def _run(spark: Any, query: rc.Stream, inputs: dict[str, Any], folder: Path, checkpoint: Any) -> Any:
    found = rc.spark.stream(spark, query, inputs, shards=1)
    running = rc.spark.write(
        found,
        changelog=folder / "log",
        history=folder / "history",
        checkpoint=checkpoint,
        trigger={"availableNow": True},
    )
    running.awaitTermination()
    return read_history(folder / "history")


def test_a_folder_and_a_checkpoint_elsewhere_answer_as_those_here(
    spark: Any, tmp_path: Path, mount: Mount
) -> None:
    place = tmp_path / "in [1]"
    place.mkdir()
    (place / "0.jsonl").write_text(FIRST)
    query = rc.source("s", COLUMNS).group_by("k").tumbling(4).agg(n=rc.count(), top=rc.max("v"))
    there = mount("in [1]"), mount("ck")
    _run(spark, query, {"s": there[0]}, tmp_path, there[1])
    # A restart goes on with what came since, in other formats too.
    (place / "1.jsonl.gz").write_bytes(gzip.compress(SECOND.encode()))
    found = _run(spark, query, {"s": there[0]}, tmp_path, there[1])
    assert not difference(found, rc.run(query, {"s": open_stream(place)}).history())
    assert (tmp_path / "ck" / "recension.json").exists()
    other = rc.source("s", COLUMNS).where(rc.col("v") > 1)
    with pytest.raises(rc.RecensionError, match="another query"):
        _run(spark, other, {"s": there[0]}, tmp_path / "other", there[1])


def test_partitions_are_the_folders_in_a_folder_elsewhere(spark: Any, tmp_path: Path, mount: Mount) -> None:
    for part, row in enumerate(ROWS[:2]):
        (tmp_path / "in" / f"p={part}").mkdir(parents=True)
        rows = _element("insert", part, _ve=9, **row) + _element("cti", 20)
        (tmp_path / "in" / f"p={part}" / "0.jsonl").write_text(rows)
    query = rc.source("s", COLUMNS, partition="p").agg(n=rc.sum("v"))
    found = _run(spark, query, {"s": mount("in")}, tmp_path, tmp_path / "ck")
    here = open_stream(tmp_path / "in", places=PartitionColumns(partition=("p",)))
    assert not difference(found, rc.run(query, {"s": here}).history())


def test_a_file_and_a_table_elsewhere(spark: Any, tmp_path: Path, mount: Mount) -> None:
    (tmp_path / "in").mkdir()
    rows = pa.table({"_vs": [1, 2], "_ve": [5, 6], "k": ["a", "b"], "v": [1, 2]})
    pq.write_table(rows, tmp_path / "in" / "this.parquet")
    pq.write_table(rows, tmp_path / "in" / "not this.parquet")
    (tmp_path / "names.csv").write_text("k,name\na,Anna\nb,Bea\n")
    names = rc.table("names", {"k": "string", "name": "string"})
    query = rc.source("s", COLUMNS).join(names, on="k")
    given = {"s": mount("in/this.parquet"), "names": mount("names.csv")}
    found = _run(spark, query, given, tmp_path, tmp_path / "ck")
    here = {"s": rows, "names": pa.table({"k": ["a", "b"], "name": ["Anna", "Bea"]})}
    assert not difference(found, rc.run(query, here).history())


def test_what_cannot_be_read_is_refused_by_its_address(spark: Any, tmp_path: Path, mount: Mount) -> None:
    def start(name: str, query: rc.Stream | None = None) -> Any:
        source = rc.source("s", COLUMNS) if query is None else query
        return rc.spark.stream(spark, source, {"s": mount(name)}, shards=1)

    with pytest.raises(rc.RecensionError, match=r"lake://server\d+/data/none: Spark cannot read it: .*not_?"):
        start("none")
    (tmp_path / "in").mkdir()
    with pytest.raises(rc.RecensionError, match=r"^lake://server\d+/data/in: a directory without data files"):
        rc.spark.write(start("in"), history=tmp_path / "table", checkpoint=tmp_path / "ck")
    (tmp_path / "in" / "0.jsonl").write_text("{")
    with pytest.raises(rc.RecensionError, match=r"^lake://server\d+/data/in/0.jsonl: "):
        start("in")
    (tmp_path / "in" / "0.jsonl").rename(tmp_path / "in" / "0.txt")
    with pytest.raises(rc.RecensionError, match=r"^lake://server\d+/data/in/0.txt: not the name of"):
        start("in")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "0.jsonl").write_text(FIRST)
    with pytest.raises(rc.RecensionError, match=r"/data/deep/er/0.jsonl: a directory inside"):
        start("deep")
    table = rc.table("s", {"x": "int64"}, refresh="10m")
    with pytest.raises(rc.RecensionError, match=r"^s3a://bucket/in: shards read the versions"):
        rc.spark.stream(spark, table, {"s": "s3a://bucket/in"}, shards=1)


def test_a_task_names_the_address_of_a_file_that_it_cannot_read(
    spark: Any, tmp_path: Path, mount: Mount
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.jsonl").write_text(FIRST)
    (tmp_path / "in" / "1.jsonl").write_text(_element("insert", 1, _ve=2, k="a", v="many"))
    with pytest.raises(PySparkException) as raised:
        _run(spark, rc.source("s", COLUMNS), {"s": mount("in")}, tmp_path, tmp_path / "ck")
    assert rc.spark.reason_of(raised.value).startswith(mount("in/1.jsonl: row 1: "))


@pytest.mark.soak
def test_on_s3(tmp_path: Path) -> None:
    """Inputs, a table and the checkpoint on an S3 server on loopback, with Hadoop's own client."""
    pytest.importorskip("moto", reason="moto[server] is not installed")
    try:
        jars("s3")
    except NoJarsError as why:
        pytest.skip(f"no client of S3: {why}")
    command = [sys.executable, "-m", "tests.runners.spark.stream.s3_driver", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.stdout.endswith("0 missing, 0 extra\n"), done.stdout + done.stderr
