"""Aggregates made in parts: in every shard of whatever events are there, then for all of them.

Sums (count, sum, mean) pass what changes in their accumulators: `PartialSums`, then `CombinedAggregate` or
`CombinedWindowAggregate`. Of min and max the parts are answers: `PartialAggregate`, `PartialWindowAggregate`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from recension.plan.aggregate import AggregateNode, SnapshotAggregate
from recension.plan.node import Names, Node
from recension.plan.properties import Properties
from recension.plan.schemas import name_apart
from recension.plan.windows import WindowAggregate, Windows

_CHANGES = {
    **dict.fromkeys(("at", "refs", "cover", "n"), pa.int64()),
    "ints": pa.list_(pa.int64()),
    "floats": pa.list_(pa.float64()),
}


class OfOnePart(AggregateNode):
    """An aggregate of whatever events a shard has."""

    is_spread = True

    @property
    def label(self) -> str:
        return f"partial {super().label}"

    def needs(self) -> None:
        return None


@dataclass(frozen=True, eq=False)
class PartialAggregate(OfOnePart, SnapshotAggregate):
    """Per snapshot of a shard's events."""


@dataclass(frozen=True, eq=False)
class PartialWindowAggregate(OfOnePart, WindowAggregate):
    """Per window."""


@dataclass(frozen=True, eq=False)
class PartialSums(OfOnePart):
    """What a shard's events change in the sums of windows, or of snapshots: the keys, then the changes.

    How many sums there are the operators know; so they are lists.
    """

    windows: Windows | None

    named_times = ()

    @property
    def label(self) -> str:
        return super().label if self.windows is None else f"{super().label}, {self.windows}"

    @property
    def answers(self) -> pa.Schema:
        """The columns of the answers that are made of it."""
        return super().derive_schema()

    def derive_schema(self) -> pa.Schema:
        keys = [self.answers.field(name) for name, _ in self.keys]
        taken = {field.name for field in keys}
        return pa.schema([*keys, *((name_apart(name, taken), kind) for name, kind in _CHANGES.items())])

    def derive_properties(self) -> Properties:
        """Those of the events: only the other half of the aggregate reads it, and asks for these."""
        return self.input.properties

    def columns_read(self, needed: Names) -> list[Names]:
        return super().columns_read(frozenset(self.answers.names))

    def without_unread(self, needed: Names) -> Node:
        return self


class OfAllParts(AggregateNode):
    """The answers, of what the parts have changed. ``events`` are the columns of the events."""

    events: pa.Schema

    @property
    def event_schema(self) -> pa.Schema:
        return self.events

    def columns_read(self, needed: Names) -> list[Names]:
        return self.all_columns(needed)

    def without_unread(self, needed: Names) -> Node:
        return self


@dataclass(frozen=True, eq=False)
class CombinedAggregate(OfAllParts, SnapshotAggregate):
    """Per snapshot of all events."""

    events: pa.Schema


@dataclass(frozen=True, eq=False)
class CombinedWindowAggregate(OfAllParts, WindowAggregate):
    """Per window."""

    events: pa.Schema
