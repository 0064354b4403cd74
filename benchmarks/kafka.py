"""Kafka to nowhere: W1 off a topic beside Spark's own operators that read the same topic, in one run.

`python -m benchmarks.kafka [quick]` starts a broker of its own. The events of W1 lie in topics of 1, 12 and
200 partitions, as JSON; what partitions cost is seen by comparing these. The same events as Arrow data, 5,000
in a message, show what is left without the parsing of JSON. Rates are as in `benchmarks.spark`.
"""

from __future__ import annotations

import sys
import tempfile
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from scripts.kafka_broker import Broker, running_broker
from scripts.kafka_jars import jars

import recension as rc
from benchmarks import moving_window
from benchmarks.harness import Result
from benchmarks.spark import HDFS_STORE, OWN_NAME, QUIET, Outcome, run, show, store
from benchmarks.spark_workloads import LATENESS
from recension.runners.spark.session import ROCKSDB

PARTITIONS = (1, 12, 200)
TABLES = 12
ROWS = 5_000
JSON = "ts long, key long, value long"


def fill(spark: Any, broker: Broker, topic: str, partitions: int, events: int, rows: int = 1) -> str:
    """Put the events of W1 into a topic, in the order of arrival: one a message, or a table of them."""
    from pyspark.sql import functions as F  # noqa: N812

    broker.create_topic(topic, partitions)
    ts, key, value, _ = moving_window.events(events)
    table = pa.table({"ts": ts, "key": key, "value": value})
    if rows == 1:
        # In turn: each partition has all times and all keys.
        placed = table.append_column("partition", pa.array(np.arange(events) % partitions, pa.int32()))
        frame = spark.createDataFrame(placed).coalesce(1)
        frame = frame.select("partition", F.to_json(F.struct("ts", "key", "value")).alias("value"))
    else:
        parts = [table.slice(start, rows) for start in range(0, events, rows)]
        numbers = [(n % partitions, bytearray(_arrow(part))) for n, part in enumerate(parts)]
        frame = spark.createDataFrame(numbers, "partition int, value binary").coalesce(1)
    frame.write.format("kafka").options(**_options(broker)).option("topic", topic).save()
    return topic


def _arrow(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


def _options(broker: Broker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.address}


def ours(spark: Any, broker: Broker, topic: str, batch: int, form: Any = "json") -> Any:
    """Our windows over the topic."""
    known = rc.Properties(is_insert_only=True, is_point=True)
    order = ["offset", "row"] if form == "arrow" else "offset"
    feed = rc.source(
        "feed",
        {"key": "int64", "value": "int64"},
        start="ts",
        properties=known,
        partition="partition",
        order=order,
    )
    query = feed.group_by("key").hopping("10s", "2s").agg(n=rc.count(), s=rc.sum("value"))
    limit = {"maxOffsetsPerTrigger": str(batch)}
    given = rc.spark.read_kafka(spark, feed, broker.address, topic, format=form, options=limit)
    return rc.spark.stream(spark, query, {"feed": given}, shards=2, watermark={"feed": "30s"}).writeStream


def own(spark: Any, broker: Broker, topic: str, batch: int) -> Any:
    """Spark's own windows over the same topic."""
    from pyspark.sql import functions as F  # noqa: N812

    options = {**_options(broker), "subscribe": topic, "startingOffsets": "earliest"}
    reader = spark.readStream.format("kafka").options(**options)
    raw = reader.option("maxOffsetsPerTrigger", str(batch)).load()
    rows = raw.select(F.from_json(F.col("value").cast("string"), JSON).alias("row")).select("row.*")
    timed = rows.withColumn("ts", F.timestamp_micros("ts")).withWatermark("ts", LATENESS)
    found = timed.groupBy(F.window("ts", "10 seconds", "2 seconds"), "key")
    return found.agg(F.count("*").alias("n"), F.sum("value").alias("s")).writeStream.outputMode("update")


def everyone(spark: Any, broker: Broker, topic: str, batch: int, folder: Path) -> list[Outcome]:
    """Ours and Spark's own on both of its stores, on one topic."""
    found = [run(spark, "ours", batch, ours(spark, broker, topic, batch), folder)]
    for name, provider in ((f"{OWN_NAME}, RocksDB", ROCKSDB), (f"{OWN_NAME}, default store", HDFS_STORE)):
        with store(spark, provider):
            found.append(run(spark, name, batch, own(spark, broker, topic, batch), folder))
    return found


def measured(folder: Path, out: Console, *, quick: bool = False) -> list[Result]:
    """Everything in one go, for the table of all benchmarks too."""
    batch = 50_000 if quick else 250_000
    events, rounds = (7 if quick else 10) * batch, 1 if quick else 2
    connector = ",".join(str(jar) for jar in jars("connector"))
    settings = {"spark__driver__memory": "4g", "spark__jars": connector, **QUIET}
    spark = rc.spark.session("local[2]", "benchmark", **settings)
    results: list[Result] = []
    with running_broker(folder / "broker", memory="1g") as broker:
        topics = {number: fill(spark, broker, f"w1-{number}", number, events) for number in PARTITIONS}
        tables = fill(spark, broker, "w1-tables", TABLES, events, ROWS)
        everyone(spark, broker, topics[TABLES], batch, folder)  # nobody pays for the others' warm-up
        for number, topic in topics.items():
            turns = [everyone(spark, broker, topic, batch, folder) for _ in range(rounds)]
            found = [reduce(add, outcomes) for outcomes in zip(*turns, strict=True)]
            if number == TABLES:
                as_tables = ours(spark, broker, tables, batch // ROWS, "arrow")
                found.append(run(spark, f"ours, Arrow, {ROWS:,} a message", batch, as_tables, folder))
            title = f"W1 off {number} partitions"
            show(out, f"{title}, {batch:,} events a micro-batch, {events:,} events", found)
            results += [outcome.result(title, found) for outcome in found]
    spark.stop()
    return results


def main() -> None:
    """The same by itself."""
    with tempfile.TemporaryDirectory() as name:
        measured(Path(name), Console(width=170), quick="quick" in sys.argv[1:])


if __name__ == "__main__":
    main()
