"""A Kafka topic as an input: its messages are read by the tasks that send their events to the shards.

Assumes     Spark's connector gives the messages of a micro-batch again when it is run again: their offsets
            are in its log.
Guarantees  the elements of each partition in the order of their offsets. A message of which none can be made
            goes to the topic of dead letters, if one is named; else the policy of the source decides, and an
            error names topic, partition and offset. Whatever its policy, it is counted.
State       none.
Cost        as for rows of any DataFrame, and the parsing of the values; no stage of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from recension.core.errors import FormatError, RecensionError
from recension.core.formats.messages import (
    AROUND,
    TOMBSTONE,
    MessageFormat,
)
from recension.core.time_kind import TimeKind
from recension.plan.node import Node, rebuild
from recension.plan.nodes import Source
from recension.runners.exchange.packets import ORDER, Packet
from recension.runners.spark.kafka.topics import SERVERS, Topics
from recension.runners.spark.session import check
from recension.runners.spark.stream.inputs import InputFrame
from recension.runners.spark.stream.packing import Packing, SourcePacker, join_batches
from recension.runners.spark.stream.topology import Inlet, Topology
from recension.runners.topic_rows import (
    STARTS,
    UNREADABLE,
    TopicColumns,
    TopicReader,
    TopicRows,
    columns_of,
)

_FLUSH: Final = 30.0


@dataclass(frozen=True)
class MessageColumns(TopicColumns):
    """The same for the tasks, with where what cannot be read goes."""

    dead_letters: str | None = None
    client: Mapping[str, str] = field(default_factory=dict)
    longest: int = 0
    """The longest message that the topic of dead letters takes."""


@dataclass(frozen=True)
class KafkaInput:
    """A topic, as an input for `rc.spark.stream`; `read_kafka` makes it."""

    frame: DataFrame
    """The messages, as Spark's connector has them."""
    columns: MessageColumns
    partitions: int
    """How many partitions there are now."""

    def input_frame(self, delay: int | None) -> InputFrame:
        """The input, ready to be packed."""

        def packer(topology: Topology, source: str, level: int, keys: list[int]) -> MessagePacker:
            return MessagePacker(topology, source, level, keys, self.columns)

        wanted = ["value", "topic", "partition", "offset"]
        parts = set(self.columns.beside.values())
        wanted += [name for name in ("timestamp", "key") if name in parts or self._needs(name)]
        wanted += ["headers"] if self.columns.headers or self._needs("headers") else []
        kind: TimeKind = self.columns.kind
        return InputFrame(self.frame.select(*wanted), Inlet(delay), kind, packer)

    def require_source(self, source: Source) -> None:
        """Refuse another source than the topic was opened for."""
        if source.name != self.columns.source:
            raise RecensionError(
                f"{source.name}: this topic was opened for the source {self.columns.source!r}"
            )

    def _needs(self, name: str) -> bool:
        """Dead letters keep the key and the headers of the message."""
        return self.columns.dead_letters is not None and name != "timestamp"

    def expect_partitions(self, query: Node) -> Node:
        """The query, whose source waits until all partitions have spoken."""

        def step(node: Node) -> Node:
            if not isinstance(node, Source) or node.name != self.columns.source:
                return node
            is_told = not node.partition or node.partitions is not None
            return node if is_told else replace(node, partitions=self.partitions)

        (new,) = rebuild([query], step)
        return new


def read_kafka(
    spark: SparkSession,
    plan: Node,
    servers: str,
    topic: str | Sequence[str],
    *,
    form: MessageFormat = "json",
    avro_schema: Any = None,
    columns: Mapping[str, str] | None = None,
    dead_letters: str | None = None,
    start: str = "earliest",
    options: Mapping[str, str] | None = None,
    client: Mapping[str, str] | None = None,
) -> KafkaInput:
    """The input for the one source of a plan; see `rc.spark.read_kafka`."""
    check(spark)
    names = (topic,) if isinstance(topic, str) else tuple(topic)
    if not names:
        raise RecensionError("read_kafka: name a topic")
    if start not in STARTS:
        raise RecensionError(f"topic {names[0]}: start is 'earliest' or 'latest', not {start!r}")
    given = {"startingOffsets": start, "includeHeaders": "true", **(options or {}), SERVERS: servers}
    topics = Topics(spark, servers, given)
    partitions = sum(topics.partitions(name) for name in names)
    found = columns_of(plan, names, partitions, form, avro_schema, columns or {})
    longest = 0
    if dead_letters is not None:
        _require_client()
        if dead_letters in names:
            raise RecensionError(
                f"topic {dead_letters}: its dead letters would go to the topic itself, and be read again, "
                "for ever; name another topic in dead_letters="
            )
        topics.partitions(dead_letters)
        longest = topics.longest(dead_letters)
    sizes = {"message.max.bytes": str(min(max(longest, 1_000), 1_000_000_000))} if longest else {}
    client = {"bootstrap.servers": servers, **sizes, **(client or {})}
    longest = min(longest, int(client.get("message.max.bytes", longest)))
    read = MessageColumns(**found.__dict__, dead_letters=dead_letters, client=client, longest=longest)
    frame = spark.readStream.format("kafka").options(**given).option("subscribe", ",".join(names)).load()
    return KafkaInput(frame, read, partitions)


class MessagePacker(SourcePacker):
    """For ``mapInArrow``: messages into packets."""

    def __init__(
        self, topology: Topology, source: str, level: int, keys: list[int], columns: MessageColumns
    ) -> None:
        super().__init__(topology, source, level, keys)
        self._columns = columns

    def packets(self, packing: Packing, batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
        reading = Reading(packing, self._columns)
        for messages in join_batches(batches):
            yield from reading.packets(messages)
        reading.close()


class Reading:
    """What one task does with its messages."""

    def __init__(self, packing: Packing, columns: MessageColumns) -> None:
        self._packing, self._source, self._columns = packing, packing.source, columns
        self._reader = TopicReader(self._source, columns)
        # A source may be read at several levels of a pipeline: one of them tells.
        is_told = columns.dead_letters is not None and packing.is_counting
        self._letters = DeadLetters(columns) if is_told else None

    def close(self) -> None:
        """Wait until dead letters have arrived."""
        if self._letters is not None:
            self._letters.flush()

    def packets(self, messages: pa.RecordBatch) -> Iterator[Packet]:
        """The packets of messages."""
        if not len(messages):
            return
        read = self._reader.read(messages)
        self._tell(messages, read)
        placement = None
        if self._source.sub_streams is not None:
            placement = self._source.sub_streams.read(read.places, self._source.name)
        order = {} if self._source.order else self._order(messages, read)
        yield from self._packing.send(read.events, order, read.layout.is_table, placement)

    def _tell(self, messages: pa.RecordBatch, read: TopicRows) -> None:
        """Send bad messages to the dead letters, or refuse the first, or count them."""
        faults = read.faults
        if faults and self._columns.dead_letters is None and self._source.on_violation == "raise":
            at, reason = next(iter(faults.items()))
            raise FormatError(reason, file=_describe_place(messages, at))
        if self._letters is not None:
            for at, reason in faults.items():
                self._letters.send(messages.slice(at, 1), reason)
        self._packing.count(UNREADABLE, len(faults))
        self._packing.count(TOMBSTONE, read.tombstones)

    def _order(self, messages: pa.RecordBatch, read: TopicRows) -> dict[str, pa.Array]:
        """Where the source names no order: that of the topic."""
        offset = messages.column("offset").take(pa.array(read.made_of))
        return {f"{ORDER}0": offset, f"{ORDER}1": pa.array(read.numbers)}


def _describe_place(messages: pa.RecordBatch, at: int) -> str:
    return ", ".join(
        f"{part} {messages.column(part)[at].as_py()}" for part in ("topic", "partition", "offset")
    )


def _require_client() -> Any:
    try:
        return import_module("confluent_kafka")
    except ImportError:
        raise RecensionError(
            "dead letters are written by tasks, which need confluent-kafka: pip install 'recension[kafka]'"
        ) from None


class DeadLetters:
    """Messages that cannot be read, as they came, with where they come from and what is wrong in headers."""

    def __init__(self, columns: MessageColumns) -> None:
        self._topic, self._config = columns.dead_letters, dict(columns.client)
        self._longest = columns.longest
        self._producer: Any = None
        self._failure = ""

    def send(self, message: pa.RecordBatch, reason: str) -> None:
        """Send one."""
        if self._producer is None:
            settings = {**self._config, "enable.idempotence": True, "on_delivery": self._note}
            self._producer = _require_client().Producer(settings)
        row = message.to_pylist()[0]
        facts = {
            "_error": reason,
            **{f"_{part}": str(row[part]) for part in ("topic", "partition", "offset")},
        }
        key, value = row["key"], row["value"]
        given = [(header["key"], header["value"]) for header in row["headers"] or ()]
        size = sum(len(part or b"") for part in (key, value, *(text for _, text in given)))
        size += sum(len(name) for name, _ in given)
        if size + len(reason) + AROUND > self._longest:  # it stays where it is, and the letter says where
            key, value, given, facts = None, None, [], {**facts, "_size": str(size)}
        headers = [*given, *((name, text.encode()) for name, text in facts.items())]
        while True:
            try:
                self._producer.produce(self._topic, value=value, key=key, headers=headers)
                return
            except BufferError:  # the client has as many as it takes
                self._producer.poll(0.1)

    def flush(self) -> None:
        """Wait until all have arrived; a message is never dropped without its letter."""
        if self._producer is not None and self._producer.flush(_FLUSH):
            self._failure = self._failure or f"they were not delivered in {_FLUSH:.0f} s"
        if self._failure:
            raise RecensionError(f"dead letters to topic {self._topic}: {self._failure}")

    def _note(self, error: Any, message: Any) -> None:
        if error is not None and not self._failure:
            self._failure = str(error)
