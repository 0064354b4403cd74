"""Consistency nodes: how long to wait for order, and how long to remember. None changes what is computed."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from recension.plan.node import Node
from recension.plan.properties import Properties


@dataclass(frozen=True, eq=False)
class Cleanse(Node):
    """Only what is final, by (vs, payload, ve)."""

    input: Node

    @property
    def label(self) -> str:
        return "cleanse"

    def derive_schema(self) -> pa.Schema:
        return self.input.schema

    def derive_properties(self) -> Properties:
        """Perfect, with ties in payload order. Its CTI waits for the first event that may still change."""
        of = self.input.properties
        return Properties(
            is_insert_only=True,
            is_ordered=True,
            is_strictly_increasing=of.is_strictly_increasing,
            has_deterministic_ties=True,
            has_key=of.has_key,
            constant_duration=of.constant_duration,
        )
