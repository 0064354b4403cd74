"""Elements as messages of the topics that a service writes to, and what cannot go there.

Guarantees  an event and its retractions go to one partition, a CTI to all. An event whose payload makes its
            messages longer than the topic takes is refused or goes to the dead letters, with its retractions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import CTI, EventBatch, Index, Mask
from recension.core.errors import RecensionError, suggest_name
from recension.core.formats.columns import COUNT
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.formats.json_schema import has_json_form
from recension.core.formats.messages import AROUND, encode_rows, find_too_long, refuse_too_long, spread
from recension.core.rowhash import row_hash
from recension.runners.kafka.client import Message
from recension.runners.kafka.journal import MESSAGES
from recension.runners.result import Result

Headers: TypeAlias = Sequence[tuple[str, bytes]]

_DEFAULT: Final = 1_000_000
"""The longest message of a topic that does not say: what the client takes by default."""


@dataclass(frozen=True)
class OutputTopic:
    """A topic that gets the elements of a query.

    ``key`` names columns of the payload: rows that agree in them go to one partition, and their values are
    the key of the message. Without it the whole payload decides on the partition. So a retraction always
    follows its insert. A CTI goes to every partition. An event that is too large for the topic stops the
    service, or goes to the topic ``dead_letters``, if one is named, with all its retractions.
    """

    name: str
    key: str | Sequence[str] = ()
    dead_letters: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the key."""
        return (self.key,) if isinstance(self.key, str) else tuple(self.key)


@dataclass(frozen=True, slots=True)
class Limits:
    """The longest messages that topics take."""

    by_topic: Mapping[str, int]
    own: int | None = None
    """The client's, if its user has set one."""

    def of(self, topic: str) -> int:
        """The longest message of a topic, in bytes."""
        size = self.by_topic.get(topic, _DEFAULT)
        return size if self.own is None else min(size, self.own)


@dataclass(frozen=True, slots=True)
class OutputMessages:
    """What a query sends: its messages, and how many of its elements were too long."""

    tables: list[pa.Table]
    too_long: int


def require_writable(schema: pa.Schema, query: str, output: OutputTopic) -> None:
    """Refuse columns that messages cannot carry, and a key that is none of them."""
    for column in schema:
        if not has_json_form(column.type):
            raise RecensionError(f"topic {output.name}: column {column.name}: {column.type} has no JSON form")
    for name in output.keys:
        if name not in schema.names:
            there = ", ".join(schema.names)
            raise RecensionError(
                f"topic {output.name}: key={name!r}{suggest_name(name, schema.names)} is no column of "
                f"{query!r}; there are {there}"
            )


def messages_of(
    result: Result, output: OutputTopic, width: int, partitions: int, limits: Limits
) -> OutputMessages:
    """The elements of a query as messages, in their order; a CTI for every partition."""
    batch = result.batch()
    rows = stream_rows(batch, stream_schema(result.schema, result.time_type)).drop_columns([COUNT])
    values, keys = encode_rows(rows).cast(pa.binary()), _keys(batch, output.keys)
    limit = limits.of(output.name)
    long = find_too_long(batch.payload, values, keys, limit - AROUND)
    long &= batch.kind != CTI
    partition, of = _spread(batch, output.keys, width, partitions)
    letters = list[pa.Table]()
    if bool(long.any()):
        if output.dead_letters is None:
            at = int(long.argmax())
            advice = "name dead_letters= in its OutputTopic"
            refuse_too_long(f"topic {output.name}", rows.slice(at, 1), len(values[at].as_py()), limit, advice)
        letters = [_answer_letters(values, keys, np.flatnonzero(long), output, limits)]
        stays = ~long[of]
        partition, of = partition[stays], of[stays]
    at = pa.array(of)
    table = pa.table(
        [
            pa.repeat(output.name, len(of)),
            pa.array(partition, pa.int32()),
            keys.take(at),
            values.take(at),
            at,
            pa.nulls(len(of), MESSAGES.field("headers").type),
        ],
        schema=MESSAGES,
    )
    return OutputMessages([table, *letters], int(long.sum()))


def _spread(batch: EventBatch, key: Sequence[str], width: int, partitions: int) -> tuple[Index, Index]:
    """The partition of each message and the row that it has."""
    by = batch.payload.select(list(key)) if key else batch.payload
    home = (row_hash(by, len(batch)) % np.uint64(width)).astype(np.int64)
    return spread(batch.kind == CTI, home, partitions)


def _keys(batch: EventBatch, key: Sequence[str]) -> pa.Array:
    """The columns of the key as a JSON object; none for a CTI."""
    if not key:
        return pa.nulls(len(batch), pa.binary())
    texts = encode_rows(batch.payload.select(list(key))).cast(pa.binary())
    mask: Mask = batch.kind == CTI
    return pc.if_else(pa.array(mask), pa.scalar(None, pa.binary()), texts)


def _answer_letters(
    values: pa.Array, keys: pa.Array, rows: Index, output: OutputTopic, limits: Limits
) -> pa.Table:
    """Answers that their topic does not take, for another that takes longer ones."""
    topic, limit = str(output.dead_letters), limits.of(output.name)
    facts = {"_error": f"longer than the {limit} bytes that the topic takes", "_topic": output.name}
    made = list[dict[str, Any]]()
    for row in rows:
        key, value = keys[int(row)].as_py(), values[int(row)].as_py()
        if len(key or b"") + len(value) + AROUND > limits.of(topic):
            raise RecensionError(
                f"topic {topic}: a message of {len(value)} bytes that was too long for topic {output.name}, "
                f"and this one takes {limits.of(topic)} with its headers; raise its max.message.bytes"
            )
        made.append(_letter(topic, key, value, _encode(facts)))
    return pa.Table.from_pylist(made, MESSAGES)


def dead_letters(topic: str, bad: Sequence[tuple[Message, str]], limits: Limits) -> pa.Table:
    """Messages that cannot be read, as they came, with where they come from and what is wrong.

    One that is too long for the topic of letters stays where it is: its letter says where, and how long.
    """
    made = list[dict[str, Any]]()
    for message, reason in bad:
        key, value, headers = message.key(), message.value(), message.headers() or ()
        facts = {
            "_error": reason,
            "_topic": message.topic(),
            "_partition": str(message.partition()),
            "_offset": str(message.offset()),
        }
        size = (
            len(key or b"") + len(value or b"") + sum(len(name) + len(text or b"") for name, text in headers)
        )
        if size + len(reason) + AROUND > limits.of(topic):
            key, value, headers, facts = None, None, (), {**facts, "_size": str(size)}
        made.append(_letter(topic, key, value, [*headers, *_encode(facts)]))
    return pa.Table.from_pylist(made, MESSAGES)


def _encode(facts: Mapping[str, str]) -> Headers:
    return [(name, text.encode()) for name, text in facts.items()]


def _letter(topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> dict[str, Any]:
    named = [{"name": name, "value": text} for name, text in headers]
    return {"topic": topic, "partition": None, "key": key, "value": value, "seq": None, "headers": named}
