"""Facts: readings that hold until the next one (edges), and equal facts made one (coalescing)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.equivalences import Equivalence
from recension.plan.expressions import require_columns
from recension.plan.node import FilterRule, Names, Needs, Node, TimedNode, columns_named
from recension.plan.properties import Properties
from recension.plan.span import indistinct_columns


@dataclass(frozen=True, eq=False)
class Coalesce(TimedNode):
    """The group and ``on`` columns with maximal lifetimes, each at every instant once.

    With an ``equivalence``, one event for each run of events of a group, by start. An event extends the run
    if it is equivalent to the event before it and starts before the run has ended. The run has the first
    values. Two events of a group that start together have no order and are refused.
    """

    input: Node
    on: tuple[str, ...]
    group_by: tuple[str, ...] = ()
    equivalence: Equivalence | None = None

    ignores_ctis = True
    named_times = ()

    @property
    def query(self) -> Coalescing:
        """What it asks."""
        return Coalescing(self.on, self.group_by, self.equivalence)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a fact."""
        return self.query.columns

    @property
    def label(self) -> str:
        return f"coalesce {self.query}"

    def derive_schema(self) -> pa.Schema:
        return self.query.facts(self.input.schema)

    def derive_properties(self) -> Properties:
        """No two facts that are equal, and no two runs of a group, start together.

        Even inserts alone make it lengthen what it has shown.
        """
        return Properties(has_key=True)

    def needs(self) -> Needs:
        """Equal facts together; with an equivalence, whole groups."""
        return (columns_named(self.columns if self.equivalence is None else self.group_by),)

    def kept_columns(self) -> Mapping[str, str]:
        """Facts that become one are of the same group."""
        return {name: name for name in self.group_by}

    def columns_read(self, needed: Names) -> list[Names]:
        return [frozenset(self.columns)]

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        """Those that keep or drop whole groups."""
        return (FilterRule(indistinct_columns(self.schema, self.group_by)),)

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        return replace(self, input=inputs[0], group_by=(*keys, *self.group_by))


@dataclass(frozen=True)
class Coalescing:
    """One query, with the expected probabilities that its readings coalesce and come late."""

    on: tuple[str, ...]
    group_by: tuple[str, ...] = ()
    equivalence: Equivalence | None = None
    expected: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for share in self.expected or ():
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                raise SchemaError(
                    f"coalescing: probabilities (cp, oop) lie between 0 and 1, not {self.expected!r}"
                )

    def __str__(self) -> str:
        by = f" by {', '.join(self.group_by)}" if self.group_by else ""
        like = f", {self.equivalence}" if self.equivalence else ""
        return f"{', '.join(self.on)}{by}{like}"

    @property
    def question(self) -> tuple[object, ...]:
        """The identity of the query: equal ones are run once (coalescing ruling 35)."""
        return self.on, self.group_by, self.equivalence

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a fact: the group's, then the values."""
        return (*self.group_by, *(name for name in self.on if name not in self.group_by))

    def facts(self, schema: pa.Schema) -> pa.Schema:
        """The columns of a stream that make facts, if they can be coalesced."""
        if not self.on:
            raise SchemaError("coalesce: name the columns that make facts equal, on=[...]")
        require_columns(self.columns, schema, "coalesce(on=..., group_by=...)")
        if self.equivalence is not None:
            self.equivalence.check(pa.schema([schema.field(name) for name in self.on]))
        return pa.schema([schema.field(name) for name in self.columns])


@dataclass(frozen=True, eq=False)
class Edges(TimedNode):
    """Each reading from its start to the start of the next of its group; the last one for ever.

    The readings' own ends do not matter; two of one group at one time are refused (coalescing ruling 4).
    """

    input: Node
    group_by: tuple[str, ...] = ()
    verb: Literal["edges", "as_of"] = "edges"
    """The method that was called; errors name it."""

    ignores_ctis = True
    named_times = ()

    @property
    def keyed_by(self) -> str:
        """Where the groups were named."""
        return "edges(group_by=...)" if self.verb == "edges" else "as_of(on=...)"

    @property
    def label(self) -> str:
        return "edges" + (f" by {', '.join(self.group_by)}" if self.group_by else "")

    def derive_schema(self) -> pa.Schema:
        place = "" if self.verb == "edges" else ", in the stream of readings"
        require_columns(self.group_by, self.input.schema, self.keyed_by + place)
        return self.input.schema

    def derive_properties(self) -> Properties:
        """One reading a group and time, so the start tells equal payloads apart.

        A reading ends the one before it, at its own start: inserts alone only shorten, and order stays.
        """
        of = self.input.properties
        return Properties(has_key=True, is_ordered=of.is_ordered, is_shrink_only=of.is_insert_only)

    def needs(self) -> Needs:
        """A group in one place."""
        return (columns_named(self.group_by),)

    kept_columns = Node.every_column

    def columns_read(self, needed: Names) -> list[Names]:
        return [needed | set(self.group_by)]

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        """Those that keep or drop whole groups."""
        return (FilterRule(indistinct_columns(self.schema, self.group_by)),)

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        return replace(self, input=inputs[0], group_by=(*keys, *self.group_by))
