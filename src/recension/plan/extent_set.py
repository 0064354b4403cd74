"""Coalescing queries over one stream and window that share extents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final, get_args

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.coalesce import Coalescing, facts
from recension.plan.each_group import each_group
from recension.plan.extents import Range, Rows, Scheme, Weights
from recension.plan.node import FilterRule, Names, Needs, Node, TimedNode, columns_named
from recension.plan.properties import Properties
from recension.plan.schemas import require_names

_INTERVAL: Final = ("valid_start", "valid_end")


@dataclass(frozen=True, eq=False)
class CoalesceMany(TimedNode):
    """The answers of all queries, each row with its query's number; columns that are not its own are null.

    ``weights`` say how much memory, updates and scans matter when schemes are chosen.
    """

    input: Node
    queries: tuple[Coalescing, ...]
    window: Range | Rows
    scheme: Scheme = "auto"
    weights: Weights = (1.0, 1.0, 1.0)

    ignores_ctis = False
    named_times = ()

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
        """The column that has the query's number; none that is read is called so."""
        name = "query"
        while name in self.columns:
            name += "_"
        return name

    def answers(self, j: int) -> pa.Schema:
        """The columns of one query's answers."""
        query = self.queries[j]
        columns = facts(self.input.schema, query.on, query.columns, query.equivalence)
        require_names([*columns.names, *_INTERVAL], "coalesce")
        return pa.schema([*columns, *(pa.field(name, pa.int64()) for name in _INTERVAL)])

    def derive_schema(self) -> pa.Schema:
        if self.scheme not in get_args(Scheme):
            raise SchemaError(f"ExtentSet: scheme is 'auto', 'eager' or 'lazy', not {self.scheme!r}")
        if not self.queries:
            raise SchemaError("ExtentSet: give it one query or more, name=rc.coalescing(on=...)")
        own = {field.name: field for j in range(len(self.queries)) for field in self.answers(j)}
        return pa.schema(
            [pa.field(self.number, pa.int32()), *(own[name] for name in (*self.columns, *_INTERVAL))]
        )

    def derive_properties(self) -> Properties:
        """As of one query; but the answers of several do not come in one order."""
        in_order = self.input.properties.is_ordered
        if isinstance(self.window, Rows):
            return Properties(has_key=True, is_shrink_only=in_order)
        return Properties(has_key=True, is_insert_only=in_order, constant_duration=self.window.slide)

    def needs(self) -> Needs:
        """What all queries group by in one place."""
        return (columns_named(self.common_groups if isinstance(self.window, Range) else ()),)

    def kept_columns(self) -> Mapping[str, str]:
        """Columns that are not a query's own are null in its rows; those that all group by are everyone's."""
        return {name: name for name in self.common_groups}

    def columns_read(self, needed: Names) -> list[Names]:
        return [frozenset(self.columns)]

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        return self.no_filters()

    def is_keyed(self, grouped: Set[Node]) -> bool:
        return True

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        """Extents are shared among queries, not among groups: group by group."""
        return each_group(self, keys, inputs[0])

    @property
    def common_groups(self) -> tuple[str, ...]:
        """The columns by which all queries group: readings that differ in them never meet."""
        first, *others = (query.group_by for query in self.queries)
        return tuple(name for name in first if all(name in other for other in others))
