"""Topics in memory, in the place of a broker: a process may die at any step, and messages may not arrive."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import recension as rc
from recension.core.formats.columns import BATCH, RUN, SEQ
from recension.runners.kafka import service
from recension.runners.kafka.journal import BatchRecord, Ranges, TopicPartition

Headers = list[tuple[str, bytes]]


class Crash(BaseException):
    """The process dies here."""


@dataclass
class FakeMessage:
    """What a test writes, with the methods of the client's messages."""

    body: bytes | None
    place: tuple[str, int, int] = ("", 0, 0)
    name: bytes | None = None
    header: Headers = field(default_factory=list)

    def value(self) -> bytes | None:
        return self.body

    def key(self) -> bytes | None:
        return self.name

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.place[2]

    def headers(self) -> Headers:
        return self.header

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000 + self.place[2]


class FakeCluster:
    """Topics by name: a list of messages for each partition."""

    def __init__(self, **topics: int) -> None:
        self.logs: dict[TopicPartition, list[FakeMessage]] = {}
        for name, partitions in topics.items():
            self.logs |= {(name, partition): [] for partition in range(partitions)}
        self.luck, self.sizes = random.Random(0), [0, 1, 3, 1000]
        self.ids: dict[str, str] = {}
        self.limits: dict[str, int] = {}
        # Offsets that a compaction has removed.
        self.compacted: set[tuple[str, int, int]] = set()
        self.left: int | None = None

    def step(self) -> None:
        """One more step that a kill may prevent."""
        if self.left is not None:
            if not self.left:
                raise Crash
            self.left -= 1

    def write(self, topic: str, body: bytes | None, partition: int = 0, **more: Any) -> None:
        log = self.logs[topic, partition]
        log.append(FakeMessage(body, (topic, partition, len(log)), **more))

    def read(self, topic: str) -> list[FakeMessage]:
        places = sorted(place for place in self.logs if place[0] == topic)
        return [message for place in places for message in self.logs[place]]


@dataclass
class FakeFacts:
    cluster: FakeCluster

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        return {name: self.cluster.ids.get(name, name) for name in topics}

    def limits(self, topics: Iterable[str]) -> dict[str, int]:
        return {name: size for name, size in self.cluster.limits.items() if name in topics}


@dataclass
class FakeFetcher:
    cluster_of: FakeCluster
    at: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def facts(self) -> FakeFacts:
        return FakeFacts(self.cluster_of)

    def cluster(self) -> str:
        return "memory"

    def close(self) -> None: ...

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    def partitions(self, topic: str) -> list[int]:
        return sorted(place[1] for place in self.cluster_of.logs if place[0] == topic)

    def ends(self, place: TopicPartition) -> tuple[int, int]:
        return 0, len(self.cluster_of.logs[place])

    def first_offset(self, place: TopicPartition, start: str) -> int:
        return 0 if start == "earliest" else self.ends(place)[1]

    def highest_batch(self, topic: str, run: str, since: Mapping[TopicPartition, int]) -> int:
        logs = {place: log for place, log in self.cluster_of.logs.items() if place[0] == topic and log}
        found = [
            dict(message.headers()) for place, log in logs.items() for message in log[since.get(place, 0) :]
        ]
        return max((int(one[BATCH]) for one in found if one[RUN].decode() == run), default=0)

    def start(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.at |= offsets

    def reached(self, place: TopicPartition) -> int:
        return self.at[place]

    def has_taken(self, place: TopicPartition) -> bool:
        return True

    def take(self, limit: int, seconds: float) -> list[FakeMessage]:
        """Some of what is there, as a broker gives it: of each partition as many as it likes."""
        taken: list[FakeMessage] = []
        for place, offset in self.at.items():
            size = min(limit, self.cluster_of.luck.choice(self.cluster_of.sizes))
            taken += self._advance(place, min(offset + size, len(self.cluster_of.logs[place])))
        return taken

    def take_ranges(self, ranges: Ranges) -> list[FakeMessage]:
        return [message for place, (_, end) in ranges.items() for message in self._advance(place, end)]

    def _advance(self, place: TopicPartition, end: int) -> list[FakeMessage]:
        start, self.at[place] = self.at[place], end
        gone = self.cluster_of.compacted
        return [one for one in self.cluster_of.logs[place][start:end] if one.place not in gone]


@dataclass
class FakeSender:
    """Messages arrive late: some at the next call, in order within a partition, or never if it is closed."""

    cluster: FakeCluster
    run: str
    waiting: list[tuple[str, int, FakeMessage]] = field(default_factory=list)

    def send(self, record: BatchRecord) -> None:
        for one in record.messages.to_pylist():
            headers = [] if one["seq"] is None else [(SEQ, str(one["seq"]).encode())]
            headers += [(RUN, self.run.encode()), (BATCH, str(record.number).encode())] if headers else []
            headers += [(header["name"], header["value"]) for header in one["headers"] or ()]
            message = FakeMessage(one["value"], name=one["key"], header=headers)
            self.waiting.append((one["topic"], one["partition"] or 0, message))
            self.deliver(self.cluster.luck.choice([0, 0, 1, 2]))

    def deliver(self, number: int) -> None:
        for topic, partition, message in self.waiting[:number]:
            self.cluster.step()
            self.cluster.write(topic, message.body, partition, name=message.name, header=message.header)
        self.waiting = self.waiting[number:]

    def has_delivered(self) -> bool:
        return not self.waiting

    def flush(self) -> None:
        while self.waiting:
            self.deliver(1)

    def close(self) -> None: ...


@pytest.fixture(name="cluster")
def _cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Topics in memory in the place of all brokers; every write to the disk is a step."""
    made = FakeCluster()
    monkeypatch.setattr(service, "Fetcher", lambda config: FakeFetcher(made))
    monkeypatch.setattr(service, "Sender", lambda config, run, limits: FakeSender(made, run))

    def guard(owner: Any, name: str) -> None:
        step: Callable[..., Any] = getattr(owner, name)

        def guarded(*given: Any, **named: Any) -> Any:
            made.step()
            return step(*given, **named)

        monkeypatch.setattr(owner, name, guarded)

    monkeypatch.setattr(os, "fsync", lambda handle: made.step())  # a kill takes nothing from the page cache
    guard(os, "replace")
    guard(Path, "unlink")
    return made


def open_service(query: rc.Stream, folder: Path, **options: Any) -> Any:
    return rc.kafka.service(rc.session(query), "memory", folder=folder, **options)
