"""Consistency nodes: how long to wait for order, and how long to remember. None changes what is computed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from recension.core.errors import TimeError
from recension.core.ticks import FOREVER
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


@dataclass(frozen=True, eq=False)
class Align(Node):
    """Changes wait for their order: ``block`` ticks of application time, FOREVER until a CTI."""

    input: Node
    block: int

    def __post_init__(self) -> None:
        if self.block < 0:
            raise TimeError(f"align: a block of {self.block} ticks; it takes 0 or more, or FOREVER")
        super().__post_init__()

    @property
    def label(self) -> str:
        return f"align, block {in_ticks(self.block)}"

    def derive_schema(self) -> pa.Schema:
        return self.input.schema

    def derive_properties(self) -> Properties:
        """An endless block puts changes in order; what is perfect passes as it is.

        A removal and an insert that wait together may become one lengthening.
        """
        of = self.input.properties
        if not self.block or of.is_perfect:
            return of
        return replace(
            of,
            is_ordered=self.block == FOREVER,
            has_deterministic_ties=False,
            is_shrink_only=of.is_insert_only or of.constant_duration is not None,
        )


def in_ticks(length: int) -> str:
    """A length of time for people.

    >>> in_ticks(FOREVER), in_ticks(5)
    ('forever', '5')
    """
    return "forever" if length == FOREVER else str(length)
