"""The output of a query into a topic, so that it can be read back.

Assumes     a micro-batch that is run again gives the same rows with the same numbers, as those of
            `rc.spark.stream` do.
Guarantees  every event stays in one partition with its retractions, chosen by the key. Each partition is
            written by one task, in the order of ``_seq``. Every partition gets every CTI, after all that it
            speaks for. Messages carry the run, ``_batch`` and ``_seq`` in their headers: what is written
            twice, after a task or the driver died, has the same numbers twice; they first appear in order.
State       a file in the checkpoint: the topic, and over how many of its partitions events are spread. A
            topic that grows keeps its events where they are; new partitions get CTIs: no reader waits.
Cost        one job a micro-batch: rows are encoded where they were computed, then go to the task that writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from recension.core.errors import RecensionError, SchemaError, suggest_name
from recension.core.formats.columns import BATCH, COUNT, KIND, RUN, SEQ
from recension.core.formats.json_schema import has_json_form
from recension.core.formats.messages import AROUND, encode_rows, find_too_long, refuse_too_long, spread
from recension.core.rowhash import row_hash
from recension.runners.spark.kafka.topics import SERVERS, Topics
from recension.runners.spark.kafka.topics_read import refuse_loop, require_same_topics
from recension.runners.spark.sinks.beginning import with_known_times
from recension.runners.spark.sinks.checkpoint import (
    CheckpointFiles,
    claim,
    clear_unfinished_plan,
    files_of,
    is_begun,
    query_of,
    require_owner,
)
from recension.runners.spark.sinks.files import AnyPath, spark_address
from recension.runners.spark.sinks.writing import check_streaming
from recension.runners.spark.stream.task import freeze_gc
from recension.runners.spark.stream.topology import OWNER
from recension.runners.spark.types import arrow_schema

NAME: Final = "recension_kafka.json"
_QUERY_ID: Final = "sql.streaming.queryId"
_MESSAGES: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("batch", pa.int64()),
        ("seq", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
_DDL: Final = "partition int, batch bigint, seq bigint, key binary, value binary"
_CTI: Final = "cti"
_EVENTS: Final = ("insert", "retract")
_LONGEST: Final = "kafka.max.request.size"
# What the client takes by default, and the memory for what it has not sent yet.
_REQUEST: Final = 1_048_576
_BUFFER: Final = 32 << 20
# One producer a task, whose messages arrive in order and once, however often it has to send them.
_PRODUCER: Final = {"kafka.enable.idempotence": "true", "kafka.acks": "all"}


def write_kafka(
    sdf: DataFrame,
    servers: str,
    topic: str,
    *,
    checkpoint: AnyPath,
    key: str | Sequence[str] = (),
    partition: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    query_name: str | None = None,
    options: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start a query that writes the stream to a Kafka topic, as messages of JSON.

    Parameters
    ----------
    sdf
        The output of `rc.spark.stream`.
    servers
        The addresses of brokers, as ``kafka.bootstrap.servers`` takes them.
    topic
        A topic that is there. Its number of partitions when the query first starts is kept.
    checkpoint
        The query's own directory, as everywhere.
    key
        Columns of the payload. Rows that agree in them go to one partition, and they are the message's key,
        as a JSON object. Without them the whole payload decides, and messages have no key.
    partition
        Instead, a column of the payload with the number of the partition itself.
    trigger, query_name
        As for `rc.spark.write`.
    options
        Further options of Spark's connector, such as ``{"kafka.security.protocol": "SSL"}``.

    Every partition gets a copy of every CTI. The headers ``_run``, ``_batch`` and ``_seq`` number the
    messages: after a failure some are written twice, and readers that name these columns skip the second
    (``rc.source(..., run="_run", sequence=["_batch", "_seq"])``). The run is that of the checkpoint.
    """
    check_streaming(sdf)
    spark = sdf.sparkSession
    files = files_of(spark, checkpoint)
    sdf = with_known_times(sdf, files)
    owner = sdf.schema[BATCH].metadata.get(OWNER)
    given = {**(options or {}), **_PRODUCER, SERVERS: servers}
    keys = (key,) if isinstance(key, str) else tuple(key)
    encoder = _checked_encoder(arrow_schema(sdf.schema), keys, partition)
    refuse_loop(sdf, servers, topic)
    topics = Topics(spark, servers, given)
    if owner:
        require_owner(files, owner)
    require_same_topics(sdf, files)
    claimed = _claim_topic(spark, files, topics, topic, given)
    width, longest = claimed.partitions, topics.longest(topic)
    sizes = _sizes(longest)
    encoder = replace(encoder, topic=topic, longest=int(given.get(_LONGEST, longest)))
    if owner:
        claim(files, owner)
    clear_unfinished_plan(files)

    def commit(frame: DataFrame, number: int) -> None:
        run = str(frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID))
        there = topics.partitions(topic)
        claimed.require(topics.id(topic), there)
        messages = frame.toDF(*(f"c{at}" for at in range(len(frame.columns))))
        placed = messages.mapInArrow(encoder.spread_over(width, there).__call__, _DDL)
        # The stream's own session. Adaptive execution would make two jobs of the one.
        frame.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
        tasks = min(there, int(spark.sparkContext.defaultParallelism))
        rows = placed.repartitionById(tasks, F.pmod(F.col("partition"), F.lit(tasks)))
        rows = rows.sortWithinPartitions("partition", "batch", "seq")
        rows = rows.select("partition", "key", "value", _headers(run).alias("headers"))
        rows.write.format("kafka").options(**{**sizes, **given}).option("topic", topic).save()

    started = sdf.writeStream.option("checkpointLocation", spark_address(checkpoint)).foreachBatch(commit)
    started = started.queryName(query_name) if query_name is not None else started
    return (started.trigger(**trigger) if trigger is not None else started).start()


def _headers(run: str) -> Column:
    values = {RUN: F.lit(run), BATCH: F.col("batch"), SEQ: F.col("seq")}
    return F.array(
        *(
            F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
            for name, value in values.items()
        )
    )


def _sizes(longest: int) -> dict[str, str]:
    """Settings by which the client takes what the topic takes."""
    room = max(longest, _REQUEST)
    return {_LONGEST: str(room), "kafka.buffer.memory": str(max(_BUFFER, room))}


@dataclass(frozen=True, slots=True)
class _Claimed:
    """The topic of a checkpoint: over how many partitions events are spread, and which topic it is."""

    topic: str
    partitions: int
    id: str | None = None

    def require(self, now: str | None, there: int) -> None:
        """Refuse another topic of that name."""
        if self.id is not None and now is not None and now != self.id:
            raise RecensionError(
                f"topic {self.topic} was deleted and made anew: its id is {now}, and was {self.id}; start "
                "with a new checkpoint"
            )
        if there < self.partitions:
            raise RecensionError(
                f"topic {self.topic}: has {there} partitions, and had {self.partitions} when this query "
                "began: it is another topic of that name; start with a new checkpoint"
            )


def _claim_topic(
    spark: SparkSession, files: CheckpointFiles, topics: Topics, topic: str, options: Mapping[str, str]
) -> _Claimed:
    """Over how many partitions events are spread: as many as the topic had when the checkpoint was new.

    A checkpoint that writes elsewhere is refused, and one that was put back to an earlier state: what it
    would write again has numbers that readers have seen, and might be something else.
    """
    there, now, text = topics.partitions(topic), topics.id(topic), files.text(NAME)
    if text is None:
        if is_begun(files):
            raise RecensionError(
                f"topic {topic}: this checkpoint has already written micro-batches elsewhere; a topic starts "
                "with its query: use a new checkpoint"
            )
        files.put(NAME, json.dumps({"topic": topic, "partitions": there, "id": now}))
        return _Claimed(topic, there, now)
    stored = json.loads(text)
    if stored["topic"] != topic:
        raise RecensionError(f"topic {topic}: this checkpoint writes to topic {stored['topic']}")
    claimed, run = _Claimed(topic, int(stored["partitions"]), stored.get("id") or now), query_of(files)
    claimed.require(now, there)
    if claimed.id != stored.get("id"):  # the checkpoint is older than that it is noted
        files.put(NAME, json.dumps({"topic": topic, "partitions": claimed.partitions, "id": now}))
    written = None if run is None else _highest_batch(spark, topics, topic, run, options)
    planned = max((int(name) for name in files.names("offsets") if name.isdigit()), default=-1)
    if written is not None and written > planned:
        raise RecensionError(
            f"topic {topic}: has micro-batch {written} of this query, and the checkpoint only {planned}, "
            "since it was put back to an earlier state: start with a new topic and a new checkpoint"
        )
    return claimed


def _highest_batch(
    spark: SparkSession, topics: Topics, topic: str, run: str, options: Mapping[str, str]
) -> int | None:
    """The highest micro-batch of a run in a topic; where another wrote last, all messages are looked at."""
    highest, others = topics.highest_batch(topic, run)
    if not others:
        return highest
    read = spark.read.format("kafka").options(**options).option("assign", json.dumps({topic: others}))
    rows = read.option("includeHeaders", "true").load().select("headers")

    def header(name: str) -> Column:
        found = F.filter("headers", lambda one: one["key"] == name)
        return F.get(found, F.lit(0))["value"].cast("string")

    of_run = rows.where(header(RUN) == run).agg(F.max(header(BATCH).cast("bigint")).alias("highest"))
    (row,) = of_run.collect()
    found = [batch for batch in (highest, row["highest"]) if batch is not None]
    return max(found, default=None)


def _checked_encoder(schema: pa.Schema, key: tuple[str, ...], partition: str | None) -> _Encoder:
    payload = [field for field in schema if not field.name.startswith("_")]
    names = [field.name for field in payload]
    for field in payload:
        if not has_json_form(field.type):
            raise SchemaError(f"column {field.name}: {field.type} cannot be written as JSON; leave it out")
    for role, name in [*(("key", name) for name in key), *([("partition", partition)] if partition else [])]:
        if name not in names:
            raise SchemaError(
                f"{role}={name!r}{suggest_name(name, names)}: no such column; there are {', '.join(names)}"
            )
    if partition is not None and not pa.types.is_integer(schema.field(partition).type):
        raise SchemaError(f"partition={partition!r}: the number of a partition is an integer")
    return _Encoder(tuple(schema.names), key, partition)


@dataclass(frozen=True, slots=True)
class _Encoder:
    """For ``mapInArrow``: rows of the output into messages and their partitions; a CTI into one for each.

    ``width`` partitions have events, ``partitions`` get CTIs.
    """

    names: tuple[str, ...]
    key: tuple[str, ...]
    partition: str | None
    width: int = 1
    partitions: int = 1
    topic: str = ""
    longest: int = 1 << 31

    def spread_over(self, width: int, partitions: int) -> _Encoder:
        return replace(self, width=width, partitions=partitions)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        for batch in batches:
            if len(batch):
                yield self.encode(batch.rename_columns(self.names))

    def encode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The messages of some rows."""
        kind = rows.column(KIND)
        is_cti = pc.equal(kind, _CTI).to_numpy(zero_copy_only=False)
        is_event = pc.is_in(kind, pa.array(_EVENTS)).to_numpy(zero_copy_only=False)
        if self.partitions > 1 and not bool((is_cti | is_event).all()):
            raise RecensionError(
                "an external cti counts the elements of one partition; the topic has several"
            )
        names = [name for name in self.names if name not in (BATCH, SEQ)]
        if bool((is_cti | is_event).all()):
            names = [name for name in names if name != COUNT]
        partition, row = spread(is_cti, self._partitions(rows, is_event), self.partitions)
        keys = self._keys(rows, is_event)
        values = encode_rows(rows.select(names)).cast(pa.binary())
        self._refuse_too_long(rows.select(names), values, keys)
        taken = pa.array(row)
        columns = [
            pa.array(partition, pa.int32()),
            rows.column(BATCH).take(taken),
            rows.column(SEQ).take(taken),
            keys.take(taken),
            values.take(taken),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_MESSAGES)

    def _refuse_too_long(self, rows: pa.RecordBatch, values: pa.Array, keys: pa.Array) -> None:
        """Refuse a message that the topic would, whenever it is tried."""
        payload = rows.select([name for name in rows.schema.names if not name.startswith("_")])
        long = find_too_long(payload, values, keys, self.longest - AROUND)
        if bool(long.any()):
            at = int(long.argmax())
            size = len(values[at].as_py())
            advice = "leave columns out"
            refuse_too_long(f"topic {self.topic}", rows.slice(at, 1), size, self.longest, advice)

    def _partitions(self, rows: pa.RecordBatch, is_event: Any) -> Any:
        """The partition of each event; 0 for all else."""
        if self.partition is None:
            by = list(self.key) or [name for name in self.names if not name.startswith("_")]
            home = (row_hash(rows.select(by), len(rows)) % np.uint64(self.width)).astype(np.int64)
            return np.where(is_event, home, 0)
        home = rows.column(self.partition).cast(pa.int64()).fill_null(-1).to_numpy()
        is_wrong = is_event & ((home < 0) | (home >= self.width))
        if bool(is_wrong.any()):
            number = rows.column(self.partition)[int(is_wrong.argmax())].as_py()
            raise RecensionError(
                f"{self.partition} is {number}, and the topic has the partitions 0 to {self.width - 1}"
            )
        return np.where(is_event, home, 0)

    def _keys(self, rows: pa.RecordBatch, is_event: Any) -> pa.Array:
        """The columns of the key as a JSON object; none for a CTI."""
        if not self.key:
            return pa.nulls(len(rows), pa.binary())
        texts = encode_rows(rows.select(list(self.key))).cast(pa.binary())
        return pc.if_else(pa.array(is_event), texts, pa.scalar(None, pa.binary()))
