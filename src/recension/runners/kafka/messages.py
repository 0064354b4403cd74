"""Messages of the client as a table that a session takes, by the rules that all runners have for topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from struct import Struct
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recension.core.batch import Index
from recension.core.errors import FormatError
from recension.core.formats.columns import RUN, TimeColumns
from recension.core.formats.json_lines import JsonRows
from recension.core.records import record
from recension.core.rows import Origin
from recension.plan.keyed import envelopes_of
from recension.plan.source import Source
from recension.runners.kafka.client import Message, describe_place
from recension.runners.kafka.journal import TopicPartition
from recension.runners.topic_rows import HEADER, NUMBERS, TopicColumns, TopicReader

_FACTS: Final = Struct(">qqii")
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True, slots=True)
class MessageTable:
    """The rows of messages, the message that each was in, and the messages that cannot be read."""

    rows: pa.Table
    made_of: Index
    faults: Sequence[tuple[Message, str]]
    tombstones: int


class ClientReader:
    """Reads the messages of a topic for one source.

    ``is_known`` says that messages were read before: later ones may lack columns that those had.
    """

    def __init__(self, source: Source, topic: str, columns: TopicColumns) -> None:
        self.source, self._topic, self._columns = source, topic, columns
        self._reader = TopicReader(self.source, columns)
        numbers = {name: HEADER + name for name in NUMBERS} | dict(columns.beside)
        self._numbered = TopicReader(self.source, replace(columns, beside=numbers), keeps=NUMBERS)
        self.is_known = False

    def read(self, messages: Sequence[Message]) -> MessageTable:
        """The rows of messages. If any has the numbers of its producer, repeats are known by them."""
        if not self.is_known and self._columns.form == "json" and envelopes_of(self.source) is None:
            self._refuse_absent(messages)
        is_numbered = any(name == RUN for message in messages for name, _ in message.headers() or ())
        read = (self._numbered if is_numbered else self._reader).read(_to_batch(messages))
        rows = read.rows
        for name in (name for name in read.places.schema.names if name not in rows.schema.names):
            rows = rows.append_column(name, read.places.column(name))
        self.is_known |= bool(len(rows))
        faults = [(messages[at], reason) for at, reason in read.faults.items()]
        return MessageTable(pa.Table.from_batches([rows]), read.made_of, faults, read.tombstones)

    def _refuse_absent(self, messages: Sequence[Message]) -> None:
        """Refuse a column that none of the first messages has, if they have others: it may be misspelt."""
        values = [value.replace(b"\n", b" ") for m in messages if (value := m.value()) is not None]
        own = pa.schema([c for c in self.source.columns if c.name not in self._columns.beside])
        times = self.source.time_columns
        times = TimeColumns() if times.start in self._columns.beside else times
        try:
            rows = JsonRows(f"topic {self._topic}", times, own, b"\n".join(values))
        except FormatError:  # one that cannot be read, which is told when they are read
            return
        rows.refuse_absent(own)


def describe_message(message: Message) -> str:
    """Where a message is, for errors."""
    return describe_place((message.topic(), message.partition(), message.offset()))


def contents_of(messages: Iterable[Message]) -> dict[TopicPartition, tuple[int, str]]:
    """Of each partition how many messages these are, and a digest of all that is in them."""
    counts, digests = Counter[TopicPartition](), dict[TopicPartition, Any]()
    for message in messages:
        place = (message.topic(), message.partition())
        counts[place] += 1
        if place not in digests:
            digests[place] = blake2b(digest_size=16)
        key, value, headers = message.key(), message.value(), message.headers()
        sizes = (-1 if part is None else len(part) for part in (key, value))
        facts = _FACTS.pack(message.offset(), message.timestamp()[1], *sizes)
        parts = (facts, key or b"", value or b"", repr(headers).encode() if headers else b"")
        digests[place].update(b"".join(parts))
    return {place: (counts[place], digest.hexdigest()) for place, digest in digests.items()}


def _to_batch(messages: Sequence[Message]) -> pa.RecordBatch:
    """Messages in the columns that Spark's connector has."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([message.value() for message in messages], pa.binary()),
            pa.array([message.topic() for message in messages], pa.string()),
            pa.array([message.partition() for message in messages], pa.int32()),
            pa.array([message.offset() for message in messages], pa.int64()),
            pa.array([_timestamp_of(message) for message in messages], pa.timestamp("ms", "UTC")),
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([_headers_of(message) for message in messages], _HEADERS),
        ],
        names=["value", "topic", "partition", "offset", "timestamp", "key", "headers"],
    )


def _timestamp_of(message: Message) -> int | None:
    _, milliseconds = message.timestamp()
    return milliseconds if milliseconds >= 0 else None


def _headers_of(message: Message) -> list[dict[str, Any]] | None:
    headers = message.headers()
    return None if not headers else [{"key": name, "value": value} for name, value in headers]


@record
class MessageOrigin(Origin):
    """Rows come from messages, which are named where one of them is refused."""

    messages: Sequence[Message] = ()
    made_of: Index = field(default_factory=lambda: np.zeros(0, np.int64))

    def locate(self, position: int) -> tuple[str | None, int | None]:
        """Topic, partition and offset."""
        return describe_message(self.messages[self.made_of[position]]), None
