"""Topics of the tests: messages written to them, and read back as a plain consumer does."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pytest

import recension as rc

kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: recension[kafka]")


def new_name(word: str) -> str:
    """A name that no other test has."""
    return f"{word}-{uuid.uuid4().hex[:8]}"


@cache
def _producer(address: str) -> Any:
    """One for all tests: each takes a while to begin. Its log would only tell that the broker has stopped."""
    settings = {"bootstrap.servers": address, "linger.ms": 0, "enable.idempotence": True, "log_level": 0}
    return kafka.Producer(settings)


def write(
    address: str, topic: str, messages: Iterable[Mapping[str, Any] | bytes | None], partition: int = 0
) -> None:
    """Write messages to a partition: objects as JSON, None as a tombstone, bytes as they are."""
    producer = _producer(address)
    producer.list_topics(topic, timeout=30)  # it may have grown
    for message in messages:
        value = json.dumps(message).encode() if isinstance(message, Mapping) else message
        producer.produce(topic, value=value, key=b"k", partition=partition)
    assert producer.flush(30) == 0


def read_all(address: str, topic: str) -> list[Any]:
    """All messages of a topic, by partition and offset."""
    settings = {"bootstrap.servers": address, "group.id": "tests", "enable.auto.commit": False}
    consumer = kafka.Consumer(settings)
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    places = [kafka.TopicPartition(topic, partition, 0) for partition in partitions]
    ends = {place.partition: consumer.get_watermark_offsets(place, timeout=30)[1] for place in places}
    consumer.assign(places)
    found: list[Any] = []
    missing = sum(ends.values())
    while missing > len(found):
        # It waits for as many as it is asked for.
        more = consumer.consume(min(1000, missing - len(found)), 5.0)
        assert more, "messages do not come"
        found += [message for message in more if message.error() is None]
    consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def headers_of(message: Any) -> dict[str, str]:
    return {name: value.decode() for name, value in message.headers() or ()}


def without_repeats(messages: Iterable[Any]) -> list[Any]:
    """What a reader has that skips numbers which are not above the highest of their run and partition."""
    highest: dict[tuple[str, int], tuple[int, int]] = {}
    kept = []
    for message in messages:
        headers = headers_of(message)
        place, number = (headers["_run"], message.partition()), (int(headers["_batch"]), int(headers["_seq"]))
        if number > highest.get(place, (-1, -1)):
            highest[place] = number
            kept.append(message)
    return kept


def history_of(messages: Iterable[Any], schema: Mapping[str, str], keys: Any = None) -> rc.History:
    """The history of the elements in messages; retractions follow their inserts within a partition."""
    out = rc.source("out", schema)
    elements = [json.loads(message.value()) for message in messages]
    made: list[Any] = []
    for one in elements:
        payload = {name: one[name] for name in schema}
        end = rc.FOREVER if one.get("_ve") is None else one["_ve"]
        if one["_kind"] == "insert":
            made.append(rc.Insert(payload, one["_vs"], end))
        elif one["_kind"] == "retract":
            new = rc.FOREVER if one["_new_ve"] is None else one["_new_ve"]
            made.append(rc.Retract(payload, one["_vs"], end, new))
    return rc.run(out, {"out": made}).history()
