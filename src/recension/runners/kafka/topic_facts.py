"""What a broker says of topics by name: which topic it is, and how long a message it takes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource

from recension.core.errors import RecensionError
from recension.runners.kafka.patience import PATIENCE, ask, describe_error

log = logging.getLogger("recension")

# A topic that has just been made is not known everywhere at once.
_MOMENT: Final = 5.0
_PAUSE: Final = 0.1
_SIZE: Final = "max.message.bytes"
# A broker that is too old says this of every topic, and so names none.
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
_FORBIDDEN: Final = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


class TopicFacts:
    """Asked by the client for administration, which changes nothing here."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        own = {key: value for key, value in config.items() if key != "group.id"}
        self._admin: Any = AdminClient(own, logger=log)

    def close(self) -> None:
        """Leave the broker: the client has no other end than to be forgotten."""
        self._admin = None

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The id of each topic: one that was deleted and made anew has another. Old brokers give none."""
        found = {name: self._id(name) for name in sorted(set(topics))}
        return {name: one for name, one in found.items() if one is not None}

    def _id(self, name: str) -> str | None:
        limit = time.monotonic() + _MOMENT
        while True:
            try:
                told = ask(lambda: self._describe(name))
            except KafkaException as why:
                error = why.args[0]
                if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and time.monotonic() < limit:
                    time.sleep(_PAUSE)
                    continue
                if error.code() == KafkaError._UNSUPPORTED_FEATURE:
                    return None
                raise RecensionError(f"topic {name}: {describe_error(error)}") from None
            one = str(told.topic_id).rstrip("=")
            return None if one == _NO_ID else one

    def _describe(self, name: str) -> Any:
        asked = self._admin.describe_topics(TopicCollection([name]), request_timeout=PATIENCE)
        return asked[name].result()

    def limits(self, topics: Iterable[str]) -> dict[str, int]:
        """The longest batch of messages, in bytes, that each topic takes, where the broker tells it."""
        found = {name: self._limit(name) for name in sorted(set(topics))}
        return {name: size for name, size in found.items() if size is not None}

    def _limit(self, name: str) -> int | None:
        asked = ConfigResource(ConfigResource.Type.TOPIC, name)

        def question() -> Any:
            (told,) = self._admin.describe_configs([asked], request_timeout=PATIENCE).values()
            return told.result()

        try:
            return int(ask(question)[_SIZE].value)
        except KafkaException as why:
            error = why.args[0]
            if error.code() in (*_FORBIDDEN, KafkaError.UNKNOWN_TOPIC_OR_PART):
                return None
            raise RecensionError(f"topic {name}: {describe_error(error)}") from None
