"""A process with one Spark session of two cores: Spark's own queries and ours on it, one request at a time.

Both read the same folders, as many files of every source in a micro-batch, and write their answers to files.
The first micro-batch, in which Spark compiles the query, is not counted. Spark's own queries have Spark's
default state store; ours have RocksDB, as `rc.spark.session` sets it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import recension as rc
from benchmarks.nexmark.comparison import last_rows
from benchmarks.nexmark.generator import Settings, write
from benchmarks.nexmark.spark import our_stream
from benchmarks.nexmark.spark_own import FRAMES, UPDATES, Tables
from benchmarks.peers.worker import Answer, serve
from benchmarks.spark import HDFS_STORE, QUIET, STORE
from recension.runners.spark.session import ROCKSDB

_MICROSECONDS = {"spark__sql__parquet__outputTimestampType": "TIMESTAMP_MICROS"}


def measure(spark: Any, request: Answer) -> Answer:
    """What a query took after its first micro-batch; its answer goes to a file."""
    name, files, out = request["query"], Path(request["files"]), Path(request["out"])
    steps, per_batch = len(json.loads((files / "steps.json").read_text())["ctis"]), request["files_per_batch"]
    is_ours = request["way"] == "ours"
    spark.conf.set(STORE, ROCKSDB if is_ours else HDFS_STORE)
    answer, progress = (our_stream if is_ours else _own_stream)(spark, name, files, out, per_batch)
    pq.write_table(answer, out / "answer.parquet")
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in progress]
    marks = [p["eventTime"]["watermark"] for p in progress if "watermark" in p.get("eventTime", {})]
    return {
        "seconds": sum(seconds[1:]),
        "micro_batches": len(seconds),
        "share": 1 - per_batch / steps,
        "watermark": marks[-1] if marks and name not in UPDATES else None,
    }


def _own_stream(spark: Any, name: str, files: Path, out: Path, per_batch: int) -> tuple[pa.Table, list[Any]]:
    """The answer, and what Spark reports of each micro-batch."""
    frame, keys, rows = FRAMES[name](Tables(spark, files, per_batch)), UPDATES.get(name), str(out / "rows")
    writer = frame.writeStream.option("checkpointLocation", str(out / "checkpoint"))
    if keys:
        writer = writer.outputMode("update").foreachBatch(partial(_append, rows=rows))
    else:
        writer = writer.format("parquet").option("path", rows)
    if name == "q10":
        writer = writer.partitionBy("day", "minute")
    running = writer.trigger(availableNow=True).start()
    running.awaitTermination()
    table = pq.read_table(rows)
    return last_rows(table, keys) if keys else table, running.recentProgress


def _append(frame: Any, number: int, rows: str) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    frame.withColumn("_batch", F.lit(number)).write.mode("append").parquet(rows)


def prepare() -> Callable[[Answer], Answer]:
    """Start Spark, and run one query of each side so that no other pays for that."""
    spark = rc.spark.session(
        "local[2]", "nexmark", spark__driver__memory="4g",
        spark__sql__shuffle__partitions="2", **_MICROSECONDS, **QUIET,
    )  # fmt: skip
    with TemporaryDirectory() as place:
        write(Settings(500, steps=2), files := Path(place, "files"))
        for way in ("own", "ours"):
            request = {"way": way, "query": "q0", "files": str(files), "out": str(Path(place, way))}
            measure(spark, request | {"files_per_batch": 1})
    return partial(measure, spark)


if __name__ == "__main__":
    serve(prepare)
