"""A micro-batch into Delta: our changelog and history there, Spark's own Delta sink, and our own format.

    python -m benchmarks.lake                    # 3,000 and 50,000 elements, over tables of 0.1 and 1 M rows
    python -m benchmarks.lake 3000 50000 --rows 100000 1000000 10000000

One stream (20 % disorder, 20 % of the events revised) in files of one micro-batch each. The first micro-batch
fills the table, the next two warm up, and the times of the others are reported: the wall clock's median, as
Spark reports it, and the processor time of the driver's two processes, which a busy machine disturbs less.
Every history is read back and compared. ``python -m scripts.lake_jars delta`` fetches the jars.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
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

WARM = 3
MEASURED = 8
NOW = {"availableNow": True}
Start = Callable[[Any, Path], Any]


def main() -> int:
    """Measure, print a table, and check what was written."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("sizes", nargs="*", type=int, default=[3_000, 50_000])
    arguments.add_argument("--rows", nargs="*", type=int, default=[100_000, 1_000_000])
    given = arguments.parse_args()
    try:
        found = ",".join(map(str, jars("delta")))
    except NoJarsError as why:
        print(f"no Delta: {why}", file=sys.stderr)
        return 1
    local = {"spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore"}
    settings = {"spark.jars": found, "spark.driver.memory": "3g", **SETTINGS, **local}
    spark = rc.spark.session("local[2,4]", "benchmark", **settings)
    table = Table("elements", "rows in the table", "sink", "median s", "slowest s", "CPU s")
    with tempfile.TemporaryDirectory() as name:
        for size in given.sizes:
            for rows in given.rows:
                source = Path(name) / f"in-{size}-{rows}"
                history = _feed(source, size, rows)
                for sink, start in SINKS.items():
                    target = Path(name) / f"{sink}-{size}-{rows}".replace(" ", "-")
                    seconds, cpu = _run(spark, source, target, start)
                    _check(spark, sink, target, history)
                    shown = (statistics.median(seconds), max(seconds), cpu)
                    table.add_row(f"{size:,}", f"{rows:,}", sink, *(f"{s:.2f}" for s in shown))
                    Console(stderr=True).print(size, rows, sink, *(f"{s:.2f}" for s in shown))
    Console(width=110).print(table, "every history read back was right", sep="\n")
    spark.stop()
    return 0


def _feed(folder: Path, size: int, rows: int) -> History:
    """Write the stream's files; its history."""
    folder.mkdir()
    batches = WARM - 1 + MEASURED
    stream = concat(list(disordered_and_revised(rows + size * batches)))
    columns = stream_schema(stream.schema, pa.int64())
    bounds = [0, *range(rows, rows + size * batches + 1, size)]
    for number, (a, b) in enumerate(pairwise(bounds)):
        part = pa.Table.from_batches([stream_rows(stream.slice(a, b), columns)])
        part = part.append_column("_batch", pa.array(np.full(b - a, number)))
        part = part.append_column("_seq", pa.array(np.arange(b - a)))
        pq.write_table(part, folder / f"{number:04}.parquet")
        os.utime(folder / f"{number:04}.parquet", (number, number))
    return reconstitute([stream.slice(0, bounds[-1])], stream.schema)


def _run(spark: Any, source: Path, target: Path, start: Start) -> tuple[list[float], float]:
    """Seconds of each measured micro-batch, and the processor time of one."""
    schema = spark.read.parquet(str(source)).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    warm, began = len(list(source.iterdir())) - MEASURED, 0.0
    query = start(frame, target)
    while query.isActive:
        done = query.lastProgress
        if not began and done is not None and done["batchId"] >= warm - 1:
            began, since = _cpu_seconds(spark), done["batchId"]
        time.sleep(0.02)
    query.awaitTermination()
    progress = [p for p in query.recentProgress if p["numInputRows"]]
    last = progress[-1]["batchId"]
    cpu = (_cpu_seconds(spark) - began) / max(last - since, 1)
    return [p["durationMs"]["triggerExecution"] / 1000 for p in progress][-MEASURED:], cpu


def _cpu_seconds(spark: Any) -> float:
    handle = spark._jvm.java.lang.ProcessHandle.current()
    return float(handle.info().totalCpuDuration().get().toMillis()) / 1000 + time.process_time()


def _sparks_own(frame: Any, target: Path) -> Any:
    writer = frame.writeStream.option("checkpointLocation", f"{target}-ck").trigger(**NOW)
    return writer.format("delta").start(str(target))


def _changelog(frame: Any, target: Path) -> Any:
    return rc.spark.write_changelog(frame, f"delta:{target}", checkpoint=f"{target}-ck", trigger=NOW)


def _history(frame: Any, target: Path) -> Any:
    return rc.spark.write_history(frame, f"delta:{target}", checkpoint=f"{target}-ck", trigger=NOW)


def _ours(frame: Any, target: Path) -> Any:
    return rc.spark.write_history(frame, target, checkpoint=f"{target}-ck", trigger=NOW)


SINKS: dict[str, Start] = {
    "Spark's own Delta sink": _sparks_own,
    "changelog in Delta": _changelog,
    "history in Delta": _history,
    "history of our own": _ours,
}


def _check(spark: Any, sink: str, target: Path, expected: History) -> None:
    if sink.startswith("history"):
        place = f"delta:{target}" if "Delta" in sink else target
        found = History.from_arrow(rc.spark.read_history(spark, place).toArrow())
        if apart := difference(found, expected):
            raise SystemExit(f"{sink}: {apart}")


if __name__ == "__main__":
    sys.exit(main())
