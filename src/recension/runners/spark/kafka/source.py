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

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from recension.core.batch import Index
from recension.core.errors import FormatError, RecensionError, first_line, suggest_name
from recension.core.formats.columns import BATCH, CONTROL, FIXED_TYPES, RUN, SEQ, TimeColumns, layout_of
from recension.core.formats.decode import Decoder
from recension.core.formats.messages import (
    TOMBSTONE,
    MessageFormat,
    MessageReader,
    header_columns,
)
from recension.core.formats.text import from_text
from recension.core.time_kind import AWARE, TICKS, TimeKind
from recension.core.values import cast_exactly
from recension.plan.node import Node, rebuild, walk
from recension.plan.nodes import ByKey, Source, Table
from recension.runners.spark.kafka.topics import SERVERS, Topics
from recension.runners.spark.session import check
from recension.runners.spark.stream.inputs import InputFrame
from recension.runners.spark.stream.packets import ORDER, Packet
from recension.runners.spark.stream.packing import Packing, SourcePacker, join_batches
from recension.runners.spark.stream.topology import Inlet, Topology

UNREADABLE: Final = "a message that cannot be read"
HEADER: Final = "headers."
ROW: Final = "row"
PARTS: Final = ("topic", "partition", "offset", ROW, "timestamp", "key")
_NUMBERS: Final = (RUN, BATCH, SEQ)
_STARTS: Final = ("earliest", "latest")
_TABLES: Final = ("arrow", "parquet")
_FLUSH: Final = 30.0


@dataclass(frozen=True)
class MessageColumns:
    """How the messages of a topic are read for one source; goes to the tasks.

    ``beside`` has the columns that come from beside the value, and from what.
    """

    source: str
    form: MessageFormat
    avro_schema: Any
    beside: Mapping[str, str]
    kind: pa.DataType
    deleted: str | None = None
    dead_letters: str | None = None
    client: Mapping[str, str] = field(default_factory=dict)

    @property
    def headers(self) -> list[str]:
        """The names of the headers that are columns."""
        return [part.removeprefix(HEADER) for part in self.beside.values() if part.startswith(HEADER)]


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
    source, deleted = _source_of(plan)
    names = (topic,) if isinstance(topic, str) else tuple(topic)
    if not names:
        raise RecensionError(f"{source.name}: name a topic")
    if start not in _STARTS:
        raise RecensionError(f"{source.name}: start is 'earliest' or 'latest', not {start!r}")
    given = {"startingOffsets": start, "includeHeaders": "true", **(options or {}), SERVERS: servers}
    topics = Topics(spark, servers, given)
    partitions = sum(topics.partitions(name) for name in names)
    beside = _find_columns(source, names, columns or {})
    _require_places(source, names, partitions, beside, form)
    if dead_letters is not None:
        _require_client()
        topics.partitions(dead_letters)
    read = MessageColumns(
        source.name,
        form,
        avro_schema,
        beside,
        _kind(source, beside),
        deleted if deleted and _can_delete(plan, source, beside) else None,
        dead_letters,
        {"bootstrap.servers": servers, **(client or {})},
    )
    # Refuses, before anything runs, what no message could be read as.
    _reader(source, read)
    frame = spark.readStream.format("kafka").options(**given).option("subscribe", ",".join(names)).load()
    return KafkaInput(frame, read, partitions)


def _source_of(plan: Node) -> tuple[Source, str | None]:
    """The source, and the column that says that a row of a keyed one is deleted."""
    found = [node for node in walk(plan) if isinstance(node, Source) and not isinstance(node, Table)]
    if len(found) != 1:
        raise RecensionError(
            "read_kafka: give it the source that the topic is for, as rc.source(...) makes it"
        )
    keyed = [node for node in walk(plan) if isinstance(node, ByKey)]
    return found[0], keyed[0].deleted if keyed else None


def _can_delete(plan: Node, source: Source, beside: Mapping[str, str]) -> bool:
    """Does a message without a value say enough to delete a row: its key, and when?"""
    keyed = next(node for node in walk(plan) if isinstance(node, ByKey))
    return {*keyed.key, source.start} <= set(beside)


def _find_columns(source: Source, topics: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """What the source gets from beside the value: what it was told, and where its rows stand."""
    found, places = dict(columns), () if source.sub_streams is None else source.sub_streams.names
    where = f"topic {', '.join(topics)}"
    for name in places:
        if name not in found and (name in PARTS or name in _NUMBERS):
            found[name] = HEADER + name if name in _NUMBERS else name
    for name, part in found.items():
        if part not in PARTS and not part.startswith(HEADER):
            raise RecensionError(
                f"{where}: columns={{{name!r}: {part!r}}}{suggest_name(part, PARTS)}: a message has "
                f"{', '.join(PARTS)} and {HEADER}NAME"
            )
        if name not in source.columns.names and name not in (*places, source.start, source.end):
            there = ", ".join(source.columns.names)
            raise RecensionError(
                f"{where}: columns= names {name!r}{suggest_name(name, source.columns.names)}, and the source "
                f"{source.name!r} has {there}"
            )
        if name in CONTROL and name not in _NUMBERS:
            raise RecensionError(f"{where}: columns= cannot name {name!r}, which is in the value")
    return found


def _require_places(
    source: Source, topics: Sequence[str], partitions: int, beside: Mapping[str, str], form: str
) -> None:
    """Refuse a source that does not tell the partitions of its topic apart, or their messages' order."""
    where, told = f"topic {', '.join(topics)}", {beside.get(name) for name in source.partition}
    wanted = {"topic", "partition"} if len(topics) > 1 else {"partition"}
    order = '["offset", "row"]' if form in _TABLES else '"offset"'
    named = '["topic", "partition"]' if len(topics) > 1 else '"partition"'
    advice = f"rc.source({source.name!r}, ..., partition={named}, order={order})"
    # The rows of a key are in one partition, and are put in order by themselves.
    is_needed = partitions > 1 and not source.are_rows
    if (is_needed or source.partition) and not wanted <= told:
        raise RecensionError(f"{where}: has {partitions} partitions, each a stream of its own: {advice}")
    by = [beside.get(name) for name in source.order]
    if source.partition and (by[:1] != ["offset"] or (form in _TABLES and by[:2] != ["offset", ROW])):
        why = (
            "several rows come in one message"
            if form in _TABLES and by
            else "messages stand by their offsets"
        )
        raise RecensionError(f"{where}: {why}: {advice}")


def _kind(source: Source, beside: Mapping[str, str]) -> pa.DataType:
    if source.start is not None and beside.get(source.start) == "timestamp":
        return AWARE
    kind = source.kind
    return TICKS if kind is None else kind


def _times(source: Source, beside: Mapping[str, str]) -> TimeColumns:
    """The columns of times in the values; those that come from beside the value are not there."""
    named = [name for name in (source.start, source.end) if name is not None]
    elsewhere = [name for name in named if name in beside]
    if elsewhere and len(elsewhere) < len(named):
        raise RecensionError(
            f"{source.name}: {elsewhere[0]} comes from beside the value, and the other time does not: name "
            "both in columns=, or none"
        )
    return TimeColumns(is_timeless=True) if elsewhere else source.time_columns


def _reader(source: Source, read: MessageColumns) -> MessageReader:
    own = pa.schema([column for column in source.columns if column.name not in read.beside])
    return MessageReader(read.form, own, _times(source, read.beside), read.kind, read.avro_schema)


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
        self._reader = _reader(self._source, columns)
        places = self._source.sub_streams
        self._places = () if places is None else places.names
        self._judge = Decoder(self._source.columns, "drop")
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
        read = self._reader.read(messages.column("value"))
        bad = dict(read.bad)
        rows, made_of = self._with_deletions(read.rows, read.message, bad)
        beside, wrong = self._beside(messages, made_of)
        bad |= wrong
        rows = self._join(rows, beside)
        layout = layout_of(rows.schema, self._source.time_columns, self._source.name)
        decoded = self._judge.judge(rows, layout, self._source.name, 1)
        for at in np.flatnonzero(~decoded.kept).tolist():
            if int(made_of[at]) not in bad:
                bad[int(made_of[at])] = self._reason(rows.slice(at, 1), layout)
        self._tell(messages, bad)
        is_good = ~np.isin(made_of, list(bad)) if bad else np.ones(len(made_of), np.bool_)
        events = decoded.batch.filter(is_good[decoded.kept])
        good = pa.array(is_good)
        placement = None
        if self._source.sub_streams is not None:
            places = pa.RecordBatch.from_arrays(
                [beside[name].filter(good) for name in self._places], names=list(self._places)
            )
            placement = self._source.sub_streams.read(places, self._source.name)
        order = {} if self._source.order else self._order(messages, made_of, good)
        yield from self._packing.send(events, order, layout.is_table, placement)

    def _with_deletions(
        self, rows: pa.RecordBatch, made_of: Index, bad: dict[int, str]
    ) -> tuple[pa.RecordBatch, Index]:
        """With a row for each message without a value, if that deletes its key."""
        gone = [at for at, reason in bad.items() if reason == TOMBSTONE]
        if self._columns.deleted is None or not gone:
            return rows, made_of
        for at in gone:
            del bad[at]
        empty = {
            name: pa.repeat(True, len(gone)) if name == self._columns.deleted else pa.nulls(len(gone), kind)
            for name, kind in zip(rows.schema.names, rows.schema.types, strict=True)
        }
        deletions = pa.RecordBatch.from_arrays(list(empty.values()), schema=rows.schema)
        together, numbers = pa.concat_batches([rows, deletions]), np.concatenate([made_of, np.array(gone)])
        order = np.argsort(numbers, kind="stable")
        return together.take(pa.array(order)), numbers[order]

    def _beside(self, messages: pa.RecordBatch, made_of: Index) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """The columns from beside the value, and the messages of which one does not fit."""
        found, bad, taken = dict[str, pa.Array](), dict[int, str](), pa.array(made_of)
        names = self._columns.headers
        headers = (
            dict(zip(names, header_columns(messages.column("headers"), names), strict=True)) if names else {}
        )
        for name, part in self._columns.beside.items():
            if part == ROW:
                found[name] = pa.array(_row_numbers(made_of))
                continue
            given = headers[part.removeprefix(HEADER)] if part.startswith(HEADER) else messages.column(part)
            found[name], wrong = _convert(given, self._type_of(name), name)
            found[name] = found[name].take(taken)
            bad |= wrong
        return found, bad

    def _type_of(self, name: str) -> pa.DataType | None:
        at = self._source.columns.get_field_index(name)
        if at >= 0:
            return self._source.columns.field(at).type
        sequence = () if self._source.sub_streams is None else self._source.sub_streams.sequence
        if name in FIXED_TYPES:
            return FIXED_TYPES[name]
        if name in sequence:
            return pa.int64()
        return self._columns.kind if name in (self._source.start, self._source.end) else None

    def _join(self, rows: pa.RecordBatch, beside: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """The rows with those columns from beside the value that the source has."""
        wanted = {*self._source.columns.names, self._source.start, self._source.end}
        for name, column in beside.items():
            if name in wanted:
                rows = rows.append_column(name, column)
        return rows

    def _reason(self, row: pa.RecordBatch, layout: Any) -> str:
        try:
            Decoder(self._source.columns, "raise").judge(row, layout, self._source.name, 1)
        except FormatError as why:
            return why.reason
        return UNREADABLE

    def _tell(self, messages: pa.RecordBatch, bad: Mapping[int, str]) -> None:
        """Send bad messages to the dead letters, or refuse the first, or count them."""
        tombstones = [at for at, reason in bad.items() if reason == TOMBSTONE]
        faults = {at: reason for at, reason in sorted(bad.items()) if reason != TOMBSTONE}
        if faults and self._columns.dead_letters is None and self._source.on_violation == "raise":
            at, reason = next(iter(faults.items()))
            raise FormatError(reason, file=_describe_place(messages, at))
        if self._letters is not None:
            for at, reason in faults.items():
                self._letters.send(messages.slice(at, 1), reason)
        self._packing.count(UNREADABLE, len(faults))
        self._packing.count(TOMBSTONE, len(tombstones))

    def _order(self, messages: pa.RecordBatch, made_of: Index, good: pa.Array) -> dict[str, pa.Array]:
        """Where the source names no order: that of the topic."""
        offset = messages.column("offset").take(pa.array(made_of)).filter(good)
        return {f"{ORDER}0": offset, f"{ORDER}1": pa.array(_row_numbers(made_of)).filter(good)}


def _row_numbers(made_of: Index) -> Index:
    """Of each row its number in its message."""
    starts = np.flatnonzero(np.append(True, made_of[1:] != made_of[:-1])) if len(made_of) else made_of
    return np.arange(len(made_of)) - np.repeat(starts, np.diff(np.append(starts, len(made_of))))


def _convert(column: pa.Array, kind: pa.DataType | None, name: str) -> tuple[pa.Array, dict[int, str]]:
    """A column in its type; where a value does not fit it is null, and named with the reason."""
    if kind is None or column.type == kind:
        return (column.cast(pa.string()) if pa.types.is_binary(column.type) else column), {}
    try:
        return _to_type(column, kind), {}
    except (pa.ArrowException, ValueError):
        pass
    values, bad = [], dict[int, str]()
    for at in range(len(column)):
        try:
            values.append(_to_type(column.slice(at, 1), kind))
        except (pa.ArrowException, ValueError) as why:
            bad[at] = f"column {name}: {first_line(why)}"
            values.append(pa.nulls(1, kind))
    return pa.concat_arrays(values), bad


def _to_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(column.type) and not pa.types.is_binary(kind):
        column = column.cast(pa.string())
    return from_text(column, kind) if pa.types.is_string(column.type) else cast_exactly(column, kind)


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
        given = [(header["key"], header["value"]) for header in row["headers"] or ()]
        headers = [*given, *((name, text.encode()) for name, text in facts.items())]
        while True:
            try:
                self._producer.produce(self._topic, value=row["value"], key=row["key"], headers=headers)
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
