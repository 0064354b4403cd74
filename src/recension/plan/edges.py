"""Edges: a stream of readings as a stream of facts, each valid until the next reading of its group."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from recension.plan.expressions import require_columns
from recension.plan.node import Node
from recension.plan.properties import Properties


@dataclass(frozen=True, eq=False)
class Edges(Node):
    """Each reading from its start to the start of the next of its group; the last one for ever.

    The readings' own ends do not matter; two of one group at one time are refused (coalescing ruling 4).
    """

    input: Node
    group_by: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return "edges" + (f" by {', '.join(self.group_by)}" if self.group_by else "")

    def derive_schema(self) -> pa.Schema:
        require_columns(self.group_by, self.input.schema, "edges(group_by=...)")
        return self.input.schema

    def derive_properties(self) -> Properties:
        """One reading a group and time, so the start tells equal payloads apart.

        A reading ends the one before it, at its own start: inserts alone only shorten, and order stays.
        """
        of = self.input.properties
        return Properties(has_key=True, is_ordered=of.is_ordered, is_shrink_only=of.is_insert_only)
