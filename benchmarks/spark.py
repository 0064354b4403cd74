"""Queries as Spark pipelines beside Spark's own operators: same data, same session, same micro-batches.

`python -m benchmarks.spark [quick]` runs everything in one go. W1: hopping windows of 10 s every 2 s, count
and sum per key, 20 % of the events late by up to 30 s. W2: the interval join of two such streams. Keys are
text, values floats, nothing is declared, and answers come at once: ours are corrected, Spark's windows are in
update mode. The source is a directory of Parquet files, one a micro-batch; the sink throws rows away. Times
are the wall clock's per micro-batch as Spark reports them, without the first two of a query; a rate is that
of the median micro-batch. With RocksDB Spark's join and its large micro-batches take minutes; they are
measured on its default store only. A micro-batch of a million events takes its join minutes on any store.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import recension as rc
from benchmarks.harness import Result
from benchmarks.spark_workloads import HOP, OURS, OWN, SIZE, our_w1, write_input, write_w1
from recension.core.reconstitution import reconstitute
from recension.gate.files import open_stream
from recension.runners.spark.session import ROCKSDB
from recension.runners.spark.stream.metrics import pipeline_metrics

WARM_UP = 2
ROCKSDB_MOST = 50_000
OWN_NAME = "Spark's"
COLUMNS = (
    *("events/s", "median s", "first third s", "last third s"),
    *("planning", "source", "commit", "tasks", "load", "kernel", "save"),
)
QUIET = {"spark__ui__showConsoleProgress": "false"}
HDFS_STORE = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
STORE = "spark.sql.streaming.stateStore.providerClass"


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
        """Events a second of the median micro-batch: a pause of the machine is nobody's steady state."""
        return self.events / statistics.median(self.seconds)

    def __add__(self, later: Outcome) -> Outcome:
        return Outcome(self.name, self.events, self.steady + later.steady)

    def _mean(self, name: str) -> float:
        return float(statistics.mean(p["durationMs"].get(name, 0) for p in self.steady))

    @property
    def kernel_seconds(self) -> float:
        """Of one shard: they run beside each other."""
        found = pipeline_metrics(self.steady)
        return found.stages["kernel_seconds"] / max(1, found.turns)

    def ratios(self, others: list[Outcome]) -> dict[str, float]:
        """How fast it is beside Spark's own, if it is not one of them."""
        if self.name.startswith(OWN_NAME):
            return {}
        return {o.name: self.rate / o.rate for o in others if o.name.startswith(OWN_NAME)}

    def result(self, workload: str, others: list[Outcome]) -> Result:
        """As a line of the table of all benchmarks; both cores work, so the clock counts. All share
        one session: what it takes at its most is told once, beside the table."""
        count, name = len(self.steady), f"{workload}: {self.name}"
        seconds = [count * statistics.median(self.seconds)]
        size, ratios = self.events * count, self.ratios(others)
        return Result("spark", name, size, 0, seconds, seconds, 0.0, 0.0, against=ratios)

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


def show(out: Console, title: str, outcomes: list[Outcome]) -> None:
    """Print a table, and what ours is beside Spark's own."""
    table = Table(title, *COLUMNS)
    for outcome in outcomes:
        seconds = outcome.seconds
        third = max(1, len(seconds) // 3)
        times = [statistics.median(seconds), *map(statistics.mean, (seconds[:third], seconds[-third:]))]
        table.add_row(outcome.name, f"{outcome.rate:,.0f}", *(f"{t:.2f}" for t in times), *outcome.stages())
    out.print(table)
    for ours in outcomes:
        if ratios := ours.ratios(outcomes):
            shown = ", ".join(f"{ratio:.2f} × {name}" for name, ratio in ratios.items())
            out.print(f"{ours.name}: {shown}", highlight=False)


def everyone(spark: Any, name: str, source: Path, batch: int, folder: Path) -> list[Outcome]:
    """All ways to answer, on the same files."""
    frame, files = OURS[name]
    found = [
        run(spark, "ours", batch, frame(spark, source), folder),
        run(spark, "ours, tasks read the files", batch, files(spark, source), folder),
    ]
    stores = {f"{OWN_NAME}, default store": HDFS_STORE}
    if name == "W1" and batch <= ROCKSDB_MOST:
        stores[f"{OWN_NAME}, RocksDB"] = ROCKSDB
    for store_name, provider in stores.items():
        with store(spark, provider):
            found.append(run(spark, store_name, batch, OWN[name](spark, source), folder))
    return found


def compare(
    spark: Any,
    out: Console,
    folder: Path,
    name: str,
    events: int,
    batch: int,
    warm: int = 4,
    rounds: int = 1,
) -> list[Result]:
    """A table. Everyone takes some micro-batches before, so that no one pays for the others' warm-up; then
    all go in turn, so that the machine's pace of the minute is nobody's luck."""
    everyone(spark, name, write_input(name, folder, warm * batch, batch), batch, folder)
    source = write_input(name, folder, events, batch)
    rounds_of = [everyone(spark, name, source, batch, folder) for _ in range(rounds)]
    found = [reduce(add, outcomes) for outcomes in zip(*rounds_of, strict=True)]
    show(out, f"{name}, {batch:,} events a micro-batch, {events:,} events", found)
    return [outcome.result(f"{name}, {batch:,} a micro-batch", found) for outcome in found]


def growth(spark: Any, out: Console, folder: Path, events: int, batch: int) -> list[Result]:
    """Twice the events, and one shard instead of two."""
    found = []
    for size in (2 * events, events):
        source = folder / f"growth-{size}"
        write_w1(source, size, batch)
        found.append(run(spark, f"ours, {size:,} events", batch, our_w1(spark, source), folder))
    found.append(run(spark, f"ours, {events:,} events, 1 shard", batch, our_w1(spark, source, 1), folder))
    show(out, f"growth and shards, W1, {batch:,} events a micro-batch", found)
    two, one = (outcome.kernel_seconds for outcome in found[1:])
    out.print(f"the kernel in 2 shards: {one / two:.2f} × as fast as in 1", highlight=False)
    return [outcome.result("W1, growth", []) for outcome in found]


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
        SELECT key, w * {HOP} AS _vs, count(*) AS n, sum(value) AS s
        FROM (SELECT key, value, unnest(range(epoch_us(ts) // {HOP} - {SIZE // HOP} + 1,
                                              epoch_us(ts) // {HOP} + 1)) AS w
              FROM read_parquet('{source}/*.parquet'))
        WHERE (w * {HOP} + {SIZE}) <= {final} GROUP BY key, w
    """
    expected = duckdb.sql(sql).to_arrow_table().sort_by([("key", "ascending"), ("_vs", "ascending")])
    ended = np.asarray(found["_ve"].cast(pa.int64())) <= final
    shown = found.filter(pa.array(ended)).sort_by([("key", "ascending"), ("_vs", "ascending")])
    same = {
        name: shown[name].combine_chunks().equals(expected[name].combine_chunks()) for name in ("key", "n")
    }
    same["s"] = all(same.values()) and np.allclose(shown["s"], expected["s"], rtol=1e-9, atol=0)
    if wrong := [name for name, is_same in same.items() if not is_same]:
        raise SystemExit(f"of the final windows differ from DuckDB's: {', '.join(wrong)}")
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


def measured(folder: Path, out: Console, *, quick: bool = False) -> list[Result]:
    """Everything in one go, for the table of all benchmarks too."""
    spark = rc.spark.session("local[2]", "benchmark", spark__driver__memory="4g", **QUIET)
    check(spark, out, folder, 400_000, 50_000)
    found = compare(spark, out, folder, "W1", 2_500_000, 250_000, warm=6, rounds=2)
    if not quick:
        found += compare(spark, out, folder, "W1", 750_000, 50_000, rounds=2)
        found += compare(spark, out, folder, "W1", 6_000_000, 1_000_000)
        found += compare(spark, out, folder, "W2", 1_250_000, 250_000, warm=3)
        found += growth(spark, out, folder, 2_000_000, 250_000)
    jvm, workers = peaks(int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))
    spark.stop()
    out.print(f"peak memory: Spark {jvm:,.0f} MB, largest Python worker {workers:,.0f} MB")
    return found


def main() -> None:
    """The same by itself."""
    with tempfile.TemporaryDirectory() as name:
        measured(Path(name), Console(width=170), quick="quick" in sys.argv[1:])


if __name__ == "__main__":
    main()
