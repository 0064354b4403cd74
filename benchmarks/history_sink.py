"""The sinks: what the driver does per micro-batch (the suite), and whole queries beside Spark's own sink.

`python -m benchmarks.history_sink [EVENTS_A_BATCH [driver|tasks]]` runs the queries: one stream (20 %
disorder, 20 % of the events revised) in files of one micro-batch each, through the same source, in one
session. Spark's sink only appends; ours puts rows in order (changelog) or keeps the current history. Times
are the wall clock's, per micro-batch, as Spark reports them, without the first (warm-up). Processor time is
that of the driver's two processes per micro-batch; memory is the peak of the driver's Python while the query
ran, over what it had before. ``driver`` and ``tasks`` say who writes, however many rows there are.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import recension as rc
from benchmarks.harness import Measurement, Suite
from benchmarks.streams import disordered_and_revised
from recension.core.batch import EventBatch, concat
from recension.core.difference import difference
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.gate.files import open_stream
from recension.runners.spark.sinks import writing
from recension.runners.spark.sinks.files import write_parquet
from recension.runners.spark.sinks.history_table import HistoryTable
from recension.runners.spark.sinks.micro_batch import micro_batch

BATCHES = 12
SIZE = 50_000
NOW = {"availableNow": True}
COLUMNS = (
    "sink",
    "micro-batches",
    "events/s",
    "median s",
    "first third",
    "last third",
    "slowest",
    "CPU s",
    "driver MB",
    "read s",
)
Start = Callable[[Any, Path], Any]


def main() -> None:
    """Measure, print a table, and check what was written."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else SIZE
    if len(sys.argv) > 2:
        setattr(writing, "FEW", {"driver": 1 << 40, "tasks": -1}[sys.argv[2]])  # noqa: B010
    out = Console(width=140)
    table = Table(*COLUMNS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = rc.spark.session("local[2,4]", "benchmark", spark__driver__memory="3g")
        for batches in (BATCHES, 2 * BATCHES):
            source = folder / f"in-{batches}"
            history = _feed(source, size, batches)
            for sink, start in SINKS.items():
                target = folder / f"{sink}-{batches}"
                before = _restart_peak()
                seconds, cpu = _run(spark, source, target, start)
                figures = [*_figures(seconds, size), f"{cpu / batches:.2f}", f"{_peak() - before:,.0f}"]
                table.add_row(sink, str(batches), *figures, _checked(spark, sink, target, history))
        spark.stop()
    out.print(table, f"{size:,} events a micro-batch; every history read back was right", sep="\n")


def _numbered(stream: EventBatch, size: int) -> Iterator[pa.Table]:
    """The rows of each micro-batch."""
    columns = stream_schema(stream.schema, pa.int64())
    for number, (a, b) in enumerate(pairwise(range(0, len(stream) + 1, size))):
        rows = pa.Table.from_batches([stream_rows(stream.slice(a, b), columns)])
        rows = rows.append_column("_batch", pa.array(np.full(size, number)))
        yield rows.append_column("_seq", pa.array(np.arange(size)))


def _feed(folder: Path, size: int, batches: int) -> History:
    """Write the stream's files; its history."""
    folder.mkdir()
    stream = concat(list(disordered_and_revised(size * batches)))
    for number, rows in enumerate(_numbered(stream, size)):
        file = folder / f"{number:04}.parquet"
        pq.write_table(rows, file)
        os.utime(file, (number, number))
    return reconstitute([stream], stream.schema)


def _run(spark: Any, source: Path, target: Path, start: Start) -> tuple[list[float], float]:
    schema = spark.read.parquet(str(source)).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    began = _cpu_seconds(spark)
    query = start(frame, target)
    query.awaitTermination()
    cpu = _cpu_seconds(spark) - began
    if query.exception() is not None:
        raise query.exception()
    progress = [p for p in query.recentProgress if p["numInputRows"]]
    return [p["durationMs"]["triggerExecution"] / 1000 for p in progress][1:], cpu


def _cpu_seconds(spark: Any) -> float:
    """Processor time of this process and of Spark's, which a busy machine disturbs less than the clock."""
    handle = spark._jvm.java.lang.ProcessHandle.current()
    return float(handle.info().totalCpuDuration().get().toMillis()) / 1000 + time.process_time()


def _restart_peak() -> float:
    """Forget the peak of this process; its size now, in MB."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> float:
    """The largest resident size of this process since then, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def _spark_parquet(frame: Any, target: Path) -> Any:
    writer = frame.writeStream.option("checkpointLocation", f"{target}-ck").trigger(**NOW)
    return writer.format("parquet").start(str(target))


def _changelog(frame: Any, target: Path) -> Any:
    return rc.spark.write_changelog(frame, target, checkpoint=f"{target}-ck", trigger=NOW)


def _history(frame: Any, target: Path) -> Any:
    return rc.spark.write_history(frame, target, checkpoint=f"{target}-ck", trigger=NOW)


def _both(frame: Any, target: Path) -> Any:
    log = target.with_name(f"{target.name}-log")
    return rc.spark.write(frame, changelog=log, history=target, checkpoint=f"{target}-ck", trigger=NOW)


SINKS: dict[str, Start] = {
    "Spark's Parquet sink": _spark_parquet,
    "changelog": _changelog,
    "history": _history,
    "both": _both,
}


def _figures(seconds: list[float], size: int) -> list[str]:
    third = len(seconds) // 3
    shown = [
        statistics.median(seconds),
        *map(statistics.mean, (seconds[:third], seconds[-third:])),
        max(seconds),
    ]
    return [f"{size * len(seconds) / sum(seconds):,.0f}", *(f"{s:.2f}" for s in shown)]


def _checked(spark: Any, sink: str, target: Path, expected: History) -> str:
    """The time Spark takes to read the history, which must be right; for a stream, our reader's time."""
    began = time.perf_counter()
    if sink in ("history", "both"):
        found = History.from_arrow(rc.spark.read_history(spark, target).toArrow())
    else:
        reader = open_stream(target, check_orphans=False)
        found = reconstitute(reader, reader.schema)
    taken = time.perf_counter() - began
    if apart := difference(found, expected):
        raise SystemExit(f"{sink}: {apart}")
    return f"{taken:.1f}"


def _loaded(size: int, folder: Path) -> tuple[Path, list[pa.Table]]:
    return folder, list(_numbered(concat(list(disordered_and_revised(size))), SIZE))


def _appended(given: tuple[Path, list[pa.Table]]) -> int:
    """The least a sink can do: one file per micro-batch."""
    folder, tables = given
    for number, table in enumerate(tables):
        write_parquet(folder / f"{number}.parquet", table.to_batches(), table.schema)
    return sum(len(table) for table in tables)


def _kept(given: tuple[Path, list[pa.Table]]) -> int:
    folder, tables = given
    with tempfile.TemporaryDirectory(dir=folder) as name:
        table = HistoryTable(Path(name), keep=0)
        for number, rows in enumerate(tables):
            table.apply(micro_batch("benchmark", number, rows))
    return sum(len(rows) for rows in tables)


SUITE = Suite(
    "history_sink",
    f"What the driver does for a sink, {SIZE:,} events a micro-batch (20 % disorder, 20 % revised)",
    (
        Measurement("one Parquet file per micro-batch", _loaded, _appended, (1_000_000,), repeats=3),
        Measurement(
            "history table",
            _loaded,
            _kept,
            (1_000_000, 2_000_000, 4_000_000),
            against=("one Parquet file per micro-batch",),
            repeats=3,
        ),
    ),
)


if __name__ == "__main__":
    main()
