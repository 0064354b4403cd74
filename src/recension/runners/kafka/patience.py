"""Asks a broker, and asks again for a while where the answer is that it is not ready.

After a broker has started, partitions have no leader for some seconds: that passes. What does not pass is
raised as the client says it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

T = TypeVar("T")
PATIENCE: Final = 30.0
_PAUSE: Final = 0.2
# The client tries again by itself, or has to be asked again.
_PASSING: Final = frozenset(
    getattr(KafkaError, name)
    for name in (
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_TIMED_OUT",
        "_TRANSPORT",
        "_WAIT_COORD",
        "BROKER_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "NOT_LEADER_FOR_PARTITION",
        "OFFSET_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "UNKNOWN_LEADER_EPOCH",
    )
)


def is_passing(error: Any) -> bool:
    """Does it help to wait?"""
    return not error.fatal() and (error.retriable() or error.code() in _PASSING)


def ask(question: Callable[[], T], seconds: float | None = None) -> T:
    """The answer to a question; it is asked again, for so long, while the broker is not ready."""
    limit = time.monotonic() + (PATIENCE if seconds is None else seconds)
    while True:
        try:
            return question()
        except KafkaException as why:
            if not is_passing(why.args[0]) or time.monotonic() >= limit:
                raise
        time.sleep(_PAUSE)


def describe_error(error: Any) -> str:
    """What the client says, as part of a line."""
    text = str(error.str() if hasattr(error, "str") else error)
    return text[:1].lower() + text[1:].rstrip(".")
