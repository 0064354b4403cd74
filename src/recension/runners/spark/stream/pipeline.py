"""A query as one streaming DataFrame: packed exchanges, a stateful operator a level, rows at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from recension.core.formats.columns import BATCH, KIND
from recension.core.ticks import DurationLike, duration
from recension.core.time_kind import TICKS
from recension.plan.node import Node, walk
from recension.plan.nodes import Source
from recension.plan.source import require_one_kind
from recension.runners.intake import require_inputs
from recension.runners.spark.session import prepare_streaming
from recension.runners.spark.stream.feedback import FeedbackPacker
from recension.runners.spark.stream.identity import OWNER
from recension.runners.spark.stream.inputs import Input, found_files, read_folder, read_input
from recension.runners.spark.stream.metrics import metrics_name
from recension.runners.spark.stream.names import refuse_alike
from recension.runners.spark.stream.packets import DDL, METRICS, Packet
from recension.runners.spark.stream.packing import Packing
from recension.runners.spark.stream.partitions import partition_keys
from recension.runners.spark.stream.processor import AnsweringProcessor, FragmentProcessor
from recension.runners.spark.stream.topology import Topology, topology
from recension.runners.spark.stream.unpacking import REPORT, Unpacker

# So many shards may each read all files: beyond, they would do too much of each other's work.
FEW: Final = 4

# The packets of the sources that a level reads.
Arriving: TypeAlias = Callable[[int], list[DataFrame]]


def stream(
    spark: SparkSession,
    query: Node,
    inputs: Mapping[str, DataFrame | str | Path],
    *,
    shards: int | None = None,
    order_by: Mapping[str, Sequence[str]] | None = None,
    watermark: Mapping[str, DurationLike] | None = None,
    files_per_batch: int | None = None,
    closing: Path | None = None,
    feedback: Path | None = None,
) -> DataFrame:
    """The output of a query over streaming DataFrames and folders, as a streaming DataFrame."""
    prepare_streaming(spark)
    sources = {node.name: node for node in walk(query) if isinstance(node, Source)}
    require_inputs(inputs, sources)
    ready: dict[str, Input] = {}
    for name, source in sources.items():
        match inputs[name]:
            case str() | Path() as folder:
                end = None if closing is None else closing / name
                lag = (watermark or {}).get(name)
                delay = None if lag is None else duration(lag)
                ready[name] = read_folder(spark, source, Path(folder), files_per_batch, delay, end)
            case frame:
                ready[name] = read_input(source, frame, tuple((order_by or {}).get(name, ())))
    heard = None if feedback is None else heard_from(spark, feedback)
    return flow(spark, query, ready, shards, hears=heard)


def flow(
    spark: SparkSession,
    query: Node,
    inputs: Mapping[str, Input],
    shards: int | None,
    *,
    hears: DataFrame | None = None,
    tells: Path | None = None,
) -> DataFrame:
    """The output of a query over inputs that are ready to be packed.

    ``hears`` has the files in which its readers say what they no longer want, ``tells`` is the folder in
    which it says so of itself.
    """
    refuse_alike(spark, query.schema.names, "the query's output")
    shards = shards or spark.sparkContext.defaultParallelism
    found = require_one_kind(query, {name: given.kind for name, given in inputs.items()})
    # Where no file is there yet the output has ticks, and so must the files that come.
    kind = TICKS if found is None else found
    inlets = {name: replace(given.inlet, kind=kind) for name, given in inputs.items()}
    plan = topology([query], shards, inlets)
    # The number of partitions of a stateful operator is that of the session when its query starts.
    spark.conf.set("spark.sql.shuffle.partitions", str(shards))

    def arriving(level: int) -> list[DataFrame]:
        packed = _packed(plan, inputs, level)
        if hears is not None:
            packed.append(hears.mapInArrow(FeedbackPacker(plan, level, partition_keys(shards)).__call__, DDL))
        return packed

    schema, first = plan.roots[0].schema, partition_keys(shards)[0]
    unpacker = Unpacker(schema, kind, first_key=first, in_order=plan.in_order, feedback=tells)
    if plan.is_gathered or not unpacker.is_simple:
        return _unpacked(through_levels(plan, arriving), plan, unpacker)
    return _answered(_packets_at(plan, arriving, plan.levels), plan, unpacker)


def heard_from(spark: SparkSession, folder: Path) -> DataFrame:
    """The files of a merge's feedback as they come."""
    folder.mkdir(parents=True, exist_ok=True)
    return found_files(spark, folder, None)


def _packed(plan: Topology, inputs: Mapping[str, Input], level: int) -> list[DataFrame]:
    """The packets of the sources that a level reads."""
    keys = partition_keys(plan.shards)
    edges = [edge for edge in plan.edges if edge.level == level]
    names = dict.fromkeys(edge.origin.name for edge in edges if isinstance(edge.origin, Source))
    return [
        _to_read(plan, inputs[name].frame, name, level)
        if inputs[name].is_quickly_read and plan.shards <= FEW
        else inputs[name].frame.mapInArrow(inputs[name].packer(plan, name, level, keys).__call__, DDL)
        for name in names
    ]


def _to_read(plan: Topology, paths: DataFrame, name: str, level: int) -> DataFrame:
    """A packet for every shard and edge, with nothing in it but the name of a file to read."""
    keys = partition_keys(plan.shards)
    called = Packing(plan, name, level).farewell()
    pairs = [F.struct(F.lit(keys[p.shard]).alias("shard"), F.lit(p.edge).alias("edge")) for p in called]
    rest = Packet(0, 0)
    return paths.select("path", F.explode(F.array(*pairs)).alias("to")).select(
        "to.shard",
        "to.edge",
        F.col("path").alias("place"),
        F.lit(rest.first).cast("long").alias("first"),
        F.lit(None).cast("binary").alias("blob"),
        F.lit(rest.cti).alias("cti"),
        F.lit(rest.previous).alias("previous"),
        F.lit(rest.info).alias("info"),
    )


def through_levels(plan: Topology, arriving: Arriving) -> DataFrame:
    """Packets through one stateful operator after the other."""
    return _processed(plan, _packets_at(plan, arriving, plan.levels), plan.levels)


def _packets_at(plan: Topology, arriving: Arriving, level: int) -> DataFrame:
    """What comes to a level: from the one before, and from the sources that it reads."""
    before = [_processed(plan, _packets_at(plan, arriving, level - 1), level - 1)] if level > 1 else []
    return reduce(DataFrame.union, [*before, *arriving(level)])


def _processed(plan: Topology, packets: DataFrame, level: int) -> DataFrame:
    processor = FragmentProcessor(plan, level, partition_keys(plan.shards))
    return packets.groupBy("shard").transformWithState(processor, DDL, "Append", "None")


def _answered(packets: DataFrame, plan: Topology, unpacker: Unpacker) -> DataFrame:
    """The last operator gives the rows of the output itself."""
    processor = AnsweringProcessor(plan, partition_keys(plan.shards), unpacker)
    columns = _columns(plan, unpacker.reporting_schema())
    rows = packets.groupBy("shard").transformWithStateInPandas(processor, columns, "Append", "None")
    observed = rows.observe(metrics_name(), F.collect_list(REPORT).alias("reports"))
    return observed.where(F.col(KIND).isNotNull()).drop(REPORT)


def _unpacked(flowing: DataFrame, plan: Topology, unpacker: Unpacker) -> DataFrame:
    reports = F.collect_list(F.when(F.col("edge") == METRICS, F.col("info")))
    observed = flowing.observe(metrics_name(), reports.alias("reports"))
    if plan.is_gathered:
        observed = observed.repartition(plan.shards, "shard")
    return observed.mapInArrow(unpacker.__call__, _columns(plan, unpacker.schema()))


def _columns(plan: Topology, schema: pa.Schema) -> StructType:
    """The columns as Spark has them; one says whose they are."""
    columns = from_arrow_schema(schema)
    columns[BATCH].metadata = {OWNER: plan.owner}
    return columns
