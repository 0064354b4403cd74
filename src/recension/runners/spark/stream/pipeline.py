"""A query, or a merge of streams that other queries write, as one streaming DataFrame.

Sources are packed, packets are shuffled to the shards of each level, where a stateful operator hosts the
engines, and the packets of the last level become rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from os.path import normpath
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from recension.core.errors import RecensionError, SchemaError
from recension.core.formats.columns import BATCH, KIND, TimeColumns, layout_of
from recension.core.memory_pool import require_limit
from recension.core.ticks import BEGINNING, FOREVER, DurationLike, duration
from recension.core.time_kind import AWARE, TICKS, TimeKind
from recension.plan.node import Node, walk
from recension.plan.nodes import ByKey, Merge, Source, Table
from recension.plan.source import require_one_kind
from recension.runners.exchange.packets import DDL, METRICS, SPARK_COLUMNS, TIME, Packet
from recension.runners.finite import require_inputs
from recension.runners.meaning import warn_of_frames
from recension.runners.spark.kafka.source import KafkaInput
from recension.runners.spark.lake.places import lake_table
from recension.runners.spark.session import default_parallelism, prepare_streaming
from recension.runners.spark.sinks.files import AnyPath, local_path
from recension.runners.spark.stream.deferred import DeferredProcessor
from recension.runners.spark.stream.feedback import FOLDER, FeedbackPacker
from recension.runners.spark.stream.inputs import (
    InputFrame,
    columns_of_streams,
    read_folder,
    read_frame,
    read_root,
    refuse_ambiguous,
    remember_builder,
    remember_kinds,
    watch_files,
    with_own_names,
)
from recension.runners.spark.stream.membership import ANY
from recension.runners.spark.stream.metrics import CLOCK, CTI_NUMBER, LAG, SUMMED, metrics_names
from recension.runners.spark.stream.packing import Packing
from recension.runners.spark.stream.processor import AnsweringProcessor, FragmentProcessor
from recension.runners.spark.stream.routing import partition_keys
from recension.runners.spark.stream.tables import TableContent, read_table, watch_versions
from recension.runners.spark.stream.topology import (
    EMPTY,
    OBSERVED,
    OWNER,
    Inlet,
    Topology,
    note_built,
    require_refreshable,
    topology,
)
from recension.runners.spark.stream.unpacking import REPORT, Unpacker
from recension.runners.spark.types import arrow_schema

# With up to so many shards, each may read all files itself: with more, too much would be read too often.
_FEW_SHARDS: Final = 4
# The packets of the sources that a level reads.
SourcePackets: TypeAlias = Callable[[int], list[DataFrame]]


def stream(
    spark: SparkSession,
    query: Node,
    inputs: Mapping[str, DataFrame | KafkaInput | str | Path],
    *,
    shards: int | None = None,
    skew: Sequence[str] = (),
    order_by: Mapping[str, Sequence[str]] | None = None,
    watermark: Mapping[str, DurationLike] | None = None,
    files_per_batch: int | None = None,
    closing: Path | None = None,
    feedback: Path | None = None,
    memory: str | int | None = None,
    called: str | None = None,
) -> DataFrame:
    """The output of a query over streaming DataFrames and folders, as a streaming DataFrame."""
    limit = None if memory is None else require_limit(memory)
    prepare_streaming(spark)
    for topic in (given for given in inputs.values() if isinstance(given, KafkaInput)):
        query = topic.expect_partitions(query)
    sources = {node.name: node for node in walk(query) if isinstance(node, Source)}
    require_inputs(inputs, sources)
    by_arrival = {node.input for node in walk(query) if isinstance(node, ByKey) and node.needs_arrival}
    ready: dict[str, InputFrame] = {}
    tables: dict[str, TableContent] = {}
    for name, source in sources.items():
        if isinstance(source, Table) and source.refresh is not None:
            ready[name] = watch_versions(spark, source, inputs[name])
            continue
        if isinstance(source, Table):
            tables[name] = read_table(spark, source, inputs[name])
            continue
        lag = (watermark or {}).get(name)
        delay = None if lag is None else duration(lag)
        match inputs[name]:
            case KafkaInput() as topic:
                topic.require_source(source)
                ready[name] = topic.input_frame(delay)
            case str() | Path() as folder:
                end = None if closing is None else closing / name
                if (table := lake_table(spark, folder)) is None:
                    ready[name] = read_folder(spark, source, folder, files_per_batch, delay, end)
                    continue
                order = tuple((order_by or {}).get(name, ()))
                rows = read_frame(source, table.stream(spark, {}), order, by_arrival=source in by_arrival)
                ready[name] = replace(rows, inlet=replace(rows.inlet, delay=delay))
            case frame:
                order = tuple((order_by or {}).get(name, ()))
                ready[name] = read_frame(source, frame, order, by_arrival=source in by_arrival)
    columns = {name: given.columns for name, given in inputs.items() if isinstance(given, DataFrame)}
    warn_of_frames(query, sources, columns)
    files = None if feedback is None else _watch_feedback(spark, feedback)
    return build_pipeline(
        spark, query, ready, shards, skew, feedback_files=files, memory=limit, tables=tables, called=called
    )


def merge_frames(
    spark: SparkSession,
    frames: Mapping[str, DataFrame],
    how: Mapping[str, Any],
    source: Mapping[str, Any],
    *,
    shards: int | None,
    feedback: bool | AnyPath,
    memory: str | int | None,
    called: str | None = None,
) -> DataFrame:
    """The merge of streaming DataFrames, each in the order of its own ``_batch`` and ``_seq``."""
    limit = None if memory is None else require_limit(memory)
    prepare_streaming(spark)
    if feedback is True:
        raise RecensionError("merge: say where the inputs' queries look for feedback: feedback=FOLDER")
    if not frames:
        raise SchemaError("merge: nothing to merge")
    columns = [_payload(name, frame) for name, frame in frames.items()]
    for name, other in zip(frames, columns, strict=True):
        if set(other.names) != set(columns[0].names):
            raise SchemaError(f"merge: {name} has the columns {other.names}, the first {columns[0].names}")
    sources = {name: Source(name, columns[0], **source) for name in frames}
    ready = {name: read_frame(sources[name], frame, ()) for name, frame in frames.items()}
    plan = Merge(tuple(sources.values()), **how)
    folder = local_path(feedback) if feedback else None
    return build_pipeline(spark, plan, ready, shards, feedback_folder=folder, memory=limit, called=called)


def _payload(name: str, frame: DataFrame) -> pa.Schema:
    return layout_of(arrow_schema(frame.schema), TimeColumns(), name).payload


def merge_root(
    spark: SparkSession,
    root: Path,
    how: Mapping[str, Any],
    source: Mapping[str, Any],
    *,
    shards: int | None,
    feedback: bool | AnyPath,
    schema: pa.Schema | None,
    timestamps: bool,
    files_per_batch: int | None,
    memory: str | int | None,
    called: str | None = None,
) -> DataFrame:
    """The merge of the streams in the sub-folders of a root, those of today and those to come."""
    limit = None if memory is None else require_limit(memory)
    prepare_streaming(spark)
    root = Path(normpath(root))  # as Spark will name its files
    if schema is None:
        columns, kind = columns_of_streams(root)
    else:
        columns, kind = schema, AWARE if timestamps else TICKS
    given = read_root(spark, root, files_per_batch, kind)
    plan = Merge((Source(ANY, columns, **source),), is_open=True, **how)
    folder = root / FOLDER if feedback is True else local_path(feedback) if feedback else None
    return build_pipeline(
        spark, plan, {ANY: given}, shards, feedback_folder=folder, memory=limit, called=called
    )


def build_pipeline(
    spark: SparkSession,
    query: Node,
    inputs: Mapping[str, InputFrame],
    shards: int | None,
    skew: Sequence[str] = (),
    *,
    feedback_files: DataFrame | None = None,
    feedback_folder: Path | None = None,
    memory: int | None = None,
    tables: Mapping[str, TableContent] | None = None,
    called: str | None = None,
    avoided: Mapping[str, int] | None = None,
    assumed: TimeKind = TICKS,
) -> DataFrame:
    """The output of a query over inputs that are ready to be packed, and tables, which were read.

    ``feedback_files`` has the files in which its readers say what they no longer need. A merge says so of its
    inputs in ``feedback_folder``. ``called`` is a name for its metrics, ``avoided`` are those of other
    pipelines in the query that it will be a part of. ``assumed`` is the kind of times if no file shows it.
    """
    again = partial(
        build_pipeline,
        spark,
        query,
        inputs,
        shards,
        skew,
        feedback_files=feedback_files,
        feedback_folder=feedback_folder,
        memory=memory,
        tables=tables,
        called=called,
    )
    refuse_ambiguous(spark, query.schema.names, "the query's output")
    inputs = with_own_names(inputs, avoided)
    names = metrics_names(called, [given.observed for given in inputs.values()], avoided)
    shards = shards or default_parallelism(spark)
    found = require_one_kind(query, {name: given.kind for name, given in inputs.items()})
    # If no file is there yet the output has ticks, and the files that come must have them too.
    kind = assumed if found is None else found
    inlets = {name: replace(given.inlet, kind=kind) for name, given in inputs.items()}
    inlets |= {name: Inlet(kind=kind, table=content) for name, content in (tables or {}).items()}
    observing = _Observing(*names, tuple(given.empty for given in inputs.values() if given.empty))
    plan = topology([query], shards, inlets, skew, memory)
    _require_stream_first(plan)
    require_refreshable(plan)
    note_built(plan)
    # A stateful operator gets this number of partitions when its query starts.
    spark.conf.set("spark.sql.shuffle.partitions", str(shards))

    def arriving(level: int) -> list[DataFrame]:
        packed = _source_packets(plan, inputs, level)
        if feedback_files is not None:
            packer = FeedbackPacker(plan, level, partition_keys(shards))
            packed.append(feedback_files.mapInArrow(packer.__call__, DDL))
        if plan.wakes and level == 1:
            packed.append(_ticks(spark, plan))
        return packed

    schema, first = plan.roots[0].schema, partition_keys(shards)[0]
    unpacker = Unpacker(schema, kind, first_key=first, in_order=plan.is_ordered, feedback=feedback_folder)
    if plan.is_gathered or not unpacker.is_simple:
        output = _unpack(through_levels(plan, arriving), plan, unpacker, observing)
    else:
        output = _rows_of_last_level(_packets_at(plan, arriving, plan.levels), plan, unpacker, observing)
    if found is None and observing.empty:
        remember_kinds(output, lambda kind: again(avoided=avoided, assumed=kind))
    return remember_builder(output, lambda names: again(avoided=names, assumed=kind))


def _require_stream_first(plan: Topology) -> None:
    """Refuse a query whose first stage reads tables alone: no micro-batch would ever come to it."""
    first = [edge.origin for edge in plan.edges if edge.level == 1]
    if not any(isinstance(origin, Source) and not isinstance(origin, Table) for origin in first):
        raise RecensionError(
            "a stream on Spark needs a streaming input where it begins, and only tables are there: run what "
            "is made of tables alone with rc.spark.batch, and give the result as a table"
        )


def _arrives(plan: Topology, origin: Node) -> bool:
    """Does it come in as the query runs? A table that is read once is there from the beginning."""
    return isinstance(origin, Source) and plan.inlets[origin.name].table is None


def _watch_feedback(spark: SparkSession, folder: Path) -> DataFrame:
    """The files of a merge's feedback as they come."""
    folder.mkdir(parents=True, exist_ok=True)
    return watch_files(spark, folder, None)


def _ticks(spark: SparkSession, plan: Topology) -> DataFrame:
    """In every micro-batch a packet for every shard, which passes it on: so one comes though no row comes.

    Not timers of the stateful operator: with those Spark runs nothing after a restart until a row comes, and
    a query that is to end when it has read everything would never end.
    """
    row = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1)
    keys = partition_keys(plan.shards)[: plan.shards_from(1)]
    shards = row.load().select(F.explode(F.array(*map(F.lit, keys))).alias("shard"))
    packet = {"shard": F.col("shard"), "edge": F.lit(TIME)}
    return _packets_of(shards, packet)


def _packets_of(rows: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
    """Rows as packets that have these columns, and else the defaults."""
    whole = {name: F.lit(value) for name, value in Packet._field_defaults.items()} | dict(columns)
    return rows.select(*(whole[name].cast(kind).alias(name) for name, kind in SPARK_COLUMNS.items()))


def _source_packets(plan: Topology, inputs: Mapping[str, InputFrame], level: int) -> list[DataFrame]:
    """The packets of the sources that a level reads."""
    keys = partition_keys(plan.shards)
    edges = [edge for edge in plan.edges if edge.level == level]
    origins = [edge.origin for edge in edges if _arrives(plan, edge.origin)]
    sources = {origin.name: origin for origin in origins if isinstance(origin, Source)}
    # Of a table every shard has to know that there is a new version, also if it has no rows there.
    return [
        _file_requests(plan, inputs[name].frame, name, level)
        if isinstance(source, Table) or (inputs[name].is_quickly_read and plan.shards <= _FEW_SHARDS)
        else inputs[name].frame.mapInArrow(inputs[name].packer(plan, name, level, keys).__call__, DDL)
        for name, source in sources.items()
    ]


def _file_requests(plan: Topology, paths: DataFrame, name: str, level: int) -> DataFrame:
    """For every shard and edge a packet that only names a file to read."""
    keys = partition_keys(plan.shards)
    called = Packing(plan, name, level).end_of_task_packets()
    pairs = [F.struct(F.lit(keys[p.shard]).alias("shard"), F.lit(p.edge).alias("edge")) for p in called]
    to = paths.select("path", F.explode(F.array(*pairs)).alias("to"))
    return _packets_of(to, {"shard": F.col("to.shard"), "edge": F.col("to.edge"), "place": F.col("path")})


def through_levels(plan: Topology, arriving: SourcePackets) -> DataFrame:
    """Packets through one stateful operator after the other."""
    return _run_level(plan, _packets_at(plan, arriving, plan.levels), plan.levels)


def _packets_at(plan: Topology, arriving: SourcePackets, level: int) -> DataFrame:
    """What comes to a level: from the one before, and from the sources that it reads."""
    before = [_run_level(plan, _packets_at(plan, arriving, level - 1), level - 1)] if level > 1 else []
    packets = reduce(DataFrame.union, [*before, *arriving(level)])
    # Spark keeps with the state whether its key may be null, and that would depend on how rows come here.
    packets = packets.withColumn("shard", F.coalesce("shard", F.lit(partition_keys(plan.shards)[0])))
    if not plan.goes_by_time:
        return packets
    # In a stream this is the timestamp of the micro-batch in the log of offsets: a replay has the same.
    return packets.withColumn("now", F.unix_micros(F.current_timestamp()))


def _run_level(plan: Topology, packets: DataFrame, level: int) -> DataFrame:
    processor = FragmentProcessor(plan, level, partition_keys(plan.shards))
    operator = DeferredProcessor(processor)
    return packets.groupBy("shard").transformWithState(operator, DDL, "Append", "None")


class _Observing(NamedTuple):
    """What the metrics of a pipeline are called, all such names in the query, and inputs without a file."""

    name: str
    taken: Mapping[str, int]
    empty: tuple[str, ...] = ()


def _rows_of_last_level(
    packets: DataFrame, plan: Topology, unpacker: Unpacker, observing: _Observing
) -> DataFrame:
    """The last level gives the rows of the output itself."""
    processor = AnsweringProcessor(plan, partition_keys(plan.shards), unpacker)
    columns = _columns(plan, unpacker.reporting_schema(), observing)
    operator = DeferredProcessor(processor)
    rows = packets.groupBy("shard").transformWithStateInPandas(operator, columns, "Append", "None")
    observed = rows.observe(observing.name, *_observed(F.col(REPORT), plan))
    return observed.where(F.col(KIND).isNotNull()).drop(REPORT)


def _unpack(flowing: DataFrame, plan: Topology, unpacker: Unpacker, observing: _Observing) -> DataFrame:
    reports = F.when(F.col("edge") == METRICS, F.col("info"))
    observed = flowing.observe(observing.name, *_observed(reports, plan))
    if plan.is_gathered:
        observed = observed.repartition(plan.shards, "shard")
    return observed.mapInArrow(unpacker.__call__, _columns(plan, unpacker.schema(), observing))


def _observed(reports: Column, plan: Topology) -> list[Column]:
    """All reports as one JSON list, and their numbers flat: Connect passes on plain values only."""
    text = F.concat(F.lit("["), F.concat_ws(",", F.collect_list(reports)), F.lit("]"))

    def told(name: str, kind: str) -> Column:
        return F.get_json_object(reports, f"$.{name}").cast(kind)

    sums = [F.sum(told(name, kind)).alias(name) for name, kind in SUMMED.items()]
    cti = F.min(told(CTI_NUMBER, "bigint"))
    known = F.when(cti > BEGINNING, cti)
    # By the clocks of workers: Spark lets nothing be observed that depends on its own. Ticks are on no clock.
    has_clock = all(inlet.kind is not None and inlet.kind != TICKS for inlet in plan.inlets.values())
    behind = (F.max(told(CLOCK, "bigint")) - cti) / 1_000_000
    lag = F.when((cti > BEGINNING) & (cti < FOREVER), behind) if has_clock else F.lit(None)
    return [text.alias("reports"), *sums, known.alias(CTI_NUMBER), lag.cast("double").alias(LAG)]


def _columns(plan: Topology, schema: pa.Schema, observing: _Observing) -> StructType:
    """The columns as Spark has them; the metadata of one names the owner, and what is observed."""
    # Named, for its default has changed between the versions of Spark: a time without zone stays one.
    columns = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    known = {OWNER: plan.owner, OBSERVED: dict(observing.taken), EMPTY: list(observing.empty)}
    columns[BATCH].metadata = known
    return columns
