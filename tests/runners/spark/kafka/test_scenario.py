"""Twelve partitions of different speeds, and everything that can happen to them while a query runs.

One is idle until the end; one is added; the producer dies and sends again what it does not know to have
arrived; the broker is restarted; the driver is killed. The answers are those of the local engine, and so is
what is read back of them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts.kafka_broker import Broker
from tests.runners.spark.kafka import pipeline
from tests.runners.spark.kafka.topics import (
    NUMBERED,
    PLACES,
    counted,
    events_of,
    expected,
    query,
    receive,
    send,
    stream,
    values,
    without_repeats,
)
from tests.runners.spark.sinks.feeding import assert_same, read
from tests.runners.spark.stream.processes import Program

import recension as rc
from recension.core.batch import CTI, EventBatch

PARTITIONS, OUT = 12, 5
IDLE, ADDED = 11, 12
LOST = 25  # as many messages of each partition the producer sends again


class Producer:
    """Sends each partition its elements, a part of them a step, numbered; the last ones it sends again."""

    def __init__(self, servers: str, topic: str, parts: dict[int, EventBatch]) -> None:
        self._servers, self._topic = servers, topic
        self._messages = {
            partition: [(partition, value, _numbers(n)) for n, value in enumerate(values(batch))]
            for partition, batch in parts.items()
        }
        self._sent = dict.fromkeys(parts, 0)

    def send(self, fraction: float, partitions: range) -> None:
        """Send so much of some partitions' elements, and before it what may have been lost."""
        now = []
        for partition in partitions:
            messages = self._messages[partition]
            until = round(len(messages) * fraction)
            now += messages[max(0, self._sent[partition] - LOST) : until]
            self._sent[partition] = max(until, self._sent[partition])
        send(self._servers, self._topic, now)


def _numbers(number: int) -> dict[str, str]:
    return {"_run": "the producer", "_batch": str(number // 100), "_seq": str(number % 100)}


def _parts(size: int) -> dict[int, EventBatch]:
    """Of each partition all that it will ever have: the first have far more than the last."""
    sizes = (size / (1 + np.arange(PARTITIONS))).astype(int)
    parts = {partition: stream(partition, max(20, int(n))) for partition, n in enumerate(sizes)}
    ends = [int(batch.vs[(batch.kind != CTI)].max()) for batch in parts.values()]
    # It joins at the CTI of the source, which is nowhere later than this.
    return parts | {ADDED: stream(ADDED, max(20, size // 4), start=max(ends))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "steps", "kills"),
    [(200, 3, 1), pytest.param(6_000, 4, 4, marks=pytest.mark.soak)],
    ids=["short", "long"],
)
def test_whatever_happens(
    spark: Any, broker: Broker, tmp_path: Path, size: int, steps: int, kills: int
) -> None:
    """A broker that has just restarted may not know a new partition yet: a micro-batch lies between."""
    folder, parts = tmp_path, _parts(size)
    topic = broker.create_topic(f"feed-{size}", PARTITIONS)
    answers = broker.create_topic(f"answers-{size}", OUT)
    producer = Producer(broker.address, topic, parts)

    def start() -> Program:
        module = "tests.runners.spark.kafka.pipeline"
        return Program(module, str(folder), broker.address, topic, answers, log=folder / "log")

    program = start()
    for step in range(1, steps + 1):
        known = _micro_batches(folder)
        # The idle one says a little at first, and the rest at the end.
        producer.send(step / steps, range(PARTITIONS - 1))
        if step == 1:
            producer.send(0.1, range(IDLE, IDLE + 1))
        if step == 2:
            broker.restart()
        if step == 3:
            broker.grow_topic(topic, PARTITIONS + 1)
            producer.send(0.5, range(ADDED, ADDED + 1))
        if step == steps:
            producer.send(1.0, range(IDLE, ADDED + 1))
        program.wait_for(partial(_has_more, folder, known))
        if step <= kills:
            program.kill()
            program = start()
    (folder / "stop").touch()
    program.finish()
    _judge(spark, broker, answers, folder, parts)


def _micro_batches(folder: Path) -> int:
    """As many are planned: the last of them is most often at work."""
    return len(list((folder / "checkpoint" / "offsets").glob("[0-9]*")))


def _has_more(folder: Path, known: int) -> bool:
    return _micro_batches(folder) > known


def _judge(spark: Any, broker: Broker, answers: str, folder: Path, parts: dict[int, EventBatch]) -> None:
    wanted = expected(parts)
    kept = without_repeats(receive(broker.address, answers))
    last = {one.partition: one.value["_vs"] for one in kept if one.value["_kind"] == "cti"}
    assert last == dict.fromkeys(range(OUT))  # the end of time
    assert events_of(kept, ("k", "n", "top")) == counted(wanted)
    source = rc.source("answers", query(pipeline.FEED).schema, **PLACES, **NUMBERED)
    back = rc.spark.read_kafka(spark, source, broker.address, answers)
    again = rc.spark.stream(spark, source, {"answers": back}, shards=2)
    where: dict[str, Any] = {"history": folder / "table", "checkpoint": folder / "second"}
    rc.spark.write(again, **where, trigger={"availableNow": True}).awaitTermination()
    assert_same(read(folder / "table"), wanted)
