"""Coalescing: equal facts that overlap or meet become one fact with a maximal lifetime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.equivalences import Equivalence
from recension.plan.expressions import require_columns
from recension.plan.node import FilterRule, Names, Needs, Node, TimedNode, columns_named
from recension.plan.properties import Properties
from recension.plan.span import equal_alike


@dataclass(frozen=True, eq=False)
class Coalesce(TimedNode):
    """The group and ``on`` columns with maximal lifetimes, each at every instant once.

    With an ``equivalence``, one event for each run of events of a group, in the order of their starts, of
    which each goes on with the one before it and starts before the run so far has ended; it shows the first
    values. Two events of a group that start together have no order and are refused.
    """

    input: Node
    on: tuple[str, ...]
    group_by: tuple[str, ...] = ()
    equivalence: Equivalence | None = None

    ignores_ctis = True
    named_times = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a fact."""
        return fact_columns(self.on, self.group_by)

    @property
    def label(self) -> str:
        return f"coalesce {in_words(self.on, self.group_by, self.equivalence)}"

    def derive_schema(self) -> pa.Schema:
        return facts(self.input.schema, self.on, self.columns, self.equivalence)

    def derive_properties(self) -> Properties:
        """No two facts that are equal, and no two runs of a group, start together.

        Even inserts alone make it lengthen what it has shown.
        """
        return Properties(has_key=True)

    def needs(self) -> Needs:
        """Equal facts in one place; where they need only be equivalent, a group."""
        return (columns_named(self.columns if self.equivalence is None else self.group_by),)

    def kept_columns(self) -> Mapping[str, str]:
        """Of facts that became one, all have the same group."""
        return {name: name for name in self.group_by}

    def columns_read(self, needed: Names) -> list[Names]:
        return [frozenset(self.columns)]

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        """Those that keep or drop whole groups."""
        return (FilterRule(equal_alike(self.schema, self.group_by)),)

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        return replace(self, input=inputs[0], group_by=(*keys, *self.group_by))


@dataclass(frozen=True)
class Coalescing:
    """One query; and how likely its readings are thought to coalesce and to come late."""

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
        return in_words(self.on, self.group_by, self.equivalence)

    @property
    def question(self) -> tuple[object, ...]:
        """What is asked: queries that ask the same are one (coalescing ruling 35)."""
        return self.on, self.group_by, self.equivalence

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a fact."""
        return fact_columns(self.on, self.group_by)


def fact_columns(on: tuple[str, ...], group_by: tuple[str, ...]) -> tuple[str, ...]:
    """The group's columns, then the values."""
    return (*group_by, *(name for name in on if name not in group_by))


def in_words(on: tuple[str, ...], group_by: tuple[str, ...], equivalence: Equivalence | None) -> str:
    """What is coalesced, as `explain` says it."""
    by = f" by {', '.join(group_by)}" if group_by else ""
    like = f", {equivalence}" if equivalence else ""
    return f"{', '.join(on)}{by}{like}"


def facts(
    schema: pa.Schema, on: tuple[str, ...], columns: tuple[str, ...], equivalence: Equivalence | None
) -> pa.Schema:
    """The columns of facts, if they can be coalesced."""
    if not on:
        raise SchemaError("coalesce: name the columns that make facts equal, on=[...]")
    require_columns(columns, schema, "coalesce(on=..., group_by=...)")
    if equivalence is not None:
        equivalence.check(pa.schema([schema.field(name) for name in on]))
    return pa.schema([schema.field(name) for name in columns])
