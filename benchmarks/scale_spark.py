"""How queries on Spark scale: by live state, by keys, by events, by executors.

Run as ``python -m benchmarks.scale_spark STUDY ...``, with one or more of

    state      micro-batches of 10,000 events while 0.1, 1 and 10 million events are live, two shards;
    keys       W1 beside Spark's own operators, with 1,000 and with 1,000,000 keys;
    events     many events end to end (100 million): are micro-batches and workers flat from first to last?
    executors  the same work on one and on two executors of one core each, in processes of their own.

``--scale 0.01`` makes everything smaller; ``--live`` names the sizes of ``state``. Files of Parquet are read
by the tasks, one a micro-batch; the sink throws rows away. Times are the wall clock's per micro-batch as
Spark reports them, and processor time of its processes, which other work on the machine disturbs less. A
visit of a shard is a *hit* if the worker still has its engine, and a *miss* if the engine is stale or has to
be loaded.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import recension as rc
from benchmarks.spark import HDFS_STORE, QUIET, store
from benchmarks.spark_processes import ProcessWatch, Usage
from recension.runners.spark.session import ROCKSDB
from recension.runners.spark.stream.metrics import shard_reports

MICRO_BATCH, LOAD, STEADY, WARM_UP = 10_000, 500_000, 40, 5
SIZES: Final = (100_000, 1_000_000, 10_000_000)
SECOND: Final = 1_000_000
SETTINGS: Final = {
    "spark__driver__memory": "6g",
    "spark__sql__streaming__numRecentProgressUpdates": "4000",
    **QUIET,
}


@dataclass(frozen=True)
class MicroBatch:
    """What Spark and the shards report of one micro-batch."""

    seconds: float
    events: int
    shards: list[dict[str, Any]]

    @property
    def is_hit(self) -> bool:
        """Whether every shard found its engine as it had left it."""
        return all(shard["was_live"] for shard in self.shards)

    def total(self, name: str) -> float:
        """Of all shards."""
        return float(sum(shard[name] for shard in self.shards))


@dataclass(frozen=True)
class Run:
    """The micro-batches of a query, and what Spark's processes had used before the first and after each."""

    batches: list[MicroBatch]
    used: list[Usage]

    def cpu(self, batches: int) -> tuple[float, float]:
        """Processor seconds a micro-batch over the last ones: of Spark's JVMs, and of the workers."""
        before, after = self.used[-1 - batches], self.used[-1]
        return (after.jvm - before.jvm) / batches, (after.workers - before.workers) / batches


def run(frame: Any, folder: Path) -> Run:
    """Until all files are taken; what comes out is thrown away."""
    checkpoint = folder / f"checkpoint-{time.monotonic_ns()}"
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    with ProcessWatch(frame.sparkSession, checkpoint) as watch:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    shutil.rmtree(checkpoint)
    return Run(_micro_batches(query), watch.seen)


def _micro_batches(query: Any) -> list[MicroBatch]:
    found = []
    for progress in map(dict, query.recentProgress):
        events = sum(source["numInputRows"] for source in progress["sources"])
        if progress["durationMs"].get("addBatch") and events:
            shards = [report for _, report in shard_reports(progress)]
            taken = sum(shard["elements"] for shard in shards) or events
            found.append(MicroBatch(progress["durationMs"]["triggerExecution"] / 1000, taken, shards))
    return found


def write_files(folder: Path, tables: Iterator[pa.Table]) -> Path:
    """A file a micro-batch; Spark takes the older first."""
    folder.mkdir(parents=True)
    for number, table in enumerate(tables):
        file = folder / f"{number:06}.parquet"
        pq.write_table(table, file)
        os.utime(file, (number, number))
    return folder


def long_lived(live: int, batches: int) -> Iterator[pa.Table]:
    """An event a tick, which lives for ``live`` ticks, two a key: first those that fill the state."""
    rng, now = np.random.default_rng(5), 0
    load = min(LOAD, live)
    for size in [load] * (-(-live // load)) + [MICRO_BATCH] * batches:
        vs = np.arange(now, now + size)
        key = rng.integers(0, live // 2, size)
        yield pa.table({"start": vs, "end": vs + live, "key": key, "x": rng.random(size)})
        now += size


def by_key(spark: Any, folder: Path, shards: int = 2) -> Any:
    """Count and sum by key over lifetimes, eager."""
    feed = rc.source("feed", {"key": "int64", "x": "float64"}, start="start", end="end")
    query = feed.group_by("key").agg(n=rc.count(), total=rc.sum("x"), speculate="eager")
    lag = {"feed": 0}
    return rc.spark.stream(
        spark, query, {"feed": str(folder)}, shards=shards, watermark=lag, files_per_batch=1
    )


def state(out: Console, folder: Path, sizes: list[int]) -> None:
    """The median micro-batch should not follow the live state."""
    spark = rc.spark.session("local[2]", "scale", **SETTINGS)
    columns = ("median s", "hits", "of them, s", "misses, s", "most, s", "load ms", "kernel ms", "save ms")
    table = Table("live events", *columns, "bytes", "rows an event", "CPU s: Spark", "workers", "ratio")
    run(by_key(spark, write_files(folder / "warm-up", long_lived(20_000, STEADY))), folder)
    first = 0.0
    for live in sizes:
        source = write_files(folder / f"state-{live}", long_lived(live, STEADY + WARM_UP))
        ran = run(by_key(spark, source), folder)
        shutil.rmtree(source)
        median = statistics.median(one.seconds for one in ran.batches[-STEADY:])
        first = first or median
        table.add_row(f"{live:,}", *_state_figures(ran, median), f"{median / first:.2f}")
        out.print(table)
    spark.stop()


def _state_figures(ran: Run, median: float) -> list[str]:
    steady = ran.batches[-STEADY:]
    stages = [
        1000 * statistics.median(one.total(name) / len(one.shards) for one in steady)
        for name in ("load_seconds", "kernel_seconds", "save_seconds")
    ]
    hits, misses = ([one.seconds for one in steady if one.is_hit is kind] for kind in (True, False))
    events = sum(one.events for one in steady)
    written = [sum(one.total(name) for one in steady) / events for name in ("bytes_written", "rows_written")]
    return [
        *(f"{median:.2f}", f"{len(hits)} of {len(steady)}", _median(hits)),
        *(_median(misses), f"{max(one.seconds for one in steady):.2f}"),
        *(f"{stage:.0f}" for stage in stages),
        *(f"{written[0]:.0f}", f"{written[1]:.1f}", *(f"{cpu:.2f}" for cpu in ran.cpu(STEADY))),
    ]


def _median(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f}" if seconds else "-"


def points(events: int, keys: int, batch: int) -> Iterator[pa.Table]:
    """W1: 10,000 events a second of event time, a fifth of them late by up to 30 s."""
    rng = np.random.default_rng(7)
    for start in range(0, events, batch):
        size = min(batch, events - start)
        ts = (start + np.arange(size)) * 100 + 60 * SECOND
        ts -= np.where(rng.random(size) < 0.2, rng.integers(0, 30 * SECOND, size), 0)
        stamps = pa.array(ts).cast(pa.timestamp("us", "UTC"))
        yield pa.table({"ts": stamps, "key": rng.integers(0, keys, size), "value": rng.random(size)})


def w1(spark: Any, folder: Path, shards: int = 2) -> Any:
    """Hopping windows of 10 s every 2 s, count and sum per key; nothing is declared."""
    feed = rc.source("feed", {"key": "int64", "value": "float64"}, start="ts")
    query = feed.group_by("key").hopping("10s", "2s").agg(n=rc.count(), s=rc.sum("value"))
    lag = {"feed": "30s"}
    return rc.spark.stream(
        spark, query, {"feed": str(folder)}, shards=shards, watermark=lag, files_per_batch=1
    )


def own_w1(spark: Any, folder: Path) -> Any:
    """The same by Spark's own operators."""
    from pyspark.sql import functions as F  # noqa: N812

    frame = spark.readStream.schema("ts timestamp, key long, value double").option("maxFilesPerTrigger", 1)
    frame = frame.parquet(str(folder)).withWatermark("ts", "30 seconds")
    window = F.window("ts", "10 seconds", "2 seconds")
    return frame.groupBy(window, "key").agg(F.count("*").alias("n"), F.sum("value").alias("s"))


def keys(out: Console, folder: Path, scale: float) -> None:
    """Ours and Spark's own, with few and with many keys."""
    spark = rc.spark.session("local[2]", "scale", **SETTINGS)
    table = Table("W1", "keys", "events/s", "median s", "ours / it")
    batch = max(10_000, int(250_000 * scale))
    for count in (1_000, max(2_000, int(1_000_000 * scale))):
        source = write_files(folder / f"keys-{count}", points(10 * batch, count, batch))
        rates: dict[str, tuple[float, float]] = {}
        for name, measure in _ways(spark, source, folder).items():
            ran = measure().batches[3:]
            median = statistics.median(one.seconds for one in ran)
            rates[name] = batch / median, median
        ours = rates["ours"][0]
        for name, (rate, median) in rates.items():
            table.add_row(name, f"{count:,}", f"{rate:,.0f}", f"{median:.2f}", f"{ours / rate:.2f}")
        shutil.rmtree(source)
    spark.stop()
    out.print(table)


def _ways(spark: Any, source: Path, folder: Path) -> dict[str, Callable[[], Run]]:
    def own(provider: str) -> Run:
        with store(spark, provider):
            return run(_UpdateMode(own_w1(spark, source)), folder)

    return {
        "ours": lambda: run(w1(spark, source), folder),
        "Spark's, RocksDB": lambda: own(ROCKSDB),
        "Spark's, default store": lambda: own(HDFS_STORE),
    }


class _UpdateMode:
    """A frame that is written as Spark's own aggregates are: what changed."""

    def __init__(self, frame: Any) -> None:
        self.sparkSession = frame.sparkSession
        self.writeStream = frame.writeStream.outputMode("update")


def events(out: Console, folder: Path, scale: float) -> None:
    """Many events: the first and the last tenth of the micro-batches, and the workers' memory."""
    spark = rc.spark.session("local[2]", "scale", **SETTINGS)
    size, batch = max(200_000, int(100_000_000 * scale)), max(10_000, int(500_000 * min(1, 10 * scale)))
    source = write_files(folder / "events", points(size, 100_000, batch))
    began = time.perf_counter()
    ran = run(w1(spark, source), folder)
    seconds = time.perf_counter() - began
    spark.stop()
    count = len(ran.batches)
    tenth = max(1, count // 10)
    table = Table("micro-batches", "median s", "CPU s: Spark", "workers", "largest worker MB")
    for name, at in {"first tenth": 1, "a middle one": count // 2, "last tenth": count - tenth}.items():
        median = statistics.median(one.seconds for one in ran.batches[at : at + tenth])
        before, after = ran.used[at], ran.used[at + tenth]
        cpu = [(now - then) / tenth for then, now in zip(before[:2], after[:2], strict=True)]
        table.add_row(name, *(f"{value:.2f}" for value in (median, *cpu)), f"{after.worker_mb:,.0f}")
    rate = f"{seconds:,.0f} s, {size / seconds:,.0f} events/s"
    out.print(f"{size:,} events in {count} micro-batches: {rate}", table, sep="\n")


def executors(out: Console, folder: Path, scale: float) -> None:
    """The same micro-batches on one and on two executors."""
    batch = max(20_000, int(500_000 * scale))
    source = write_files(folder / "executors", points(12 * batch, 100_000, batch))
    rates = []
    for count in (1, 2):
        master = f"local-cluster[{count},1,3072]"
        spark = rc.spark.session(master, "scale", spark__executor__memory="3g", **SETTINGS)
        whole = run(w1(spark, source, shards=2), folder)
        spark.stop()
        ran, cpu = whole.batches[4:], whole.cpu(8)
        rates.append(batch / statistics.median(one.seconds for one in ran))
        kernel = statistics.median(1000 * one.total("kernel_seconds") / len(one.shards) for one in ran)
        out.print(
            f"{count} executor(s) of one core: {rates[-1]:,.0f} events/s, kernel {kernel:.0f} ms a shard, "
            f"processor time a micro-batch: Spark {cpu[0]:.2f} s, workers {cpu[1]:.2f} s",
            highlight=False,
        )
    out.print(f"two executors: {rates[1] / rates[0]:.2f} × one", highlight=False)


STUDIES: Final = {"keys": keys, "events": events, "executors": executors}


def main() -> None:
    """Run the studies that are asked for."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m benchmarks.scale_spark", None, __doc__, formatter_class=form)
    parser.add_argument("study", nargs="+", choices=["state", *STUDIES])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--live", nargs="+", type=int, help="sizes of state, in live events")
    asked = parser.parse_args()
    live = asked.live or [max(20_000, int(size * asked.scale)) for size in SIZES]
    for name in asked.study:
        with tempfile.TemporaryDirectory() as place:
            out, folder = Console(width=170), Path(place)
            state(out, folder, live) if name == "state" else STUDIES[name](out, folder, asked.scale)


if __name__ == "__main__":
    main()
