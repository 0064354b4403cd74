"""Elements of many partitions, into topics and out of them, by a client that knows nothing of Recension."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import recension as rc
from recension.api.stream import Stream
from recension.core.batch import EventBatch, concat
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.formats.messages import encode_rows
from recension.core.history import History
from recension.testing.generator import StreamSettings, generate
from recension.testing.generator.settings import SCHEMA

kafka = pytest.importorskip(
    "confluent_kafka", reason="confluent-kafka is not installed: pip install 'recension[kafka]'"
)

kafka_admin = pytest.importorskip("confluent_kafka.admin")

NUMBERED: dict[str, Any] = {"run": "_run", "sequence": ["_batch", "_seq"]}
PLACES: dict[str, Any] = {"partition": "partition", "order": "offset"}


def remake(broker: Any, topic: str, partitions: int) -> None:
    """Delete a topic and make another of its name."""
    admin = kafka_admin.AdminClient({"bootstrap.servers": broker.address})
    admin.delete_topics([topic])[topic].result()
    end = time.monotonic() + 30
    while topic in admin.list_topics(timeout=30).topics and time.monotonic() < end:
        time.sleep(0.1)
    broker.create_topic(topic, partitions)


class Told(NamedTuple):
    """A message, as it lies in a topic."""

    partition: int
    offset: int
    key: bytes | None
    value: dict[str, Any]
    headers: dict[str, str]

    @property
    def number(self) -> tuple[str, int, int]:
        """The run, the micro-batch and the number in it."""
        return self.headers["_run"], int(self.headers["_batch"]), int(self.headers["_seq"])


def stream(seed: int, size: int, start: int = 0) -> EventBatch:
    """A stream with late events, copies, revisions and CTIs, the last at the end of time."""
    settings = StreamSettings.of(
        "R4",
        size=size,
        revisions=0.3,
        duplicates=0.1,
        stable_freq=0.2,
        event_duration="1s",
        duration_spread=0.9,
        string_size=4,
        seed=seed,
        start=start,
    )
    return concat(list(generate(settings)))


def query(source: Stream) -> Stream:
    """Revised answers by key, with an exchange by the key."""
    by_key = source.with_columns(k=rc.col("value") % 7).group_by("k")
    return by_key.agg(n=rc.count(), top=rc.max("value"), speculate="eager")


def send(servers: str, topic: str, messages: Iterable[tuple[int, bytes, dict[str, str]]]) -> None:
    """Send messages to their partitions, in order, and wait until they are there."""
    failures: list[Any] = []
    settings = {
        "bootstrap.servers": servers,
        "enable.idempotence": True,
        "linger.ms": 5,
        "message.max.bytes": 2_000_000,
    }

    def note(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)

    producer = kafka.Producer({**settings, "on_delivery": note})
    for partition, value, headers in messages:
        given = [(name, text.encode()) for name, text in headers.items()]
        producer.produce(topic, value=value, partition=partition, headers=given)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failures, failures


def values(batch: EventBatch) -> list[bytes]:
    """Elements as messages of JSON."""
    rows = stream_rows(batch, stream_schema(batch.schema, pa.int64()))
    return [text.encode() for text in encode_rows(rows).to_pylist()]


def receive(servers: str, topic: str) -> list[Told]:
    """All that a topic has, partition by partition."""
    consumer = kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([kafka.TopicPartition(topic, number, 0) for number in partitions])
    found, open_ones = [], set(partitions)
    while open_ones:
        for message in consumer.consume(10_000, 0.1):
            if message.error() is not None:
                assert message.error().code() == kafka.KafkaError._PARTITION_EOF, message.error()
                open_ones.discard(message.partition())
                continue
            headers = {name: value.decode() for name, value in message.headers() or ()}
            value = json.loads(message.value())
            found.append(Told(message.partition(), message.offset(), message.key(), value, headers))
    consumer.close()
    return sorted(found, key=lambda told: (told.partition, told.offset))


def without_repeats(told: Sequence[Told]) -> list[Told]:
    """What a reader keeps that remembers the highest number of each run and partition."""
    highest: dict[tuple[str, int], tuple[int, int]] = {}
    kept = []
    for one in told:
        run, *number = one.number
        if tuple(number) > highest.get((run, one.partition), (-1, -1)):
            highest[run, one.partition] = (number[0], number[1])
            kept.append(one)
    return kept


def events_of(told: Sequence[Told], names: Sequence[str]) -> Counter[tuple[Any, ...]]:
    """The events that messages leave, by the plainest of readers; it refuses what is late or not there."""
    events: Counter[tuple[Any, ...]] = Counter()
    ctis: dict[int, int] = {}
    for one in told:
        value, frontier = one.value, ctis.get(one.partition, -(2**63))
        payload = tuple(value[name] for name in names)
        ends = [2**63 - 1 if value[name] is None else value[name] for name in ("_ve", "_new_ve")]
        if value["_kind"] == "cti":
            cti = 2**63 - 1 if value["_vs"] is None else value["_vs"]
            assert cti >= frontier, f"a cti that goes back: {one}"
            ctis[one.partition] = cti
        elif value["_kind"] == "insert":
            assert value["_vs"] >= frontier, f"late: {one}"
            events[one.partition, value["_vs"], ends[0], *payload] += 1
        else:
            assert min(ends) >= frontier, f"late: {one}"
            event = (one.partition, value["_vs"], ends[0], *payload)
            assert events[event] > 0, f"not there: {one}"
            events[event] -= 1
            if ends[1] > value["_vs"]:
                events[one.partition, value["_vs"], ends[1], *payload] += 1
    return Counter({event[1:]: n for event, n in _united(events).items()})


def _united(events: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    united: Counter[tuple[Any, ...]] = Counter()
    for (_, *event), n in events.items():
        if n:
            united[0, *event] += n
    return united


def counted(history: History) -> Counter[tuple[Any, ...]]:
    """A history in the same form."""
    payload = history.payload.to_pydict()
    rows = zip(history.vs.tolist(), history.ve.tolist(), *payload.values(), strict=True)
    return Counter(rows)


def as_table(parts: Mapping[int, EventBatch]) -> pa.Table:
    """The elements of all partitions, with their places, as a table for the local engine."""
    tables = []
    for partition, batch in parts.items():
        rows = pa.Table.from_batches([stream_rows(batch, stream_schema(batch.schema, pa.int64()))])
        rows = rows.append_column("partition", pa.array(np.full(len(rows), partition)))
        tables.append(rows.append_column("offset", pa.array(np.arange(len(rows)))))
    return pa.concat_tables(tables)


def expected(parts: Mapping[int, EventBatch]) -> History:
    """What the local engine answers to the same elements, partition by partition."""
    feed = rc.source("feed", SCHEMA, **PLACES)
    return rc.run(query(feed), {"feed": as_table(parts)}).history()
