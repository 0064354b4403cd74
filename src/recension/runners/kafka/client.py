"""What comes from topics, and what goes there.

A service reads every partition of its topics itself, at the offsets that it keeps: there is no group that
gives partitions away. Offsets that the broker has no longer, or not yet, are an error: nothing is left out in
silence.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from recension.core.errors import RecensionError, suggest_name
from recension.core.formats.columns import BATCH, RUN, SEQ
from recension.runners.kafka.journal import BatchRecord, Ranges, TopicPartition

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
    from confluent_kafka import TopicPartition as Place
except ImportError:
    raise RecensionError("rc.kafka needs confluent-kafka: pip install 'recension[kafka]'") from None

from recension.runners.kafka.patience import PATIENCE, ask, describe_error, is_passing
from recension.runners.kafka.topic_facts import TopicFacts

log = logging.getLogger("recension")

__all__ = ["Fetcher", "Message", "Sender", "Start"]

Config: TypeAlias = Mapping[str, Any]
Start: TypeAlias = Literal["earliest", "latest"]
_MOMENT: Final = 0.1
_AT_ONCE: Final = 10_000
_READING: Final = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}
# What librdkafka takes as a size, and how long its batches are by default.
_LEAST: Final = 1_000
_MOST: Final = 1_000_000_000
_BATCH: Final = 1_000_000
_WRITING: Final = {"enable.idempotence": True, "delivery.report.only.error": True, "linger.ms": 5}


class Fetcher:
    """The messages of all partitions of some topics, in the order of each partition."""

    def __init__(self, config: Config) -> None:
        settings = {**config, **_READING, "group.id": config.get("group.id", "recension")}
        self._consumer = Consumer(settings, logger=log)
        self.facts = TopicFacts(config)
        self._ahead: dict[TopicPartition, deque[Message]] = {}
        # The first offset that may still come, as far as the broker has said.
        self._reached: dict[TopicPartition, int] = {}

    def close(self) -> None:
        """Leave the broker."""
        self.facts.close()
        self._consumer.close()

    def cluster(self) -> str:
        """The name of the cluster; offsets mean nothing in another one."""
        return str(self._list().cluster_id)

    def partitions(self, topic: str) -> list[int]:
        """The partitions that a topic has now."""

        def listed_topics() -> Any:
            listed = self._list().topics
            for one in [listed[topic], *listed[topic].partitions.values()] if topic in listed else []:
                if one.error is not None and is_passing(one.error):
                    raise KafkaException(one.error)
            return listed

        try:
            listed = ask(listed_topics)
        except KafkaException as why:
            raise RecensionError(f"topic {topic}: {describe_error(why.args[0])}") from None
        found = listed.get(topic)
        if found is None or found.error is not None:
            near = suggest_name(topic, [name for name in listed if not name.startswith("__")])
            raise RecensionError(f"no topic {topic!r}{near} at the broker")
        return sorted(found.partitions)

    def _list(self) -> Any:
        try:
            return self._consumer.list_topics(timeout=PATIENCE)
        except KafkaException as why:
            raise RecensionError(f"the broker does not answer: {describe_error(why.args[0])}") from None

    def first_offset(self, place: TopicPartition, start: Start) -> int:
        """The offset of the first message to read of a partition."""
        low, high = self.ends(place)
        return low if start == "earliest" else high

    def ends(self, place: TopicPartition) -> tuple[int, int]:
        """The first offset that a partition has now, and the one after the last."""
        try:
            low, high = ask(lambda: self._consumer.get_watermark_offsets(Place(*place), timeout=PATIENCE))
        except KafkaException as why:
            raise RecensionError(f"{describe_place(place)}: {describe_error(why.args[0])}") from None
        return int(low), int(high)

    def highest_batch(self, topic: str, run: str, since: Mapping[TopicPartition, int]) -> int:
        """The highest batch of a run in a topic; 0 if there is none.

        In a partition whose last message is of the run it is that one's. Else another run wrote last, and all
        messages from ``since`` on are read.
        """
        ends = {(topic, partition): self.ends((topic, partition)) for partition in self.partitions(topic)}
        last = {place: (high - 1, high) for place, (low, high) in ends.items() if high > low}
        found = dict(self._batches_of(run, last))
        others = {place: (max(ends[place][0], since.get(place, 0)), ends[place][1]) for place in last}
        spans = {place: span for place, span in others.items() if place not in found and span[0] < span[1]}
        return max([0, *found.values(), *(batch for _, batch in self._batches_of(run, spans))])

    def _batches_of(self, run: str, spans: Ranges) -> Iterator[tuple[TopicPartition, int]]:
        """The batch of each message of a run between these offsets."""
        waiting = dict(spans)
        places = [Place(*place, first) for place, (first, _) in spans.items()]
        self._consumer.incremental_assign(places)
        limit = time.monotonic() + PATIENCE
        while waiting and time.monotonic() < limit:
            for message in self._consume(_AT_ONCE, _MOMENT):
                limit = time.monotonic() + PATIENCE
                headers = dict(message.headers() or ())
                if headers.get(RUN) == run.encode():
                    yield (message.topic(), message.partition()), int(headers[BATCH])
            waiting = {at: span for at, span in waiting.items() if self._reached.get(at, 0) < span[1]}
        self._consumer.incremental_unassign(places)
        for place in spans:
            self._reached.pop(place, None)
        if waiting:
            (topic, _), *_ = waiting
            raise RecensionError(f"topic {topic}: its last messages do not come: is the broker there?")

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
        taken, limit = list[Message](), time.monotonic() + PATIENCE
        for place, (_, end) in ranges.items():
            held = self._ahead[place]
            while True:
                while held and held[0].offset() < end:
                    taken.append(held.popleft())
                if held or self._reached[place] >= end:
                    break
                for message in self._consume(_AT_ONCE, _MOMENT):
                    self._ahead[message.topic(), message.partition()].append(message)
                    limit = time.monotonic() + PATIENCE
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
            raise RecensionError(f"offsets cannot be committed: {describe_error(why.args[0])}") from None

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
            elif not is_passing(error):
                where = describe_place(place) if place[0] else "the broker"
                raise RecensionError(f"{where}: {describe_error(error)}")
        return messages


class Sender:
    """Messages to topics: each partition gets its own in the order in which they are sent.

    ``limits`` are the longest messages that the topics take. The client's own limits are set to fit, unless
    the user has set them.
    """

    def __init__(self, config: Config, run: str, limits: Mapping[str, int]) -> None:
        self._run, self._failure = run, ""
        own = {key: value for key, value in config.items() if key != "group.id"}
        settings = {**_sizes(limits), **own, **_WRITING, "on_delivery": self._note}
        self._producer = Producer(settings, logger=log)

    def _note(self, error: Any, message: Message) -> None:
        if error is not None and not self._failure:
            self._failure = _describe_refusal((message.topic(), message.partition()), error)

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
                except KafkaException as why:
                    place = (topic,) if partition is None else (topic, partition)
                    size = f" (batch {record.number}, {len(value or b'')} bytes)"
                    raise RecensionError(_describe_refusal(place, why.args[0], size)) from None
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


def _sizes(limits: Mapping[str, int]) -> dict[str, int]:
    """Settings by which the client takes what the topics take, and sends no batch that one refuses."""
    if not limits:
        return {}
    longest, shortest = max(limits.values()), min(limits.values())
    return {"message.max.bytes": _within(longest), "batch.size": min(_BATCH, _within(shortest))}


def _within(size: int) -> int:
    return min(max(size, _LEAST), _MOST)


def _describe_refusal(place: Sequence[Any], error: Any, what: str = "") -> str:
    """Why a message did not arrive, and what to do."""
    reason = f"{describe_place(place)}: {describe_error(error)}{what}"
    if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE):
        reason += (
            "; raise the topic's max.message.bytes, and message.max.bytes if the client's settings have it"
        )
    return reason


def describe_place(place: Sequence[Any]) -> str:
    """A partition, or an offset in it, for messages."""
    return ", ".join(
        f"{what} {value}" for what, value in zip(("topic", "partition", "offset"), place, strict=False)
    )


def _describe_gap(place: TopicPartition, offset: int, low: int, high: int) -> str:
    return (
        f"{describe_place(place)}: the service has read up to offset {offset}, and the topic has {low} to "
        f"{high}: it was made anew, or its retention is too short; start with a new folder"
    )
