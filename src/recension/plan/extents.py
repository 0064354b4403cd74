"""Coalescing over the extent of a sliding window: what its readings say at every slide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.core.ticks import FOREVER
from recension.plan.coalesce import Coalescing, fact_columns, facts, in_words
from recension.plan.equivalences import Equivalence
from recension.plan.node import Node
from recension.plan.properties import Properties
from recension.plan.schemas import require_names

Scheme: TypeAlias = Literal["auto", "eager", "lazy"]
Weights: TypeAlias = tuple[float, float, float]


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
    ``weights`` say how much memory, updates and scans matter when the scheme is chosen, ``expected`` how
    likely readings are thought to coalesce and to come late.
    """

    input: Node
    on: tuple[str, ...]
    group_by: tuple[str, ...]
    equivalence: Equivalence | None
    window: Range | Rows
    scheme: Scheme = "auto"
    weights: Weights = (1.0, 1.0, 1.0)
    expected: tuple[float, float] | None = None

    @property
    def queries(self) -> tuple[Coalescing, ...]:
        """The one that it is."""
        return (Coalescing(self.on, self.group_by, self.equivalence, self.expected),)

    def answers(self, j: int) -> pa.Schema:
        """The columns of the query's answers."""
        return self.schema

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
        (asked,) = self.queries
        columns = facts(self.input.schema, asked.on, asked.columns, asked.equivalence)
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


def checked_weights(given: Weights, place: str) -> Weights:
    """Of memory, update and scan."""
    numbers = [
        w for w in given if isinstance(w, int | float) and not isinstance(w, bool) and 0 <= w < float("inf")
    ]
    if len(numbers) != 3 or len(given) != 3 or not any(numbers):
        raise SchemaError(
            f"{place}: weights are three numbers, 0 or more, of memory, update and scan; not {given!r}"
        )
    memory, update, scan = map(float, numbers)
    return memory, update, scan
