"""A micro-batch into tables: Spark's own Delta sink, our changelog and history in Delta, in Iceberg, our own.

    python -m benchmarks.lake               # 3,000 and 50,000 elements, over tables of 0.1, 1 and 10 M rows
    python -m benchmarks.lake 3000 --rows 100000 --sinks "history in Delta" "history in Delta by MERGE"

One stream (20 % disorder, 20 % of the events revised) in files of one micro-batch each. The first fills the
table; then come so many of each size, of which the first warm up and the others are reported: the wall
clock's median, as Spark reports it, and the processor time of the driver's two processes, which a busy
machine disturbs less. Before that every sink has run for a while.
Every history is read back and compared. ``python -m scripts.lake_jars`` fetches the jars.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from scripts.lake_jars import NoJarsError, jars

import recension as rc
from benchmarks.streams import disordered_and_revised
from recension.core.batch import concat
from recension.core.difference import difference
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.runners.spark.lake.delta import SETTINGS

# The first micro-batch after a large one is written by tasks.
WARM = 2
MEASURED = 3
NOW = {"availableNow": True}
Start = Callable[[Any, str, Path], Any]


@dataclass(frozen=True)
class Sink:
    """Where micro-batches go: how a query is started, and the address of its table under a folder's name."""

    start: Start
    address: str


@dataclass(frozen=True)
class Feed:
    """Files of a stream, how many rows the first makes, and what history all of them make."""

    folder: Path
    rows: int
    sizes: Sequence[int]
    history: History


def main() -> int:
    """Measure, print a table, and check what was written."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("sizes", nargs="*", type=int, default=[3_000, 50_000])
    arguments.add_argument("--rows", nargs="*", type=int, default=[100_000, 1_000_000, 10_000_000])
    arguments.add_argument("--sinks", nargs="*", default=[s for s in SINKS if s != MERGED], choices=SINKS)
    given = arguments.parse_args()
    began, load = time.monotonic(), os.getloadavg()[0]
    table = Table("rows in the table", "elements", "sink", "median s", "slowest s", "CPU s")
    with tempfile.TemporaryDirectory() as name:
        try:
            spark = _session(Path(name))
        except NoJarsError as why:
            print(f"no Delta or no Iceberg: {why}", file=sys.stderr)
            return 1
        _warm_up(spark, Path(name), given.sinks)
        for rows in given.rows:
            feed = _feed(Path(name) / f"in{rows}", given.sizes, rows)
            for sink in given.sinks:
                for size, figures in _run(spark, feed, sink, Path(name) / f"{sink.replace(' ', '_')}{rows}"):
                    shown = (f"{feed.rows:,}", f"{size:,}", sink, *(f"{s:.2f}" for s in figures))
                    table.add_row(*shown)
                    Console(stderr=True).print(*shown)
        spark.stop()
    took = f"{time.monotonic() - began:.0f} s; load {load:.1f} before, {os.getloadavg()[0]:.1f} after"
    Console(width=110).print(table, "every history read back was right", took, sep="\n")
    return 0


def _session(folder: Path) -> Any:
    found = ",".join(map(str, [*jars("delta"), *jars("iceberg")]))
    settings = {
        "spark.jars": found,
        "spark.driver.memory": "4g",
        "spark.ui.showConsoleProgress": "false",
        "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
        # As our own commits set it: with the default of 50, a small commit is mostly tasks that read the log.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": f"file:{folder}/lake",
    }
    return rc.spark.session("local[2,4]", "benchmark", **settings, **SETTINGS)


def _warm_up(spark: Any, folder: Path, sinks: Sequence[str]) -> None:
    feed = _feed(folder / "warm", [3_000], 30_000)
    for sink in sinks:
        for _ in _run(spark, feed, sink, folder / f"warm_{sink.replace(' ', '_')}"):
            pass


def _feed(folder: Path, sizes: Sequence[int], rows: int) -> Feed:
    """Write the stream's files, for a table of about so many rows: of four elements, one revises another."""
    folder.mkdir()
    bounds = [0, rows * 4 // 3]
    for size in sizes:
        bounds += [bounds[-1] + size * number for number in range(1, WARM + MEASURED + 1)]
    stream = concat(list(disordered_and_revised(bounds[-1])))
    columns = stream_schema(stream.schema, pa.int64())
    for number, (a, b) in enumerate(pairwise(bounds)):
        part = pa.Table.from_batches([stream_rows(stream.slice(a, b), columns)])
        part = part.append_column("_batch", pa.array(np.full(b - a, number)))
        part = part.append_column("_seq", pa.array(np.arange(b - a)))
        pq.write_table(part, folder / f"{number:04}.parquet")
        os.utime(folder / f"{number:04}.parquet", (number, number))
    filled = reconstitute([stream.slice(0, bounds[1])], stream.schema)
    return Feed(folder, len(filled), sizes, reconstitute([stream], stream.schema))


def _run(spark: Any, feed: Feed, name: str, target: Path) -> list[tuple[int, tuple[float, float, float]]]:
    """For each size the median and the most seconds of a micro-batch, and its processor time."""
    sink, source = SINKS[name], str(feed.folder)
    address = sink.address.format(folder=target.parent, name=target.name)
    schema = spark.read.parquet(source).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(source)
    query = sink.start(frame, address, target.with_suffix(".checkpoint"))
    cpu: dict[int, float] = {}
    while query.isActive:
        done = query.lastProgress
        if done is not None:
            cpu.setdefault(done["batchId"], _cpu_seconds(spark))
        time.sleep(0.01)
    query.awaitTermination()
    cpu[max(cpu) + 1] = _cpu_seconds(spark)
    if "history" in name:
        _check(spark, name, address, feed.history)
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
    found = []
    for at, size in enumerate(feed.sizes):
        last = 1 + (at + 1) * (WARM + MEASURED)
        measured = seconds[last - MEASURED : last]
        used = [when for batch, when in sorted(cpu.items()) if last - MEASURED - 1 <= batch < last]
        spent = (used[-1] - used[0]) / max(len(used) - 1, 1)
        found.append((size, (statistics.median(measured), max(measured), spent)))
    return found


def _cpu_seconds(spark: Any) -> float:
    handle = spark._jvm.java.lang.ProcessHandle.current()
    return float(handle.info().totalCpuDuration().get().toMillis()) / 1000 + time.process_time()


def _sparks_own(frame: Any, address: str, checkpoint: Path) -> Any:
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(**NOW)
    return writer.format("delta").start(address)


def _changelog(frame: Any, address: str, checkpoint: Path) -> Any:
    return rc.spark.write_changelog(frame, address, checkpoint=checkpoint, trigger=NOW)


def _history(frame: Any, address: str, checkpoint: Path) -> Any:
    return rc.spark.write_history(frame, address, checkpoint=checkpoint, trigger=NOW)


# A table that is given by its name has no commits of the driver's own.
MERGED = "history in Delta by MERGE"
SINKS = {
    "Spark's own Delta sink": Sink(_sparks_own, "{folder}/{name}"),
    "changelog in Delta": Sink(_changelog, "delta:{folder}/{name}"),
    "history in Delta": Sink(_history, "delta:{folder}/{name}"),
    MERGED: Sink(_history, "spark_catalog.default.{name}"),
    "history in Iceberg": Sink(_history, "lake.db.{name}"),
    "history of our own": Sink(_history, "{folder}/{name}"),
}


def _check(spark: Any, sink: str, address: str, expected: History) -> None:
    found = History.from_arrow(rc.spark.read_history(spark, address).toArrow())
    if apart := difference(found, expected):
        raise SystemExit(f"{sink}: {apart}")


if __name__ == "__main__":
    sys.exit(main())
