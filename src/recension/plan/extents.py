"""Coalescing over the extent of a sliding window: one query, or several that share extents.

At every slide an answer says what the readings in the window say.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias, get_args

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.core.ticks import FOREVER, describe_duration
from recension.core.window_limit import MAX_WINDOWS, WindowLimit, check_limit
from recension.plan.coalesce import Coalescing
from recension.plan.each_group import each_group
from recension.plan.equivalences import Equivalence
from recension.plan.node import FilterRule, Names, Needs, Node, TimedNode, columns_named
from recension.plan.properties import Properties
from recension.plan.schemas import require_names
from recension.plan.span import indistinct_columns

Scheme: TypeAlias = Literal["auto", "eager", "lazy"]
Weights: TypeAlias = tuple[float, float, float]

_INTERVAL: Final = ("valid_start", "valid_end")


@dataclass(frozen=True)
class Range:
    """Time-based: at every multiple ``s`` of ``slide`` the readings of ``[s - span, s]``."""

    span: int
    slide: int
    max_windows: int = field(default=MAX_WINDOWS, repr=False, metadata={"is_structure": False})
    """How many windows a reading may be in. Not part of the structure: checkpoints fit any limit."""

    def __post_init__(self) -> None:
        if not (0 <= self.span < FOREVER and 0 < self.slide < FOREVER):
            raise SchemaError(
                f"range: a span of 0 or more and a slide of 1 tick or more are needed, both finite; not "
                f"{self.span} and {self.slide}"
            )
        WindowLimit(str(self), check_limit(self.max_windows, "range")).check_each(self.span + 1, self.slide)

    def __str__(self) -> str:
        return f"range {self.span} slide {self.slide}"

    @property
    def with_units(self) -> str:
        """The same in words, for messages that have timestamps."""
        return f"range {describe_duration(self.span)} slide {describe_duration(self.slide)}"


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


class ExtentNode(TimedNode):
    """Readings in a sliding window, kept by a scheme."""

    input: Node
    window: Range | Rows
    scheme: Scheme

    ignores_ctis = False
    named_times = ()

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns of readings that are read."""

    def require_scheme(self, verb: str) -> None:
        """Raise unless the scheme is one."""
        if self.scheme not in get_args(Scheme):
            raise SchemaError(f"{verb}: scheme is 'auto', 'eager' or 'lazy', not {self.scheme!r}")

    def columns_read(self, needed: Names) -> list[Names]:
        return [frozenset(self.columns)]

    def is_keyed(self, grouped: Set[Node]) -> bool:
        return True


def _answer_columns(query: Coalescing, schema: pa.Schema) -> pa.Schema:
    """The columns of a query's answers: facts, and when they were valid."""
    columns = query.facts(schema)
    require_names([*columns.names, *_INTERVAL], "coalesce")
    return pa.schema([*columns, *(pa.field(name, pa.int64()) for name in _INTERVAL)])


@dataclass(frozen=True, eq=False)
class CoalesceExtent(ExtentNode):
    """At every slide one row (group, ``on`` columns, valid_start, valid_end) for each run of readings.

    A reading is an event taken at its start; without an ``equivalence`` a run is equal neighbours of a group.
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
        """Its only query."""
        return (Coalescing(self.on, self.group_by, self.equivalence, self.expected),)

    def answers(self, j: int) -> pa.Schema:
        """The columns of the query's answers."""
        return self.schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a fact."""
        return self.queries[0].columns

    @property
    def label(self) -> str:
        return f"coalesce {self.queries[0]}, {self.window}"

    def derive_schema(self) -> pa.Schema:
        self.require_scheme("coalesce")
        return _answer_columns(self.queries[0], self.input.schema)

    def derive_properties(self) -> Properties:
        """Answers are shown once their slide is passed: of ordered readings in order, and never retracted.

        A tuple-based answer lasts until the next one. A group has one run from any time on: rows are keys.
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

    @property
    def why_single(self) -> str:
        return "has no groups" if isinstance(self.window, Range) else "counts the readings of all groups"

    def needs(self) -> Needs:
        """Each group together; all groups together where the window counts all readings."""
        return (columns_named(self.group_by if isinstance(self.window, Range) else ()),)

    def kept_columns(self) -> Mapping[str, str]:
        """Readings that become one are of the same group."""
        return {name: name for name in self.group_by}

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        """Those that keep or drop whole groups, unless the readings of all groups are counted."""
        is_by_time = isinstance(self.window, Range)
        return (FilterRule(indistinct_columns(self.schema, self.group_by)) if is_by_time else None,)

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        """Where it counts the readings of a group, whatever the others have, group by group."""
        if isinstance(self.window, Rows):
            return each_group(self, keys, inputs[0])
        return replace(self, input=inputs[0], group_by=(*keys, *self.group_by))


def checked_weights(given: Weights, place: str) -> Weights:
    """The weights of memory, update and scan, if they are valid."""
    numbers = [
        w for w in given if isinstance(w, int | float) and not isinstance(w, bool) and 0 <= w < float("inf")
    ]
    if len(numbers) != 3 or len(given) != 3 or not any(numbers):
        raise SchemaError(
            f"{place}: weights are three numbers, 0 or more, of memory, update and scan; not {given!r}"
        )
    memory, update, scan = map(float, numbers)
    return memory, update, scan


@dataclass(frozen=True, eq=False)
class CoalesceMany(ExtentNode):
    """The answers of all queries, each row with its query's number; columns that are not its own are null.

    ``weights`` say how much memory, updates and scans matter when schemes are chosen.
    """

    input: Node
    queries: tuple[Coalescing, ...]
    window: Range | Rows
    scheme: Scheme = "auto"
    weights: Weights = (1.0, 1.0, 1.0)

    @property
    def label(self) -> str:
        return f"coalesce {'; '.join(map(str, self.queries))}; {self.window}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of readings that any query reads, as the stream has them."""
        read = {name for query in self.queries for name in query.columns}
        return tuple(name for name in self.input.schema.names if name in read)

    @property
    def number(self) -> str:
        """The column with the query's number; its name is not that of a column that is read."""
        name = "query"
        while name in self.columns:
            name += "_"
        return name

    def answers(self, j: int) -> pa.Schema:
        """The columns of one query's answers."""
        return _answer_columns(self.queries[j], self.input.schema)

    def derive_schema(self) -> pa.Schema:
        self.require_scheme("ExtentSet")
        if not self.queries:
            raise SchemaError("ExtentSet: give it one query or more, name=rc.coalescing(on=...)")
        own = {field.name: field for j in range(len(self.queries)) for field in self.answers(j)}
        return pa.schema(
            [pa.field(self.number, pa.int32()), *(own[name] for name in (*self.columns, *_INTERVAL))]
        )

    def derive_properties(self) -> Properties:
        """As for one query, but the answers of several have no common order."""
        in_order = self.input.properties.is_ordered
        if isinstance(self.window, Rows):
            return Properties(has_key=True, is_shrink_only=in_order)
        return Properties(has_key=True, is_insert_only=in_order, constant_duration=self.window.slide)

    @property
    def why_single(self) -> str:
        is_range = isinstance(self.window, Range)
        return "has no column that all group by" if is_range else "counts the readings of all groups"

    def needs(self) -> Needs:
        """Together what all queries group by."""
        return (columns_named(self.common_groups if isinstance(self.window, Range) else ()),)

    def kept_columns(self) -> Mapping[str, str]:
        """Columns that are not a query's own are null in its rows; those that all group by are everyone's."""
        return {name: name for name in self.common_groups}

    filters_below = Node.no_filters

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        """Extents are shared among queries, not among groups: group by group."""
        return each_group(self, keys, inputs[0])

    @property
    def common_groups(self) -> tuple[str, ...]:
        """The columns by which all queries group: readings that differ in them never meet."""
        first, *others = (query.group_by for query in self.queries)
        return tuple(name for name in first if all(name in other for other in others))
