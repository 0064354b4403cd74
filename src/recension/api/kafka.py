"""Sessions over Kafka without Spark: `rc.kafka`, loaded when it is first named."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from recension.core.errors import RecensionError, TimeError, suggest_name
from recension.core.ticks import DurationLike, duration
from recension.core.wall_clock import Clock, now
from recension.runners.kafka.output import OutputTopic
from recension.runners.kafka.service import InputTopic, Service
from recension.runners.local import Session

__all__ = ["InputTopic", "OutputTopic", "Service", "service"]

IntoInput: TypeAlias = str | InputTopic
IntoOutput: TypeAlias = str | OutputTopic


def service(
    session: Session,
    config: str | Mapping[str, Any],
    *,
    inputs: Mapping[str, IntoInput],
    outputs: IntoOutput | Mapping[str, IntoOutput] | None = None,
    folder: str | PathLike[str],
    snapshot_every: DurationLike = "1m",
    wait: DurationLike = "100ms",
    batch_size: int = 10_000,
    clock: Clock = now,
) -> Service:
    """A service that feeds a session from topics and writes its answers to topics; it survives a kill.

    Parameters
    ----------
    session
        A session that nothing else uses. Push the rows of `rc.table` sources before.
    config
        The broker's address, or settings of librdkafka, such as ``{"bootstrap.servers": …,
        "security.protocol": …}``. With a ``group.id`` the offsets are committed under it at each snapshot,
        for tools that watch lags; the service itself reads them from its folder.
    inputs
        For each source by name a topic, or an `InputTopic` with more options.
    outputs
        For each query by name a topic, or an `OutputTopic`; for a session with one query, the topic alone. A
        query without a topic still has its history in the session.
    folder
        Where the state is kept, on a disk of this machine. A new service over the same folder continues where
        the last one stopped.
    snapshot_every
        How often the state is written. After a kill, the messages since then are read again.
    wait
        How long `poll` waits for messages.
    batch_size
        The largest number of messages in a batch.
    clock
        Returns microseconds since 1970, for queries and sources that use the wall clock.
    """
    settings = {"bootstrap.servers": config} if isinstance(config, str) else dict(config)
    if not isinstance(session, Session):
        raise RecensionError("kafka.service: give it a session first, such as rc.session(stream)")
    if not inputs:
        raise RecensionError("kafka.service: inputs= names a topic for each source")
    if batch_size < 1:
        raise RecensionError(f"kafka.service: batch_size is a number of messages from 1, not {batch_size}")
    given = {s: InputTopic(t) if isinstance(t, str) else t for s, t in inputs.items()}
    written = _outputs(session, outputs)
    return Service(
        session,
        settings,
        given,
        written,
        Path(folder),
        snapshot_every=_length(snapshot_every, "snapshot_every"),
        wait=_length(wait, "wait"),
        batch_size=batch_size,
        clock=clock,
    )


def _outputs(
    session: Session, outputs: IntoOutput | Mapping[str, IntoOutput] | None
) -> dict[str, OutputTopic]:
    if outputs is None:
        return {}
    queries = list(session.plan.queries)
    if isinstance(outputs, str | OutputTopic):
        if len(queries) > 1:
            raise RecensionError(
                f"kafka.service: the session runs {', '.join(queries)}: outputs= names a topic for each"
            )
        outputs = {queries[0]: outputs}
    for query in outputs:
        if query not in queries:
            known = ", ".join(queries)
            raise RecensionError(
                f"kafka.service: no query {query!r}{suggest_name(query, queries)}; the session runs {known}"
            )
    made = {query: OutputTopic(t) if isinstance(t, str) else t for query, t in outputs.items()}
    if len({topic.name for topic in made.values()}) < len(made):
        raise RecensionError("kafka.service: each query needs an output topic of its own")
    return made


def _length(given: DurationLike, name: str) -> int:
    try:
        length = duration(given)
    except TimeError as why:
        raise TimeError(f"kafka.service: {name}: {why}") from None
    if length <= 0:
        raise TimeError(f"kafka.service: {name} is a length of time above 0, not {given!r}")
    return length
