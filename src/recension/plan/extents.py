"""Coalescing over the extent of a sliding window: what its readings say at every slide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.core.ticks import FOREVER
from recension.plan.coalesce import fact_columns, facts, in_words
from recension.plan.equivalences import Equivalence
from recension.plan.node import Node
from recension.plan.properties import Properties
from recension.plan.schemas import require_names

Scheme: TypeAlias = Literal["auto", "eager", "lazy"]


@dataclass(frozen=True)
class Range:
    """Time-based: at every multiple ``s`` of ``slide`` the readings of ``[s - span, s]``."""

    span: int
    slide: int

    def __post_init__(self) -> None:
        if not (0 <= self.span < FOREVER and 0 < self.slide < FOREVER):
            raise SchemaError(
                f"range: a span of 0 or more and a slide of 1 tick or more are needed, both finite; not "
                f"{self.span} and {self.slide}"
            )

    def __str__(self) -> str:
        return f"range {self.span} slide {self.slide}"


@dataclass(frozen=True)
class Rows:
    """Tuple-based: after every ``slide``-th reading the latest ``size`` of them."""

    size: int
    slide: int = 1

    def __post_init__(self) -> None:
        for count in (self.size, self.slide):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise SchemaError(f"rows: a window counts one reading or more, not {count!r}")

    def __str__(self) -> str:
        return f"rows {self.size} slide {self.slide}"


@dataclass(frozen=True, eq=False)
class CoalesceExtent(Node):
    """At every slide one row (group, ``on`` columns, valid_start, valid_end) a run of readings that go on.

    A reading is an event taken at its start; without an ``equivalence`` equal neighbours of a group go on.
    """

    input: Node
    on: tuple[str, ...]
    group_by: tuple[str, ...]
    equivalence: Equivalence | None
    window: Range | Rows
    scheme: Scheme = "auto"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a fact."""
        return fact_columns(self.on, self.group_by)

    @property
    def label(self) -> str:
        return f"coalesce {in_words(self.on, self.group_by, self.equivalence)}, {self.window}"

    def derive_schema(self) -> pa.Schema:
        if self.scheme not in get_args(Scheme):
            raise SchemaError(f"coalesce: scheme is 'auto', 'eager' or 'lazy', not {self.scheme!r}")
        columns = facts(self.input.schema, self.on, self.columns, self.equivalence)
        interval = [pa.field(name, pa.int64()) for name in ("valid_start", "valid_end")]
        require_names([*columns.names, *(field.name for field in interval)], "coalesce")
        return pa.schema([*columns, *interval])

    def derive_properties(self) -> Properties:
        """An answer is shown once its slide is passed: from ordered readings in order, and for good.

        Tuple-based, it lasts until the next comes. A group has one run from a time on, so rows are keys.
        """
        in_order = self.input.properties.is_ordered
        if isinstance(self.window, Rows):
            return Properties(has_key=True, is_ordered=in_order, is_shrink_only=in_order)
        return Properties(
            has_key=True,
            is_ordered=in_order,
            is_insert_only=in_order,
            constant_duration=self.window.slide,
        )
