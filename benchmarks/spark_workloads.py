"""What is asked of Spark's own operators and of ours: W1 and W2 of the local benchmarks, on files.

As a newcomer writes them: text keys, floats, timestamps, nothing declared, answers at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import recension as rc
from benchmarks import interval_join, moving_window

SECOND = 1_000_000
SIZE, HOP, LATENESS, LONGEST = 10 * SECOND, 2 * SECOND, "30 seconds", "60 seconds"
W1_COLUMNS = "ts timestamp, key string, value double"
W2_COLUMNS = "vs timestamp, ve timestamp, key string, value double"
_TYPES = {"key": "string", "value": "float64"}


def write_w1(folder: Path, events: int, batch: int) -> None:
    """A file a micro-batch, in order of arrival."""
    ts, key, value, _ = moving_window.events(events)
    stamps = pa.array(ts).cast(pa.timestamp("us", "UTC"))
    _write(folder, pa.table({"ts": stamps, "key": texts(key), "value": value * 0.1}), batch)


def write_w2(folder: Path, events: int, batch: int, side: str) -> None:
    """One side of the join."""
    e = interval_join.events(events, side)
    times = {name: pa.array(e[name]).cast(pa.timestamp("us", "UTC")) for name in ("vs", "ve")}
    _write(folder, pa.table({**times, "key": texts(e["key"]), "value": e["value"]}), batch // 2)


def texts(keys: np.ndarray[Any, Any]) -> pa.Array:
    """Keys as people have them."""
    names, numbers = np.unique(keys, return_inverse=True)
    return pa.array([f"key {name}" for name in names.tolist()]).take(pa.array(numbers))


def _write(folder: Path, table: pa.Table, rows: int) -> None:
    folder.mkdir(parents=True)
    for number, start in enumerate(range(0, table.num_rows, rows)):
        file = folder / f"{number:05}.parquet"
        pq.write_table(table.slice(start, rows), file)
        os.utime(file, (number, number))


def read(spark: Any, folder: Path, columns: str, start: str, files: int | None = 1) -> Any:
    """The directory as a stream with a watermark; so many files a micro-batch, or all that are there."""
    most = {} if files is None else {"maxFilesPerTrigger": files}
    frame = spark.readStream.schema(columns).options(**most).parquet(str(folder))
    return frame.withWatermark(start, LATENESS)


def own_w1(spark: Any, folder: Path, files: int | None = 1) -> Any:
    """Spark's own windows."""
    from pyspark.sql import functions as F  # noqa: N812

    window = F.window("ts", "10 seconds", "2 seconds")
    frame = read(spark, folder, W1_COLUMNS, "ts", files).groupBy(window, "key")
    return frame.agg(F.count("*").alias("n"), F.sum("value").alias("s")).writeStream.outputMode("update")


def w1_query() -> rc.Stream:
    """Counts and sums of each key, every two seconds."""
    feed = rc.source("feed", _TYPES, start="ts")
    counted = feed.group_by("key").hopping("10s", "2s").agg(n=rc.count(), s=rc.sum("value"))
    return counted.consistency(rc.MIDDLE)


def our_w1(spark: Any, folder: Path, shards: int = 2, files: int | None = 1) -> Any:
    """Ours over the same DataFrame."""
    inputs = {"feed": read(spark, folder, W1_COLUMNS, "ts", files)}
    return rc.spark.stream(spark, w1_query(), inputs, shards=shards).writeStream


def our_w1_files(spark: Any, folder: Path, shards: int = 2) -> Any:
    """Ours over the same files, read by the tasks."""
    inputs, lag = {"feed": str(folder)}, {"feed": "30s"}
    frame = rc.spark.stream(spark, w1_query(), inputs, shards=shards, watermark=lag, files_per_batch=1)
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
    left, right = (rc.source(side, _TYPES, start="vs", end="ve") for side in interval_join.SIDES)
    return left.join(right, on="key").consistency(rc.MIDDLE)


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
