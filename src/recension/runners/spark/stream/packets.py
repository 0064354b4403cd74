"""What travels between the stages of a pipeline: one row that holds many events.

Rows crossing between Spark and Python cost by their number, bytes hardly matter: so a stage sends each
shard of the next one packet with the events for it, and in it the promise that goes with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from recension.core.batch import EventBatch
from recension.core.ticks import BEGINNING
from recension.runners.spark.stream.blobs import events_of, rows_of, to_blob

# Columns that travel beside events: the row of a file each came from, and what puts them in order.
ROW: Final = "_row"
ORDER: Final = "_order"
# Packets that are for the end of the pipeline rather than for a fragment.
OUTPUT: Final = -1
METRICS: Final = -2
# What is not wanted any more, for the engines themselves.
FEEDBACK: Final = -3


class Contents(NamedTuple):
    """Events, and columns that travel beside them."""

    events: EventBatch
    beside: Mapping[str, pa.Array]


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
    blob: bytes | Contents | None = None
    """The events, as bytes when they travel. A source's packet with a place and none says: read that file."""
    cti: int = BEGINNING
    """What the sender promises now; from a source, the latest start its task has seen."""
    previous: int = BEGINNING
    """At the end: what the sender had promised before."""
    info: str = ""
    """Counts, as JSON."""

    def sealed(self) -> Packet:
        """As it travels."""
        return self._replace(blob=to_blob(*self.blob)) if isinstance(self.blob, Contents) else self

    def opened(self, schema: pa.Schema) -> Contents:
        """What it holds; ``schema`` is that of the events' payload."""
        assert self.blob is not None
        if isinstance(self.blob, Contents):
            return self.blob
        rows = rows_of(self.blob)
        beside = {n: rows.column(n) for n in rows.schema.names if n == ROW or n.startswith(ORDER)}
        return Contents(events_of(rows, schema), beside)


DDL: Final = (
    "shard int, edge int, place string, first long, blob binary, cti long, previous long, info string"
)
