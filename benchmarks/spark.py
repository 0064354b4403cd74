"""Queries as Spark pipelines beside Spark's own operators: same data, same session, same micro-batches.

`python -m benchmarks.spark [quick]` runs everything in one go. W1: hopping windows of 10 s every 2 s, count
and sum per key, 20 % of the events late by up to 30 s. W2: the interval join of two such streams. The source
is a directory of Parquet files, one a micro-batch; the sink throws rows away. Times are the wall clock's per
micro-batch as Spark reports them, without the first two (the session warms up).
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import recension as rc
from benchmarks import interval_join, moving_window
from recension.core.formats import open_stream
from recension.core.reconstitution import reconstitute
from recension.runners.spark.session import ROCKSDB
from recension.runners.spark.stream.metrics import pipeline_metrics

SECOND = 1_000_000
SIZE, HOP, LATENESS, LONGEST = 10 * SECOND, 2 * SECOND, "30 seconds", "60 seconds"
WARM_UP, ROUNDS = 2, 2
QUIET = {"spark__ui__showConsoleProgress": "false"}
HDFS_STORE = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
STORE = "spark.sql.streaming.stateStore.providerClass"
W1_COLUMNS = "ts timestamp, key long, value long"
W2_COLUMNS = "vs timestamp, ve timestamp, key long, value double"

Start = Callable[[Any, Path], Any]


@dataclass
class Outcome:
    """What one query did, micro-batch by micro-batch."""

    name: str
    events: int
    steady: list[dict[str, Any]] = field(repr=False)
    """What Spark reports of each micro-batch with data, warm-up left out."""

    @property
    def seconds(self) -> list[float]:
        """Of each micro-batch."""
        return [p["durationMs"]["triggerExecution"] / 1000 for p in self.steady]

    @property
    def rate(self) -> float:
        """Events a second in the steady state."""
        return self.events * len(self.steady) / sum(self.seconds)

    def __add__(self, later: Outcome) -> Outcome:
        return Outcome(self.name, self.events, self.steady + later.steady)

    def _mean(self, name: str) -> float:
        return float(statistics.mean(p["durationMs"].get(name, 0) for p in self.steady))

    def stages(self) -> list[str]:
        """Milliseconds a micro-batch: what Spark spends around the tasks, and what the tasks do."""
        source, commit = ("latestOffset", "getBatch"), ("walCommit", "commitOffsets")
        around = [self._mean("queryPlanning"), sum(map(self._mean, source)), sum(map(self._mean, commit))]
        found = pipeline_metrics(self.steady)
        # Shards run beside each other: the time of a micro-batch is that of one of them.
        beside = len(self.steady) * max(1, found.turns / len(self.steady))
        names = ("load_seconds", "kernel_seconds", "save_seconds") if found.turns else ()
        each = [1000 * found.stages[name] / beside for name in names]
        shown = [f"{x:.0f}" for x in (*around, self._mean("addBatch"), *each)]
        return shown + [""] * (7 - len(shown))


def _had_data(progress: dict[str, Any]) -> bool:
    return any(source["numInputRows"] for source in progress["sources"])


def write_w1(folder: Path, events: int, batch: int) -> None:
    """A file a micro-batch, in order of arrival."""
    ts, key, value, _ = moving_window.events(events)
    stamps = pa.array(ts).cast(pa.timestamp("us", "UTC"))
    _write(folder, pa.table({"ts": stamps, "key": key, "value": value}), batch)


def write_w2(folder: Path, events: int, batch: int, side: str) -> None:
    """One side of the join."""
    e = interval_join.events(events, side)
    times = {name: pa.array(e[name]).cast(pa.timestamp("us", "UTC")) for name in ("vs", "ve")}
    _write(folder, pa.table({**times, "key": e["key"], "value": e["value"]}), batch // 2)


def _write(folder: Path, table: pa.Table, rows: int) -> None:
    folder.mkdir(parents=True)
    for number, start in enumerate(range(0, table.num_rows, rows)):
        file = folder / f"{number:05}.parquet"
        pq.write_table(table.slice(start, rows), file)
        os.utime(file, (number, number))


def read(spark: Any, folder: Path, columns: str, start: str) -> Any:
    """The directory as a stream with a watermark."""
    frame = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(str(folder))
    return frame.withWatermark(start, LATENESS)


def own_w1(spark: Any, folder: Path) -> Any:
    """Spark's own windows."""
    from pyspark.sql import functions as F  # noqa: N812

    window = F.window("ts", "10 seconds", "2 seconds")
    frame = read(spark, folder, W1_COLUMNS, "ts").groupBy(window, "key")
    return frame.agg(F.count("*").alias("n"), F.sum("value").alias("s")).writeStream.outputMode("update")


def _w1_query() -> rc.Stream:
    known = rc.Properties(is_insert_only=True, is_point=True)
    feed = rc.source("feed", {"key": "int64", "value": "int64"}, start="ts", properties=known)
    return feed.group_by("key").hopping("10s", "2s").agg(n=rc.count(), s=rc.sum("value"))


def our_w1(spark: Any, folder: Path, shards: int = 2) -> Any:
    """Ours over the same DataFrame."""
    inputs = {"feed": read(spark, folder, W1_COLUMNS, "ts")}
    return rc.spark.stream(spark, _w1_query(), inputs, shards=shards).writeStream


def our_w1_files(spark: Any, folder: Path, shards: int = 2) -> Any:
    """Ours over the same files, read by the tasks."""
    inputs, lag = {"feed": str(folder)}, {"feed": "30s"}
    frame = rc.spark.stream(spark, _w1_query(), inputs, shards=shards, watermark=lag, files_per_batch=1)
    return frame.writeStream


def own_w2(spark: Any, folder: Path) -> Any:
    """Spark's own join; it has to be told how long lifetimes are, to free its state."""
    from pyspark.sql import functions as F  # noqa: N812

    left, right = (
        read(spark, folder / side, W2_COLUMNS, "vs").select(
            *(F.col(name).alias(f"{side}_{name}") for name in ("vs", "ve", "key", "value"))
        )
        for side in interval_join.SIDES
    )
    overlap = F.expr(
        "left_key = right_key AND left_vs < right_ve AND right_vs < left_ve "
        f"AND left_vs >= right_vs - INTERVAL {LONGEST} AND left_vs <= right_vs + INTERVAL {LONGEST}"
    )
    return left.join(right, overlap).writeStream


def _w2_query() -> rc.Stream:
    known = rc.Properties(is_insert_only=True)
    columns = {"key": "int64", "value": "float64"}
    left, right = (
        rc.source(side, columns, start="vs", end="ve", properties=known) for side in interval_join.SIDES
    )
    return left.join(right, on="key")


def our_w2(spark: Any, folder: Path, shards: int = 2) -> Any:
    """Ours over the same DataFrames."""
    inputs = {side: read(spark, folder / side, W2_COLUMNS, "vs") for side in interval_join.SIDES}
    return rc.spark.stream(spark, _w2_query(), inputs, shards=shards).writeStream


def our_w2_files(spark: Any, folder: Path, shards: int = 2) -> Any:
    """Ours over the same files, read by the tasks."""
    inputs = {side: str(folder / side) for side in interval_join.SIDES}
    lag = dict.fromkeys(interval_join.SIDES, "30s")
    frame = rc.spark.stream(spark, _w2_query(), inputs, shards=shards, watermark=lag, files_per_batch=1)
    return frame.writeStream


@contextmanager
def store(spark: Any, provider: str) -> Iterator[None]:
    """Spark's own operators on one of its two state stores."""
    spark.conf.set(STORE, provider)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set(STORE, ROCKSDB)


def run(spark: Any, name: str, events: int, writer: Any, folder: Path) -> Outcome:
    """Until all files are taken; what comes out is thrown away."""
    checkpoint = folder / f"checkpoint-{time.monotonic_ns()}"
    writer = writer.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    shutil.rmtree(checkpoint)
    ran = [dict(p) for p in query.recentProgress if p["durationMs"].get("addBatch") and _had_data(p)]
    return Outcome(name, events, ran[WARM_UP:])


def _show(out: Console, title: str, outcomes: list[Outcome]) -> None:
    table = Table(
        title,
        "events/s",
        "median s",
        "first third s",
        "last third s",
        "planning",
        "source",
        "commit",
        "tasks",
        "load",
        "kernel",
        "save",
    )
    for outcome in outcomes:
        seconds = outcome.seconds
        third = max(1, len(seconds) // 3)
        times = [statistics.median(seconds), *map(statistics.mean, (seconds[:third], seconds[-third:]))]
        table.add_row(outcome.name, f"{outcome.rate:,.0f}", *(f"{t:.2f}" for t in times), *outcome.stages())
    out.print(table)
    own = [o for o in outcomes if o.name.startswith("Spark")]
    for ours in outcomes[: len(outcomes) - len(own)]:
        ratios = ", ".join(f"{ours.rate / other.rate:.2f} × {other.name}" for other in own)
        out.print(f"{ours.name}: {ratios}" if own else "", highlight=False)


Writer = Callable[..., Any]
OURS: dict[str, tuple[Writer, Writer]] = {"W1": (our_w1, our_w1_files), "W2": (our_w2, our_w2_files)}
OWN: dict[str, Writer] = {"W1": own_w1, "W2": own_w2}


def write_input(name: str, folder: Path, events: int, batch: int) -> Path:
    """The files of a workload."""
    source = folder / f"{name}-{events}-{batch}"
    if not source.exists() and name == "W1":
        write_w1(source, events, batch)
    elif not source.exists():
        for side in interval_join.SIDES:
            write_w2(source / side, events, batch, side)
    return source


def everyone(spark: Any, name: str, source: Path, batch: int, folder: Path) -> list[Outcome]:
    """All ways to answer, on the same files."""
    frame, files = OURS[name]
    found = [
        run(spark, "ours", batch, frame(spark, source), folder),
        run(spark, "ours, tasks read the files", batch, files(spark, source), folder),
        run(spark, "ours, tasks read the files, 1 shard", batch, files(spark, source, 1), folder),
    ]
    for store_name, provider in (("Spark's, RocksDB", ROCKSDB), ("Spark's, default store", HDFS_STORE)):
        with store(spark, provider):
            found.append(run(spark, store_name, batch, OWN[name](spark, source), folder))
    return found


def compare(spark: Any, out: Console, folder: Path, name: str, events: int, batch: int) -> None:
    """A table. Everyone runs once before, so that no one pays for the others' warm-up, and then in turn, so
    that the machine's pace of the minute is nobody's luck."""
    everyone(spark, name, write_input(name, folder, 8 * batch, batch), batch, folder)
    source = write_input(name, folder, events, batch)
    rounds = [everyone(spark, name, source, batch, folder) for _ in range(ROUNDS)]
    found = [reduce(add, outcomes) for outcomes in zip(*rounds, strict=True)]
    _show(out, f"{name}, {batch:,} events a micro-batch, {events:,} events", found)


def growth(spark: Any, out: Console, folder: Path, events: int, batch: int) -> None:
    """Twice the events, and one shard instead of two."""
    found = []
    for size in (2 * events, events):
        source = folder / f"growth-{size}"
        write_w1(source, size, batch)
        found.append(run(spark, f"ours, {size:,} events", batch, our_w1(spark, source), folder))
    found.append(run(spark, f"ours, {events:,} events, 1 shard", batch, our_w1(spark, source, 1), folder))
    _show(out, f"growth and shards, W1, {batch:,} events a micro-batch", found)


def check(spark: Any, out: Console, folder: Path, events: int, batch: int) -> None:
    """Is what ours puts out right, late events included? Judged by DuckDB over the whole input."""
    import duckdb

    source = folder / f"check-{events}"
    write_w1(source, events, batch)
    log = folder / "check-log"
    frame = our_w1(spark, source)._df
    query = rc.spark.write_changelog(
        frame, log, checkpoint=folder / "check-ck", trigger={"availableNow": True}
    )
    query.awaitTermination()
    reader = open_stream(log)
    found = reconstitute(reader, reader.schema).to_arrow()
    final = max(int(t) for batch_ in open_stream(log) for t in batch_.vs[batch_.kind == 2])
    sql = f"""
        SELECT key, w * {HOP} AS _vs, count(*) AS n, sum(value)::BIGINT AS s
        FROM (SELECT key, value, unnest(range(epoch_us(ts) // {HOP} - {SIZE // HOP} + 1,
                                              epoch_us(ts) // {HOP} + 1)) AS w
              FROM read_parquet('{source}/*.parquet'))
        WHERE (w * {HOP} + {SIZE}) <= {final} GROUP BY key, w
    """
    expected = duckdb.sql(sql).to_arrow_table().sort_by([("key", "ascending"), ("_vs", "ascending")])
    ended = np.asarray(found["_ve"].cast(pa.int64())) <= final
    shown = found.filter(pa.array(ended)).sort_by([("key", "ascending"), ("_vs", "ascending")])
    for name in ("key", "n", "s"):
        if not shown[name].combine_chunks().equals(expected[name].combine_chunks()):
            raise SystemExit(f"column {name} of the final windows differs from DuckDB's")
    out.print(f"checked: {expected.num_rows:,} final windows over {events:,} events equal DuckDB's")


def peaks(jvm: int) -> tuple[float, float]:
    """The largest resident size of Spark's process, and of the Python workers under it, in MB."""
    parents, sizes = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        pid = int(fields["Pid"])
        parents[pid] = int(fields["PPid"])
        sizes[pid] = int(fields.get("VmHWM", "0 kB").split()[0]) / 1024
    daemons = {pid for pid, parent in parents.items() if parent == jvm}
    workers = [sizes[pid] for pid, parent in parents.items() if parent in daemons]
    return sizes.get(jvm, 0.0), max(workers, default=0.0)


def main() -> None:
    """Everything in one go."""
    quick = "quick" in sys.argv[1:]
    out = Console(width=170)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = rc.spark.session("local[2]", "benchmark", spark__driver__memory="4g", **QUIET)
        if quick:
            compare(spark, out, folder, "W1", 2_000_000, 250_000)
        else:
            check(spark, out, folder, 400_000, 50_000)
            compare(spark, out, folder, "W1", 2_500_000, 250_000)
            compare(spark, out, folder, "W1", 750_000, 50_000)
            compare(spark, out, folder, "W2", 1_250_000, 250_000)
            growth(spark, out, folder, 2_000_000, 250_000)
        jvm, workers = peaks(int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))
        spark.stop()
    out.print(f"peak memory: Spark {jvm:,.0f} MB, largest Python worker {workers:,.0f} MB")


if __name__ == "__main__":
    main()
