"""What travels between the stages of a pipeline: one row that holds many events.

Rows crossing between Spark and Python cost by their number, bytes hardly matter: so a stage sends each
shard of the next one packet with the events for it, and in it the promise that goes with them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from recension.core.ticks import BEGINNING

# Packets that are for the end of the pipeline rather than for a fragment.
OUTPUT: Final = -1
METRICS: Final = -2
# What is not wanted any more, for the engines themselves.
FEEDBACK: Final = -3


class Packet(NamedTuple):
    """Events for a shard, or word that none came."""

    shard: int
    """The key by which Spark sends it to its partition."""
    edge: int
    """The number of the edge it travels on; or OUTPUT, METRICS."""
    place: str = ""
    """Where its events stand among all of this edge: a file, or the number of a shard."""
    first: int = 0
    """Where they stand in that place; at the end, the number of the query they answer."""
    blob: bytes | None = None
    cti: int = BEGINNING
    """What the sender promises now; from a source, the latest start its task has seen."""
    previous: int = BEGINNING
    """At the end: what the sender had promised before."""
    info: str = ""
    """Counts, as JSON."""


DDL: Final = (
    "shard int, edge int, place string, first long, blob binary, cti long, previous long, info string"
)
