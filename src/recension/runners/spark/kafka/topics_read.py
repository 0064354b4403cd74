"""Which topics a stream reads, as its plan says: that they are still the same, and not what it writes.

A checkpoint has a file with the id of each. A topic that was deleted and made anew has another id; Spark
itself would go on in it at the old offsets, if it is long enough.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

from recension.core.errors import RecensionError
from recension.runners.spark.kafka.topics import SERVERS, SETTING, Topics
from recension.runners.spark.session import is_connect
from recension.runners.spark.sinks.checkpoint import CheckpointFiles

NAME: Final = "recension.topics.json"


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """What one source of a stream reads."""

    servers: str
    names: tuple[str, ...]
    options: dict[str, str]


def topics_read(sdf: DataFrame) -> list[TopicsRead]:
    """Of each Kafka source of a stream that names its topics."""
    return [] if is_connect(sdf.sparkSession) else list(_find(sdf))


def _find(sdf: DataFrame) -> Iterator[TopicsRead]:
    leaves = sdf._jdf.queryExecution().analyzed().collectLeaves()
    for at in range(leaves.size()):
        leaf = leaves.apply(at)
        if leaf.getClass().getSimpleName() != "StreamingRelationV2" or leaf.sourceName() != "kafka":
            continue
        given: Any = leaf.extraOptions().asCaseSensitiveMap()
        options = {str(key): str(given[key]) for key in given}
        by_name = {key.lower(): value for key, value in options.items()}
        names, servers = by_name.get("subscribe"), by_name.get(SERVERS)
        if names and servers:
            kafka = {key: value for key, value in options.items() if key.startswith(SETTING)}
            yield TopicsRead(servers, tuple(name.strip() for name in names.split(",")), kafka)


def require_same_topics(sdf: DataFrame, files: CheckpointFiles) -> None:
    """Refuse a checkpoint whose offsets are of other topics of these names; note the ids of new ones."""
    if not (found := topics_read(sdf)):
        return
    text = files.text(NAME)
    known: dict[str, str] = {} if text is None else json.loads(text)
    now = dict(known)
    for name, topic in _ids(sdf, found):
        if now.setdefault(name, topic) != topic:
            raise RecensionError(
                f"topic {name} was deleted and made anew: its id is {topic}, and was {now[name]}; the "
                "checkpoint's offsets mean nothing in it: start with a new checkpoint and new tables"
            )
    if now != known:
        files.put(NAME, json.dumps(now))


def _ids(sdf: DataFrame, found: list[TopicsRead]) -> Iterator[tuple[str, str]]:
    """The id of each topic, as far as brokers tell them; a topic that is read twice is asked for once."""
    asked = {(one.servers, name): one.options for one in found for name in one.names}
    for (servers, name), options in asked.items():
        topics = Topics(sdf.sparkSession, servers, options)
        try:
            topic = topics.id(name)
        finally:
            topics.close()
        if topic is not None:
            yield name, topic


def refuse_loop(sdf: DataFrame, servers: str, topic: str) -> None:
    """Refuse to write to a topic that the stream reads."""
    addresses = set(servers.split(","))
    for one in topics_read(sdf):
        if topic in one.names and addresses & set(one.servers.split(",")):
            raise RecensionError(
                f"topic {topic}: this query reads it, and would read what it writes, for ever: write to "
                "another topic"
            )
