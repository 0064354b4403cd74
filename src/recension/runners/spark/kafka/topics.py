"""What the driver asks a broker, through the Java client that Spark's Kafka connector brings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from recension.core.errors import RecensionError, first_line
from recension.core.formats.columns import BATCH, RUN
from recension.runners.spark.session import is_connect

SETTING: Final = "kafka."
SERVERS: Final = f"{SETTING}bootstrap.servers"
_PATIENCE: Final = "30000"  # milliseconds
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
_DEFAULT: Final = 1_048_588
_BYTES: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


class Topics:
    """The topics of a broker. ``options`` are those of Spark's connector."""

    def __init__(self, spark: SparkSession, servers: str, options: Mapping[str, str]) -> None:
        if is_connect(spark):
            raise RecensionError(
                "read_kafka and write_kafka need a classic session, made by rc.spark.session(): a session of "
                "Spark Connect has no Java client that asks the broker for a topic's partitions"
            )
        self._jvm: Any = spark._jvm
        self._servers = servers
        if isinstance(self._jvm.org.apache.kafka.clients.admin.AdminClient, JavaPackage):
            raise RecensionError(
                "this Spark session has no Kafka connector: name its jars when the session is made, as in "
                "rc.spark.session(spark__jars=...); the guide on Kafka lists them"
            )
        self._settings: dict[str, str] = {
            "bootstrap.servers": servers,
            "default.api.timeout.ms": _PATIENCE,
            "request.timeout.ms": "20000",
            **{key.removeprefix(SETTING): value for key, value in options.items() if key.startswith(SETTING)},
        }
        self._admin: Any = None

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has now."""
        return int(self._describe(topic).partitions().size())

    def id(self, topic: str) -> str | None:
        """The id of a topic: one that is deleted and made anew has another. Old brokers give none."""
        found = str(self._describe(topic).topicId())
        return None if found == _NO_ID else found

    def _describe(self, topic: str) -> Any:
        with self._errors(topic):
            names = self._jvm.java.util.ArrayList()
            names.add(topic)
            return self._client().describeTopics(names).topicNameValues().get(topic).get()

    def longest(self, topic: str) -> int:
        """The longest batch of messages, in bytes, that a topic takes; its default if it may not be asked."""
        config = self._jvm.org.apache.kafka.common.config
        asked = config.ConfigResource(getattr(config, "ConfigResource$Type").TOPIC, topic)
        names = self._jvm.java.util.ArrayList()
        names.add(asked)
        try:
            with self._errors(topic):
                told = self._client().describeConfigs(names).all().get().get(asked)
                return int(told.get("max.message.bytes").value())
        except RecensionError as why:
            if "AuthorizationException" in str(why):
                return _DEFAULT
            raise

    def close(self) -> None:
        """Leave the broker."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _client(self) -> Any:
        if self._admin is None:
            self._admin = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(self._map({}))
        return self._admin

    def highest_batch(self, topic: str, run: str) -> tuple[int | None, list[int]]:
        """The highest micro-batch of a run among the last messages of the topic's partitions.

        And the partitions whose last message is of another run: what they have of this one is not known.
        """
        places = self._jvm.java.util.ArrayList()
        for partition in range(self.partitions(topic)):
            places.add(self._jvm.org.apache.kafka.common.TopicPartition(topic, partition))
        deserializers = {"key.deserializer": _BYTES, "value.deserializer": _BYTES}
        with self._errors(topic):
            consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self._map(deserializers))
            try:
                return self._find_highest(consumer, places, run)
            finally:
                consumer.close()

    def _find_highest(self, consumer: Any, places: Any, run: str) -> tuple[int | None, list[int]]:
        first, last = consumer.beginningOffsets(places), consumer.endOffsets(places)
        consumer.assign(places)
        waited = {place for place in last if last[place] > first[place]}
        for place in last:
            consumer.seek(place, max(last[place] - 1, 0))
        found, others = list[int](), list[int]()
        # What was removed between the two questions never comes.
        for _ in range(30):
            if not waited:
                break
            records = consumer.poll(self._jvm.java.time.Duration.ofSeconds(1)).iterator()
            while records.hasNext():
                record = records.next()
                waited = {place for place in waited if place.partition() != record.partition()}
                headers = {header.key(): header.value() for header in record.headers().toArray()}
                if headers.get(RUN) is not None and bytes(headers[RUN]).decode() == run:
                    found.append(int(bytes(headers[BATCH])))
                else:
                    others.append(int(record.partition()))
        return max(found, default=None), others

    def _map(self, more: Mapping[str, str]) -> Any:
        made = self._jvm.java.util.HashMap()
        for key, value in {**self._settings, **more}.items():
            made.put(key, value)
        return made

    @contextmanager
    def _errors(self, topic: str) -> Iterator[None]:
        """Errors of the client become one line."""
        try:
            yield
        except Py4JJavaError as why:
            cause = why.java_exception.getCause() or why.java_exception
            name = cause.getClass().getSimpleName()
            if name == "UnknownTopicOrPartitionException":
                reason = f"no topic {topic!r} at {self._servers}: create it first"
            else:
                reason = f"topic {topic}: {self._servers} does not answer: {name}: {first_line_of(cause)}"
            raise RecensionError(reason) from None


def first_line_of(cause: Any) -> str:
    """The first line of what a Java exception says."""
    return first_line(Exception(str(cause.getMessage() or "no reason given")))
