"""Many queries in one real Spark pipeline: a query alone costs seconds to start, a hundred hardly more.

Packets of all sources are written as a file a micro-batch; from there on everything is as in any pipeline.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema
from tests.runners.spark.stream.rehearsal import Arriving, Rehearsal, packed
from tests.runners.spark.stream.united import COLUMNS, Places, Uniting, read_answers

import recension as rc
from recension.core.batch import EventBatch
from recension.plan.node import Node
from recension.runners.exchange.packets import DDL, PACKETS, Packet
from recension.runners.spark.failures import is_worker_missing
from recension.runners.spark.session import prepare_streaming
from recension.runners.spark.stream.pipeline import through_levels
from recension.runners.spark.stream.routing import partition_keys
from recension.runners.spark.stream.topology import Inlet, Topology

Turn = Mapping[str, Sequence[Arriving]]


def run_together(
    spark: Any,
    queries: list[Node],
    turns: Sequence[Turn],
    shards: int,
    folder: Path,
    inlets: Mapping[str, Inlet] | None = None,
    where: Places | None = None,
) -> list[list[EventBatch]]:
    """For each query what it put out in each micro-batch; by way of tables, if it says where these are."""
    rehearsal = Rehearsal(queries, shards, inlets)
    _write(rehearsal, turns, folder / "packets")
    prepare_streaming(spark)
    spark.conf.set("spark.sql.shuffle.partitions", str(shards))
    arriving = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(folder / "packets"))
    flowing = through_levels(rehearsal.plan, lambda level: [arriving] if level == 1 else [])
    if where is not None:
        return _by_tables(spark, flowing, rehearsal.plan, where, len(turns))
    collected = folder / "collected"
    collected.mkdir()

    # Into files: with Connect this runs in a process of the server.
    def collect(batch: Any, number: int) -> None:
        pq.write_table(batch.toArrow(), collected / f"{number}.parquet")

    writer = flowing.writeStream.foreachBatch(collect).option(
        "checkpointLocation", str(folder / "checkpoint")
    )
    _finish(writer.trigger(availableNow=True).start)
    found = [pq.read_table(collected / f"{number}.parquet").to_pylist() for number in range(len(turns))]
    packets = [[Packet(**row) for row in rows] for rows in found]
    return [[rehearsal.output(p, query) for p in packets] for query in range(len(queries))]


def _by_tables(spark: Any, flowing: Any, plan: Topology, where: Places, turns: int) -> list[list[EventBatch]]:
    columns = from_arrow_schema(COLUMNS)
    rows = flowing.repartition(1).mapInArrow(Uniting(plan).__call__, columns)
    _finish(partial(rc.spark.write, rows, **where._asdict(), trigger={"availableNow": True}))
    return read_answers(spark, where, plan, turns)


def _finish(start: Callable[[], Any], attempts: int = 4) -> None:
    """To the end; on from the checkpoint, as users go on, if a machine busy with other tests was too slow."""
    for attempts_left in reversed(range(attempts)):
        try:
            start().awaitTermination()
            return
        except PySparkException as why:
            if not attempts_left or not is_worker_missing(str(why)):
                raise


def _write(rehearsal: Rehearsal, turns: Sequence[Turn], folder: Path) -> None:
    folder.mkdir(parents=True)
    keys = partition_keys(rehearsal.plan.shards)
    for number, turn in enumerate(turns):
        packets = [
            packet
            for source in rehearsal.plan.sources()
            if source in turn
            for level in range(1, rehearsal.plan.levels + 1)
            for packet in packed(rehearsal.plan, source, level, turn[source])
        ]
        rows = [packet._replace(shard=keys[packet.shard])._asdict() for packet in packets]
        file = folder / f"{number:04}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, PACKETS), file)
        os.utime(file, (number, number))
