"""From a topic through a query to a topic, and back: nothing missing, nothing twice, everything in order."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from scripts.kafka_broker import Broker
from tests.runners.spark.kafka.topics import (
    NUMBERED,
    PLACES,
    Told,
    counted,
    events_of,
    expected,
    query,
    receive,
    remake,
    send,
    stream,
    values,
    without_repeats,
)
from tests.runners.spark.sinks.feeding import assert_same, read

import recension as rc
from recension.core.errors import RecensionError
from recension.testing.generator.settings import SCHEMA

FEED = rc.source("feed", SCHEMA, **PLACES)
PARTS = {0: stream(1, 200), 1: stream(2, 80), 2: stream(3, 40)}
NOW: dict[str, Any] = {"trigger": {"availableNow": True}}
OUT = 4


def fill(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, len(PARTS))
    send(
        broker.address,
        topic,
        [(partition, value, {}) for partition, batch in PARTS.items() for value in values(batch)],
    )


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died after the last micro-batch was written and before it was committed."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    for file in (last, last.with_name(f".{last.name}.crc")):
        file.unlink(missing_ok=True)


def require_order(told: list[Told]) -> None:
    """Every partition has every CTI, after all of its micro-batch; keys stay in their partitions."""
    homes: dict[bytes, set[int]] = defaultdict(set)
    ctis: dict[int, list[Any]] = defaultdict(list)
    for one in told:
        if one.value["_kind"] == "cti":
            ctis[one.partition].append((one.number, one.value["_vs"]))
        else:
            assert one.key is not None
            assert json.loads(one.key) == {"k": one.value["k"]}
            homes[one.key].add(one.partition)
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert len(ctis) == OUT
    assert all(found == ctis[0] for found in ctis.values())
    assert len(ctis[0]) > 1


def test_from_topic_to_topic_and_back(spark: Any, broker: Broker, tmp_path: Path) -> None:
    fill(broker, "feed")
    broker.create_topic("answers", OUT)
    answer, checkpoint = query(FEED), tmp_path / "checkpoint"

    def run() -> None:
        options = {"maxOffsetsPerTrigger": "250"}
        given = rc.spark.read_kafka(spark, FEED, broker.address, "feed", options=options)
        assert given.partitions == len(PARTS)
        answers = rc.spark.stream(spark, answer, {"feed": given}, shards=2)
        written = rc.spark.write_kafka(
            answers, broker.address, "answers", key="k", checkpoint=checkpoint, **NOW
        )
        written.awaitTermination()

    run()
    forget_last_commit(checkpoint)
    run()
    wanted = expected(PARTS)
    told = receive(broker.address, "answers")
    kept = without_repeats(told)
    assert len(kept) < len(told)
    require_order(kept)
    assert events_of(kept, ("k", "n", "top")) == counted(wanted)

    source = rc.source("answers", answer.schema, **PLACES, **NUMBERED)
    back = rc.spark.read_kafka(spark, source, broker.address, "answers")
    again = rc.spark.stream(spark, source, {"answers": back}, shards=2)
    reading = rc.spark.write(again, history=tmp_path / "table", checkpoint=tmp_path / "second", **NOW)
    reading.awaitTermination()
    assert_same(read(tmp_path / "table"), wanted)

    other = rc.spark.stream(spark, answer, {"feed": rc.spark.read_kafka(spark, FEED, broker.address, "feed")})
    broker.create_topic("elsewhere", 1)
    with pytest.raises(RecensionError, match="this checkpoint writes to topic answers"):
        rc.spark.write_kafka(other, broker.address, "elsewhere", checkpoint=checkpoint)
    with pytest.raises(RecensionError, match="topic feed: this query reads it, and would read"):
        rc.spark.write_kafka(other, broker.address, "feed", checkpoint=tmp_path / "third")
    # Another run writes last: what this one wrote is looked for further back.
    send(broker.address, "answers", [(partition, b"{}", {}) for partition in range(OUT)])
    _put_back(checkpoint)
    with pytest.raises(RecensionError, match="was put back to an earlier state"):
        rc.spark.write_kafka(other, broker.address, "answers", checkpoint=checkpoint)

    remake(broker, "feed", len(PARTS))
    with pytest.raises(RecensionError, match="topic feed was deleted and made anew: its id is"):
        rc.spark.write_kafka(other, broker.address, "answers", checkpoint=checkpoint)


def _put_back(checkpoint: Path) -> None:
    """As if the checkpoint of the first micro-batch had been restored from a backup."""
    for file in (checkpoint / "offsets").glob("[0-9]*"):
        if int(file.name) > 0:
            file.unlink()


def test_no_topic_and_no_broker_are_said_in_one_line(spark: Any, broker: Broker) -> None:
    with pytest.raises(RecensionError, match=r"^no topic 'nothing' at .*: create it first$"):
        rc.spark.read_kafka(spark, FEED, broker.address, "nothing")
    soon = {"kafka.default.api.timeout.ms": "700", "kafka.request.timeout.ms": "500"}
    with pytest.raises(RecensionError, match=r"^topic feed: 127.0.0.1:9 does not answer: "):
        rc.spark.read_kafka(spark, FEED, "127.0.0.1:9", "feed", options=soon)


def test_bad_messages_go_to_dead_letters(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("mixed", 2)
    broker.create_topic("dead", 1)
    good = b'{"_vs": 1, "_ve": 5, "value": 3, "text": "a"}'
    bad = b"{" + b"x" * 1_030_000  # longer than the client takes by default, not than the topic does
    send(broker.address, "mixed", [(0, good, {}), (1, bad, {"trace": "7"}), (1, good, {})])
    with pytest.raises(RecensionError, match="topic mixed: its dead letters would go to the topic itself"):
        rc.spark.read_kafka(spark, FEED, broker.address, "mixed", dead_letters="mixed")
    given = rc.spark.read_kafka(spark, FEED, broker.address, "mixed", dead_letters="dead")
    found = rc.spark.stream(spark, FEED, {"feed": given}, shards=2)
    writing = rc.spark.write(found, history=tmp_path / "table", checkpoint=tmp_path / "checkpoint", **NOW)
    writing.awaitTermination()
    assert read(tmp_path / "table").payload.num_rows == 2
    assert rc.spark.metrics(writing).counts["feed"] == {"a message that cannot be read": 1}
    (letter,) = _letters(broker)
    assert letter["value"] == bad
    facts = {name: letter["headers"][name] for name in ("trace", "_topic", "_partition", "_offset")}
    assert facts == {"trace": b"7", "_topic": b"mixed", "_partition": b"1", "_offset": b"0"}
    assert b"not JSON" in letter["headers"]["_error"]


def _letters(broker: Broker) -> list[dict[str, Any]]:
    from tests.runners.spark.kafka.topics import kafka

    consumer = kafka.Consumer({"bootstrap.servers": broker.address, "group.id": "letters"})
    place = kafka.TopicPartition("dead", 0, 0)
    consumer.assign([place])
    found = consumer.consume(consumer.get_watermark_offsets(place, timeout=30)[1], 30.0)
    consumer.close()
    return [{"value": m.value(), "headers": dict(m.headers())} for m in found]
