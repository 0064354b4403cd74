"""Queries on Spark: `rc.spark`, loaded when it is first named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from recension.api.base import StreamBase, key_names, plan_of
from recension.core.errors import RecensionError
from recension.core.formats.messages import MessageFormat
from recension.core.ticks import DurationLike, duration
from recension.core.validity import Policy
from recension.plan.merge import Leader, MergeCase, MergePolicy, OnAnomaly, OnMismatch
from recension.plan.properties import NOTHING_KNOWN, Properties
from recension.plan.rewrites.repeat_calls import repeat_calls
from recension.plan.schemas import IntoSchema, schema_of
from recension.plan.source import Table
from recension.runners.spark.batch.run import batch as run_batch
from recension.runners.spark.batch.run import history
from recension.runners.spark.failures import reason_of
from recension.runners.spark.kafka import KafkaInput, write_kafka
from recension.runners.spark.kafka import read_kafka as open_topic
from recension.runners.spark.lake.reading import read_changes
from recension.runners.spark.listener import Listener, MicroBatch
from recension.runners.spark.refresh import Refresher
from recension.runners.spark.refresh import write_version as write_plan_version
from recension.runners.spark.session import DataFrame, SparkSession, StreamingQuery, session
from recension.runners.spark.sinks.files import local_path
from recension.runners.spark.sinks.reading import read_bitemporal, read_changelog, read_history
from recension.runners.spark.sinks.writing import write, write_changelog, write_history
from recension.runners.spark.stream.inputs import attach, detach
from recension.runners.spark.stream.metrics import PipelineMetrics, pipeline_metrics
from recension.runners.spark.stream.pipeline import merge_frames, merge_root
from recension.runners.spark.stream.pipeline import stream as stream_plan

__all__ = [
    "KafkaInput",
    "Listener",
    "MicroBatch",
    "attach",
    "batch",
    "detach",
    "history",
    "merge",
    "metrics",
    "read_bitemporal",
    "read_changelog",
    "read_changes",
    "read_history",
    "read_kafka",
    "reason_of",
    "refresh",
    "session",
    "stream",
    "write",
    "write_changelog",
    "write_history",
    "write_kafka",
    "write_version",
]

FolderLike: TypeAlias = str | PathLike[str]


def batch(
    spark: SparkSession, query: StreamBase, inputs: Mapping[str, DataFrame], *, verify_modules: bool = False
) -> DataFrame:
    """Run a query over history DataFrames as a batch job; the result is a DataFrame like any other.

    Parameters
    ----------
    spark
        A session, such as ``rc.spark.session()`` gives.
    query
        A stream built with the API.
    inputs
        For each source by name: a history (``_vs``, ``_ve`` and the payload), a plain table with the
        source's own ``start=`` and ``end=`` columns, or a physical stream (with ``_kind``), which is
        reconstituted first. For an `rc.table`, rows without times.
    verify_modules
        Call every user-defined module and function twice, and stop at one that does not say the same twice.

    Queries that depend on the order of arrival are refused: finite memories, and policies for late elements.
    """
    plan = plan_of(query, "batch")
    return run_batch(spark, repeat_calls(plan) if verify_modules else plan, inputs)


def stream(
    spark: SparkSession,
    query: StreamBase,
    inputs: Mapping[str, DataFrame | KafkaInput | str | Path],
    *,
    shards: int | None = None,
    skew: str | Iterable[str] | None = None,
    order_by: Mapping[str, Sequence[str]] | None = None,
    watermark: Mapping[str, DurationLike] | None = None,
    files_per_batch: int | None = None,
    feedback: FolderLike | None = None,
    memory: str | int | None = None,
    name: str | None = None,
    verify_modules: bool = False,
) -> DataFrame:
    """Run a query as a Structured Streaming pipeline: a streaming DataFrame of its physical output.

    Parameters
    ----------
    spark
        A classic Spark session. State settings and the number of shuffle partitions are set on it.
    query
        A stream built with the API.
    inputs
        For each source by name a streaming DataFrame, with control columns or with the source's own
        columns of times, with a watermark, which makes CTIs; a topic (`rc.spark.read_kafka`); or a folder of
        stream files, by its path or by any address that Spark can read (``s3a://bucket/orders``); or
        a lake table to which rows are appended, by its name in a catalog of the session or ``delta:PATH``.
        For an `rc.table`, a batch DataFrame or a path: it is read once, here, and a checkpoint that was made
        with other rows is refused. With ``refresh``, a folder of versions (`rc.spark.write_version`).
    shards
        In how many parts the query runs; by default the number of cores. It cannot be changed on an existing
        checkpoint.
    skew
        The key, by its name in ``group_by``, of which one value has most of the events. Counts, sums and
        means grouped by it are computed in parts: each shard sums up its own events, and only these sums go
        to the shard of their key. It cannot be changed on an existing checkpoint either.
    order_by
        For sources that need it (a stream with ``_kind`` that is not read from files), the columns that order
        their rows.
    watermark
        For folders of plain tables, and topics of plain rows: how far CTIs stay behind the latest start, like
        ``withWatermark`` for a DataFrame.
    files_per_batch
        The largest number of files of a folder in a micro-batch.
    feedback
        The folder to which a merge that reads the output writes which events it no longer needs
        (`rc.spark.merge`, ``feedback``). Such events are dropped, unless a retraction could lengthen them,
        and their state is freed.
    memory
        How much of a shard's state stays in the memory of its worker, such as ``"512MB"``. The rest is in
        files in Spark's local directory; work on it is slower, and the metrics show how much it is.
    name
        The metrics are called ``recension NAME`` in Spark's progress. By default they are called
        ``recension``, or ``recension 2`` if the query reads a DataFrame that already has those.
    verify_modules
        Call every user-defined module and function twice, and stop at one that does not say the same twice.
    """
    plan = plan_of(query, "stream")
    return stream_plan(
        spark,
        repeat_calls(plan) if verify_modules else plan,
        inputs,
        shards=shards,
        skew=key_names(skew, "skew"),
        order_by=order_by,
        watermark=watermark,
        files_per_batch=files_per_batch,
        feedback=None if feedback is None else local_path(feedback),
        memory=memory,
        called=name,
    )


def read_kafka(
    spark: SparkSession,
    source: StreamBase,
    servers: str,
    topic: str | Sequence[str],
    *,
    format: MessageFormat = "json",
    avro_schema: Any = None,
    columns: Mapping[str, str] | None = None,
    dead_letters: str | None = None,
    start: str = "earliest",
    options: Mapping[str, str] | None = None,
    client: Mapping[str, str] | None = None,
) -> KafkaInput:
    """A Kafka topic as an input of `rc.spark.stream`.

    Parameters
    ----------
    spark
        A session with Spark's Kafka connector (``spark.jars``).
    source
        The source that the topic is for. If the topic has several partitions, the source names them:
        ``rc.source(..., partition="partition", order="offset")``. No CTI takes effect before all of them have
        sent something, or the source's ``idle`` time has passed.
    servers
        The addresses of brokers, as ``kafka.bootstrap.servers`` takes them.
    topic
        A topic, or several of equal content: ``partition=["topic", "partition"]`` then.
    format
        What the values of messages are: ``json``, an object each; ``avro`` or ``confluent-avro`` (with the
        five bytes of a registry before it), a record each; ``arrow`` or ``parquet``, a table of any number of
        rows each, with ``order=["offset", "row"]``. Rows have control columns (without ``_kind`` they are
        inserts) or the source's own columns of times.
    avro_schema
        The schema of Avro's records, as JSON text or a dict.
    columns
        Columns of the source that do not come from the value, and where they come from: ``key``,
        ``timestamp``, ``topic``, ``partition``, ``offset``, ``row`` or ``headers.NAME``. Those that the
        source names as its partition, order, run and sequence need not be listed if they have these names, or
        are the headers ``_run``, ``_batch`` and ``_seq``.
    dead_letters
        A topic for messages that cannot be read. They go there unchanged, with headers that say where they
        come from and what is wrong. Without it, the source's ``on_violation`` decides.
    start
        Where a new query begins: ``earliest`` or ``latest``. A query with a checkpoint continues from there.
    options
        Further options of Spark's connector, such as ``{"maxOffsetsPerTrigger": "100000"}``.
    client
        Settings of librdkafka for the producer of dead letters, if the broker needs more than its address.

    A message without a value (a tombstone) deletes its key if the source is keyed, names ``deleted=``, and
    does not get its key and start from the value. Otherwise it is skipped and counted.
    """
    return open_topic(
        spark,
        plan_of(source, "read_kafka"),
        servers,
        topic,
        form=format,
        avro_schema=avro_schema,
        columns=columns,
        dead_letters=dead_letters,
        start=start,
        options=options,
        client=client,
    )


def merge(
    spark: SparkSession,
    inputs: Sequence[DataFrame] | Mapping[str, DataFrame] | None = None,
    *,
    root: FolderLike | None = None,
    schema: IntoSchema | None = None,
    timestamps: bool = False,
    case: MergeCase = "auto",
    policy: MergePolicy = "first",
    lag: DurationLike = 0,
    feedback: bool | FolderLike = False,
    on_mismatch: OnMismatch = "raise",
    leader: Leader = "stable",
    quorum: float = 0.5,
    on_anomaly: OnAnomaly = "warn",
    properties: Properties | None = None,
    on_violation: Policy = "raise",
    shards: int | None = None,
    files_per_batch: int | None = None,
    memory: str | int | None = None,
    name: str | None = None,
) -> DataFrame:
    """Merge streaming DataFrames with the same history into one.

    ``case``, ``policy``, ``lag``, ``on_mismatch``, ``leader``, ``quorum`` and ``on_anomaly`` are those of
    `rc.merge`. The result is like that of `rc.spark.stream`.

    Parameters
    ----------
    spark
        A classic Spark session.
    inputs
        Streaming DataFrames of equal payload, each in the order of its own ``_batch`` and ``_seq``.
    root
        Instead of them, a folder with a sub-folder for each stream, as `rc.spark.write_changelog` writes it.
        A new sub-folder is a new stream. It is complete from the beginning, unless `rc.spark.attach` gave
        another time; `rc.spark.detach` removes it. A stream that stops may have died, and may continue later.
    schema, timestamps
        For an empty root: the payload's columns, and whether times are timestamps.
    feedback
        Send feedback to slower inputs about what is no longer needed: the folder in which their queries look
        for it (``rc.spark.stream(..., feedback=FOLDER)``). With a root ``True`` means its ``_feedback``.
    properties
        The properties that every input has; ``case="auto"`` relies on them.
    on_violation
        What happens to invalid elements of an input: ``raise``, ``drop`` or ``adjust``.
    shards, files_per_batch, memory, name
        As for `rc.spark.stream`.
    """
    how: dict[str, Any] = {"case": case, "policy": policy, "lag": duration(lag)}
    how |= {"on_mismatch": on_mismatch, "leader": leader, "quorum": quorum, "on_anomaly": on_anomaly}
    how |= {"are_inputs_told": bool(feedback)}
    source = {"declared": NOTHING_KNOWN if properties is None else properties, "on_violation": on_violation}
    if (inputs is None) == (root is None):
        raise RecensionError("merge: give either streaming DataFrames or root=FOLDER")
    if root is None:
        frames = inputs if isinstance(inputs, Mapping) else _name_frames(inputs)
        return merge_frames(
            spark, frames, how, source, shards=shards, feedback=feedback, memory=memory, called=name
        )
    return merge_root(
        spark,
        local_path(root),
        how,
        source,
        shards=shards,
        feedback=feedback,
        schema=None if schema is None else schema_of(schema, "merge"),
        timestamps=timestamps,
        files_per_batch=files_per_batch,
        memory=memory,
        called=name,
    )


def write_version(table: StreamBase, folder: FolderLike, data: Any) -> Path | None:
    """Write all rows of a table that is read again, as the next version in its folder.

    A query that reads the folder uses it in its next micro-batch: new rows begin, and missing rows end, at
    the CTI that the streams had reached before. The file is complete when it appears.

    Parameters
    ----------
    table
        An `rc.table` with ``refresh``.
    folder
        The folder of its versions, and of nothing else; it is created if it does not exist.
    data
        A batch DataFrame, a path, an Arrow table, or a frame of pandas or polars.

    Returns the file; or None, and writes nothing, if the rows are those of the last version in any order.
    """
    return write_plan_version(_require_refresh(table, "write_version"), folder, data)


def refresh(
    query: StreamingQuery, table: StreamBase, folder: FolderLike, read: Callable[[], Any]
) -> Refresher:
    """Read a table again at regular intervals, and write a version if its rows have changed.

    Parameters
    ----------
    query
        A running query. The reads end with it.
    table
        An `rc.table`, whose ``refresh`` says how often.
    folder
        The folder of its versions, which the query reads.
    read
        A function that reads the table now, such as ``lambda: spark.read.parquet(path)``; its result must be
        valid for `rc.spark.write_version`. A DataFrame itself would keep its first list of files.

    If a read fails, the last version stays valid; the log says so, and so does ``failure`` of the returned
    object.
    """
    return Refresher(query, _require_refresh(table, "refresh"), folder, read)


def _require_refresh(table: StreamBase, call: str) -> Table:
    plan = plan_of(table, call)
    if not isinstance(plan, Table) or plan.refresh is None:
        raise RecensionError(f"{call}: a table that is read again is needed: rc.table(..., refresh='10m')")
    return plan


def _name_frames(frames: Sequence[DataFrame] | None) -> dict[str, DataFrame]:
    return {f"input {number}": frame for number, frame in enumerate(frames or (), 1)}


def metrics(query: StreamingQuery) -> PipelineMetrics:
    """What the operators of a running or finished query did, for as long as Spark keeps its progress."""
    return pipeline_metrics(query.recentProgress)
