"""Edges: a stream of readings as a stream of facts, each valid until the next reading of its group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from recension.plan.expressions import require_columns
from recension.plan.node import FilterRule, Names, Needs, Node, TimedNode, columns_named, same_names
from recension.plan.properties import Properties
from recension.plan.span import equal_alike


@dataclass(frozen=True, eq=False)
class Edges(TimedNode):
    """Each reading from its start to the start of the next of its group; the last one for ever.

    The readings' own ends do not matter; two of one group at one time are refused (coalescing ruling 4).
    """

    input: Node
    group_by: tuple[str, ...] = ()
    verb: Literal["edges", "as_of"] = "edges"
    """How they were asked for: errors speak of that."""

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

    def kept_columns(self) -> Mapping[str, str]:
        return same_names(self.schema)

    def columns_read(self, needed: Names) -> list[Names]:
        return [needed | set(self.group_by)]

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        """Those that keep or drop whole groups."""
        return (FilterRule(equal_alike(self.schema, self.group_by)),)

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        return replace(self, input=inputs[0], group_by=(*keys, *self.group_by))
