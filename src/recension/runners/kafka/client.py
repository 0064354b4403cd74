"""What comes from topics, and what goes there.

A service reads every partition of its topics itself, at the offsets that it keeps: there is no group that
gives partitions away. Offsets that the broker has no longer, or not yet, are an error: nothing is left out in
silence.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from recension.core.errors import RecensionError, suggest_name
from recension.core.formats.columns import BATCH, RUN, SEQ
from recension.runners.kafka.journal import BatchRecord, Ranges, TopicPartition

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
    from confluent_kafka import TopicPartition as Place
except ImportError:
    raise RecensionError("rc.kafka needs confluent-kafka: pip install 'recension[kafka]'") from None

log = logging.getLogger("recension")

__all__ = ["Fetcher", "Message", "Sender", "Start"]

Config: TypeAlias = Mapping[str, Any]
Start: TypeAlias = Literal["earliest", "latest"]
_PATIENCE: Final = 30.0
_MOMENT: Final = 0.1
_READING: Final = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}
_WRITING: Final = {"enable.idempotence": True, "delivery.report.only.error": True, "linger.ms": 5}


class Fetcher:
    """The messages of all partitions of some topics, in the order of each partition."""

    def __init__(self, config: Config) -> None:
        settings = {**config, **_READING, "group.id": config.get("group.id", "recension")}
        self._consumer = Consumer(settings, logger=log)
        self._ahead: dict[TopicPartition, deque[Message]] = {}
        # The first offset that may still come, as far as the broker has said.
        self._reached: dict[TopicPartition, int] = {}

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def cluster(self) -> str:
        """The name of the cluster; offsets mean nothing in another one."""
        return str(self._list().cluster_id)

    def partitions(self, topic: str) -> list[int]:
        """The partitions that a topic has now."""
        listed = self._list().topics
        found = listed.get(topic)
        if found is None or found.error is not None:
            near = suggest_name(topic, [name for name in listed if not name.startswith("__")])
            raise RecensionError(f"no topic {topic!r}{near} at the broker")
        return sorted(found.partitions)

    def _list(self) -> Any:
        try:
            return self._consumer.list_topics(timeout=_PATIENCE)
        except KafkaException as why:
            raise RecensionError(f"the broker does not answer: {_describe(why.args[0])}") from None

    def first_offset(self, place: TopicPartition, start: Start) -> int:
        """The offset of the first message to read of a partition."""
        low, high = self.ends(place)
        return low if start == "earliest" else high

    def ends(self, place: TopicPartition) -> tuple[int, int]:
        """The first offset that a partition has now, and the one after the last."""
        try:
            low, high = self._consumer.get_watermark_offsets(Place(*place), timeout=_PATIENCE)
        except KafkaException as why:
            raise RecensionError(f"{describe_place(place)}: {_describe(why.args[0])}") from None
        return int(low), int(high)

    def start(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read from these offsets on; partitions that are read already go on."""
        for place, offset in offsets.items():
            low, high = self.ends(place)
            if not low <= offset <= high:
                raise RecensionError(_describe_gap(place, offset, low, high))
            self._ahead[place], self._reached[place] = deque(), offset
        places = [Place(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        self._consumer.incremental_assign(places)

    def take(self, limit: int, seconds: float) -> list[Message]:
        """Messages that are there, at most so many; the first is waited for, the others for a moment."""
        taken = list[Message]()
        for held in self._ahead.values():
            taken += [held.popleft() for _ in range(min(len(held), limit - len(taken)))]
        if len(taken) < limit:
            first = [] if taken else self._consume(1, seconds)
            taken += first
            if first:
                taken += self._consume(limit - len(taken), min(seconds, _MOMENT))
        return taken

    def take_ranges(self, ranges: Ranges) -> list[Message]:
        """The messages at these offsets; those that a broker has compacted away are not among them."""
        taken, limit = list[Message](), time.monotonic() + _PATIENCE
        for place, (_, end) in ranges.items():
            held = self._ahead[place]
            while True:
                while held and held[0].offset() < end:
                    taken.append(held.popleft())
                if held or self._reached[place] >= end:
                    break
                for message in self._consume(10_000, _MOMENT):
                    self._ahead[message.topic(), message.partition()].append(message)
                    limit = time.monotonic() + _PATIENCE
                if time.monotonic() > limit:
                    raise RecensionError(
                        f"{describe_place(place)}: the messages up to offset {end} do not come: is the "
                        "broker there?"
                    )
        return taken

    def reached(self, place: TopicPartition) -> int:
        """The first offset that may still come of a partition."""
        return self._reached[place]

    def has_taken(self, place: TopicPartition) -> bool:
        """Was everything taken that has come of a partition?"""
        return not self._ahead[place]

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Tell the broker how far the service is, for those who watch its lag."""
        places = [Place(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=True)
        except KafkaException as why:
            raise RecensionError(f"offsets cannot be committed: {_describe(why.args[0])}") from None

    def _consume(self, limit: int, seconds: float) -> list[Message]:
        messages = list[Message]()
        for message in self._consumer.consume(limit, seconds):
            error, place = message.error(), (message.topic(), message.partition())
            if error is None:
                messages.append(message)
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                end = message.offset() + (error is None)
                self._reached[place] = max(self._reached.get(place, 0), end)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise RecensionError(_describe_gap(place, self._reached[place], *self.ends(place)))
            elif error.fatal() or not (error.retriable() or error.code() in _PASSING):
                where = describe_place(place) if place[0] else "the broker"
                raise RecensionError(f"{where}: {_describe(error)}")
        return messages


# The client tries again by itself.
_PASSING: Final = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)


class Sender:
    """Messages to topics: each partition gets its own in the order in which they are sent."""

    def __init__(self, config: Config, run: str) -> None:
        self._run, self._failure = run, ""
        own = {key: value for key, value in config.items() if key != "group.id"}
        self._producer = Producer({**own, **_WRITING, "on_delivery": self._note}, logger=log)

    def _note(self, error: Any, message: Message) -> None:
        if error is not None and not self._failure:
            self._failure = f"{describe_place((message.topic(), message.partition()))}: {_describe(error)}"

    def send(self, record: BatchRecord) -> None:
        """Send the messages of a batch. They carry the run, the batch and their numbers in it."""
        numbers = [(RUN, self._run.encode()), (BATCH, str(record.number).encode())]
        columns = [record.messages[name].to_pylist() for name in record.messages.column_names]
        for topic, partition, key, value, seq, extra in zip(*columns, strict=True):
            headers = [*numbers, (SEQ, str(seq).encode())] if seq is not None else []
            headers += [(header["name"], header["value"]) for header in extra or ()]
            where = {} if partition is None else {"partition": partition}
            while True:
                try:
                    self._producer.produce(topic, value=value, key=key, headers=headers, **where)
                    break
                except BufferError:  # the client has as many as it takes
                    self._producer.poll(_MOMENT)
                    self._require_delivery()
        self._producer.poll(0)
        self._require_delivery()

    def has_delivered(self) -> bool:
        """Has all that was sent arrived?"""
        return not len(self._producer) and not self._failure

    def flush(self) -> None:
        """Wait until all that was sent has arrived."""
        while self._producer.flush(1) and not self._failure:
            pass
        self._require_delivery()

    def close(self) -> None:
        """Leave the broker; what has not arrived yet is not sent any more."""
        self._producer.purge()
        self._producer.flush(0)

    def _require_delivery(self) -> None:
        if self._failure:
            raise RecensionError(f"{self._failure}: messages were not delivered; start the service again")


def describe_place(place: Sequence[Any]) -> str:
    """A partition, or an offset in it, for messages."""
    return ", ".join(
        f"{what} {value}" for what, value in zip(("topic", "partition", "offset"), place, strict=False)
    )


def _describe(error: Any) -> str:
    text = str(error.str() if hasattr(error, "str") else error)
    return text[:1].lower() + text[1:].rstrip(".")


def _describe_gap(place: TopicPartition, offset: int, low: int, high: int) -> str:
    return (
        f"{describe_place(place)}: the service has read up to offset {offset}, and the topic has {low} to "
        f"{high}: it was made anew, or its retention is too short; start with a new folder"
    )
