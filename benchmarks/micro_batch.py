"""What a micro-batch costs however few rows it has, and how long a row waits for its answer.

`python -m benchmarks.micro_batch [quick]`. First micro-batches of ten rows, stage by stage: a query without
state, Spark's own windows on both its stores, ours with one stateful level and with two. Then latency: files
come twenty times a second, and a row has waited from when its file was there until its micro-batch was
committed. Same session, same machine, one after the other.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import recension as rc
from benchmarks import spark_workloads as work
from benchmarks.spark import HDFS_STORE, OWN_NAME, QUIET, Outcome, run, show, store
from recension.runners.spark.session import ROCKSDB

ROWS, BATCHES, WARM = 10, 40, 20
RATES, PERIOD, SECONDS, WARM_SECONDS, KEYS = (1_000, 100_000), 0.05, 30.0, 10.0, 1_000
SETTINGS = {
    # Files that pile up would be looked for by a task each.
    "spark__sql__sources__parallelPartitionDiscovery__threshold": "1000000",
    # The times of all commits are read at the end.
    "spark__sql__streaming__minBatchesToRetain": "1000000",
}
Query = Callable[..., Any]


def two_levels(spark: Any, folder: Path) -> Any:
    """The windows of each key, and then those of all keys together that have as many events."""
    counted = work.w1_query().group_by("n").tumbling("10s").agg(keys=rc.count())
    inputs = {"feed": work.read(spark, folder, work.W1_COLUMNS, "ts")}
    return rc.spark.stream(spark, counted, inputs, shards=2).writeStream


def no_state(spark: Any, folder: Path) -> Any:
    """Rows as they come."""
    return work.read(spark, folder, work.W1_COLUMNS, "ts").selectExpr("key", "value + 1").writeStream


def fixed_cost(spark: Any, out: Console, folder: Path, batches: int) -> None:
    """Stage by stage."""
    source = work.write_input("W1", folder, (WARM + batches) * ROWS, ROWS)
    asked: dict[str, tuple[Query, str]] = {
        f"{OWN_NAME}, without state": (no_state, ROCKSDB),
        f"{OWN_NAME}, RocksDB": (work.own_w1, ROCKSDB),
        f"{OWN_NAME}, default store": (work.own_w1, HDFS_STORE),
        "ours, one level": (work.our_w1, ROCKSDB),
        "ours, one level, tasks read the files": (work.our_w1_files, ROCKSDB),
        "ours, two levels": (two_levels, ROCKSDB),
    }
    found = []
    for name, (query, provider) in asked.items():
        with store(spark, provider):
            ran = run(spark, name, ROWS, query(spark, source), folder)
        found.append(Outcome(name, ROWS, ran.steady[WARM:]))
    show(out, f"{ROWS} rows a micro-batch, {batches} micro-batches", found)


@contextmanager
def arriving(folder: Path, rate: int, seconds: float) -> Iterator[threading.Thread]:
    """Files come at this rate, for so long."""
    rows, luck = int(rate * PERIOD), np.random.default_rng(4)

    def write() -> None:
        began = time.time()
        for number in range(int(seconds / PERIOD)):
            time.sleep(max(0.0, began + number * PERIOD - time.time()))
            stamps = pa.array(np.full(rows, int(time.time() * 1e6))).cast(pa.timestamp("us", "UTC"))
            keys = work.texts(luck.integers(0, KEYS, rows))
            columns = {"ts": stamps, "key": keys, "value": luck.random(rows)}
            hidden = folder / f".{number:06}"
            pq.write_table(pa.table(columns), hidden)
            os.rename(hidden, folder / f"{number:06}.parquet")

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    yield thread
    thread.join()


def latencies(spark: Any, query: Query, folder: Path, rate: int, seconds: float) -> np.ndarray[Any, Any]:
    """Seconds from each file's arrival to the commit of its micro-batch, without those of the warm-up."""
    source, checkpoint = folder / "files", folder / "checkpoint"
    source.mkdir(parents=True)
    writer = query(spark, source).format("noop").option("checkpointLocation", str(checkpoint))
    started = writer.trigger(processingTime="0 seconds").start()
    with arriving(source, rate, seconds):
        pass
    started.processAllAvailable()
    started.stop()
    waits = []
    for path, number in _batches_of_files(checkpoint):
        came = (source / path).stat().st_mtime
        waits.append((came, (checkpoint / "commits" / str(number)).stat().st_mtime - came))
    first = min(came for came, _ in waits)
    return np.array([wait for came, wait in waits if came >= first + WARM_SECONDS])


def _batches_of_files(checkpoint: Path) -> Iterator[tuple[str, int]]:
    """Each file with the number of its micro-batch, from the log that Spark keeps of a source of files."""
    seen = set[str]()
    for log in sorted((checkpoint / "sources" / "0").glob("[0-9]*")):
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            name = entry["path"].rpartition("/")[2]
            if name not in seen:  # a compacted log repeats the others
                seen.add(name)
                yield name, int(entry["batchId"])


def latency(spark: Any, out: Console, folder: Path, seconds: float) -> None:
    """A table: the rate, and how long half and nearly all rows waited."""
    table = Table("from a row's arrival to its answer, ms", "events/s", "p50", "p99")
    asked: dict[str, Query] = {"ours": work.our_w1, f"{OWN_NAME}, RocksDB": work.own_w1}
    for rate in RATES:
        for name, query in asked.items():
            place = folder / f"latency-{rate}-{len(name)}"
            with store(spark, ROCKSDB):
                waits = 1000 * latencies(spark, _all_files(query), place, rate, seconds)
            table.add_row(name, f"{rate:,}", *(f"{np.percentile(waits, p):,.0f}" for p in (50, 99)))
    out.print(table)


def _all_files(query: Query) -> Query:
    """The same query, which takes all files that are there."""
    return lambda spark, folder: query(spark, folder, files=None)


def main() -> None:
    """Both tables."""
    out, is_quick = Console(width=170), "quick" in sys.argv[1:]
    spark = rc.spark.session("local[2]", "benchmark", spark__driver__memory="4g", **QUIET, **SETTINGS)
    with tempfile.TemporaryDirectory() as name:
        fixed_cost(spark, out, Path(name), 10 if is_quick else BATCHES)
        latency(spark, out, Path(name), WARM_SECONDS + 5 if is_quick else SECONDS)
    spark.stop()


if __name__ == "__main__":
    main()
