"""Lifetime nodes: AlterLifetime with one of the rules of `lifetimes`, and clipping by another stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from recension.plan.expressions import require_columns
from recension.plan.lifetimes import Lifetime
from recension.plan.node import FilterRule, Names, Node, PairNode, TimedNode, all_of
from recension.plan.properties import Properties
from recension.plan.schemas import require_same_type


@dataclass(frozen=True, eq=False)
class AlterLifetime(TimedNode):
    """Each event gets a lifetime computed from its own; an empty one drops it."""

    input: Node
    lifetime: Lifetime

    ignores_ctis = True
    named_times = ()

    @property
    def label(self) -> str:
        return str(self.lifetime)

    def derive_schema(self) -> pa.Schema:
        return self.input.schema

    def derive_properties(self) -> Properties:
        return self.lifetime.derive(self.input.properties)

    kept_columns = Node.every_column
    with_group_keys = Node.with_grouped_inputs

    def needs(self) -> None:
        return None

    def columns_read(self, needed: Names) -> list[Names]:
        return [needed]

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        return (FilterRule(dict(all_of(self.schema))),)


@dataclass(frozen=True, eq=False)
class Clip(PairNode):
    """Each event until the first matching event of ``by`` starts after it, if that is before its end."""

    input: Node
    by: Node
    on: tuple[str, ...] = ()
    null_matches: tuple[str, ...] = ()
    """The keys for which null equals null: those of a group."""

    ports: ClassVar[tuple[str, ...]] = ("input", "by")

    @property
    def label(self) -> str:
        return "clip" + (f" on {', '.join(self.on)}" if self.on else "")

    def derive_schema(self) -> pa.Schema:
        require_columns(self.on, self.input.schema, "clip(on=...)")
        require_columns(self.on, self.by.schema, "clip(on=...), in the stream that clips")
        for key in self.on:
            require_same_type(key, self.input.schema, self.by.schema, "clip(on=...)")
        return self.input.schema

    def derive_properties(self) -> Properties:
        """One event out for one in, with its start: a key stays a key.

        A clipping event that comes late shortens what was shown; one that is taken back lengthens it again.
        """
        clipped, by = self.input.properties, self.by.properties
        return Properties(
            has_key=clipped.has_key, is_shrink_only=clipped.is_shrink_only and by.is_insert_only
        )

    def columns_read(self, needed: Names) -> list[Names]:
        return [needed | set(self.on), frozenset(self.on)]

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        return (FilterRule(dict(all_of(self.schema))), None)

    @property
    def visible_inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        """A stream that is not of the group clips all groups."""
        clipped, by = inputs
        if by is self.by:
            return self.with_inputs(inputs)
        return Clip(clipped, by, (*keys, *self.on), (*keys, *self.null_matches))
