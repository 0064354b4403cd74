"""What a step of the gate is: it looks at rows and changes nothing; what it gives back takes them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from recension.core.batch import EventBatch, Index
from recension.core.records import record
from recension.core.rows import Origin, Rows
from recension.core.validity import DroppedElements
from recension.gate.partition_state import Heard

IntoPartition: TypeAlias = Any
"""A value, a tuple of values, a list of these for the elements of a list, or a `Placement`."""
TakeOver: TypeAlias = Callable[[EventBatch], EventBatch]
"""Remembers what was judged, and gives the elements as they go on to the next step."""
CountByPartition: TypeAlias = Callable[[str, Index], None]
"""Takes the number of rows of each partition that were dropped or moved, and the reason."""
Verdict: TypeAlias = tuple[Rows, TakeOver | None]


@record
class Arrival:
    """Of what partition data is, and when it comes: ``now`` by the clock of the session.

    ``promise`` is a CTI for all partitions. A shard has ``heard`` of the rows of all shards.
    """

    partition: IntoPartition | None = None
    now: int = 0
    promise: int | None = None
    heard: Heard | None = None
    origin: Origin | None = None
    """Where the rows of a table come from, if somebody knows it better than that they were pushed."""

    @property
    def counts_ctis(self) -> bool:
        """Are CTIs that are left out counted here? Else another shard does it."""
        return self.heard is None or self.heard.counts_ctis


class Step(DroppedElements):
    """One concern of the gate, with what it remembers, and what it dropped, counted by reason.

    A step knows what came before it only by the rows it is given.
    """

    def judge(self, rows: Rows, arrival: Arrival) -> Verdict:
        """The rows that go on, and what takes them in; the first fault is an error. Nothing changes."""
        raise NotImplementedError

    def forget_before(self, t: int) -> None:
        """Changes to events that ended before ``t`` have no effect: they need not be checked."""

    def state_rows(self) -> int:
        """How many events it remembers."""
        return 0

    def state_bytes(self) -> int:
        """How much memory they take."""
        return 0

    def snapshot(self) -> dict[str, pa.Table]:
        """What it remembers; counts are not part of it."""
        return {}

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Become what `snapshot` gave."""
