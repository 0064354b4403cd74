"""What the session and its workers say to each other, a round for each level of fragments.

All workers get the rows of a source, with the shard of each row, and take their own: that is less work for
the session than to cut them up. What fragments send each other comes in packets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from recension.core.batch import EventBatch
from recension.core.time_kind import TimeKind
from recension.runners.exchange.clocks import Addressed
from recension.runners.exchange.packets import Packet


class SourceRows(NamedTuple):
    """What a source gives in a step."""

    events: EventBatch | None
    cti: int | None
    has_external: bool
    addressed: Mapping[int, Addressed]
    """By the number of an edge, where the events go."""


class Round(NamedTuple):
    """One level of a step."""

    level: int
    kind: TimeKind
    rows: SourceRows | None


class Output(NamedTuple):
    """What a shard gives of a query."""

    query: int
    cti: int
    batches: Sequence[EventBatch]


@dataclass(slots=True)
class Answer:
    """What a shard gives in a round, and what the session must know of it."""

    outputs: list[Output] = field(default_factory=list)
    packets: list[Packet] = field(default_factory=list)
    no_effect_before: dict[int, int] = field(default_factory=dict)
    """By the number of an edge from a source, see `Operator.no_effect_before`."""
    counters: dict[int, list[tuple[str, tuple[Any, ...]]]] = field(default_factory=dict)
    """By fragment, what its operators have counted, with their names."""
    dropped: dict[str, list[tuple[str, EventBatch]]] = field(default_factory=dict)
