"""Aggregates over time, and those per snapshot: every maximal interval in which no event starts or ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import get_args

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.aggregates import Aggregate, TopK
from recension.plan.node import Names, Needs, Node, Outputs, Speculate, TimedNode, columns_named
from recension.plan.properties import Properties
from recension.plan.schemas import require_names
from recension.plan.span import describe_outputs, projected_schema


class GroupedNode(TimedNode):
    """Answers for every group by itself: the keys' columns first."""

    input: Node
    keys: Outputs

    ignores_ctis = False

    def needs(self) -> Needs | None:
        return (self.keys,)

    def kept_columns(self) -> Mapping[str, str]:
        return {name: key.column for name, key in self.keys if key.column}

    def is_keyed(self, grouped: Set[Node]) -> bool:
        return True

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        return replace(self, input=inputs[0], keys=(*columns_named(keys), *self.keys))  # type: ignore[type-var]


def require_speculate(speculate: str) -> None:
    """Raise unless it is a variant of a step."""
    if speculate not in get_args(Speculate):
        raise SchemaError(f"agg: speculate is 'perfect', 'ordered' or 'eager', not {speculate!r}")


@dataclass(frozen=True, eq=False)
class AggregateNode(GroupedNode):
    """Aggregates for every group by itself: the keys' columns first, then the answers.

    An aggregate that yields rows stands alone; its rows' columns take the place of its name. Subclasses say
    over which parts of time they are.
    """

    input: Node
    keys: Outputs
    aggregates: tuple[tuple[str, Aggregate], ...]
    speculate: Speculate

    @property
    def label(self) -> str:
        by = f" by {describe_outputs(self.keys)}" if self.keys else ""
        return f"aggregate {', '.join(self._answers)}{by}, speculate {self.speculate}"

    @property
    def _answers(self) -> list[str]:
        """A hidden one is called as it is written."""
        return [str(a) if a.yields_rows or name == str(a) else f"{name} = {a}" for name, a in self.aggregates]

    @property
    def rows(self) -> TopK | None:
        """The aggregate that yields rows, if there is one; it is then the only one."""
        (_, first), *_ = self.aggregates
        return first if isinstance(first, TopK) else None

    @property
    def event_schema(self) -> pa.Schema:
        """The columns of the events that are aggregated."""
        return self.input.schema

    @property
    def is_sum(self) -> bool:
        """Is it made of sums alone?"""
        return all(aggregate.is_sum for _, aggregate in self.aggregates)

    @property
    def why_whole(self) -> str | None:
        """Why it needs all events of a group together; None if it can be made in parts, sums or `combining`.

        The safe answer is that it needs them.
        """
        return "needs all events together"

    @property
    def why_single(self) -> str:
        """Why it runs in one shard, if it has no key."""
        return f"has no key, and {self.why_whole}" if self.why_whole else "has no key"

    def why_not_combined(self) -> str | None:
        """Why the answers of several parts of the events do not make the answer of all; None if they do."""
        alone = [a for name, a in self.aggregates if a.combining(name, self.event_schema) is None]
        if alone:
            beside = " together with min or max" if alone[0].is_sum else ""
            return f"{alone[0]}{beside} needs all events together"
        is_eager = self.speculate == "eager"
        return None if is_eager else "max and min are computed in parts only with speculate='eager'"

    @property
    def gives_one_row(self) -> bool:
        """Is there at most one row for each group and part of time?"""
        return self.rows is None or self.rows.k == 1

    @property
    def breaks_ties(self) -> bool:
        """Can a retraction change which of two events that begin together counts as the first?

        The end decides, so an end that moves changes answers back to the start, and CTIs have to wait.
        """
        is_sensitive = any(aggregate.is_order_sensitive for _, aggregate in self.aggregates)
        return is_sensitive and not self.input.properties.is_insert_only

    def derive_schema(self) -> pa.Schema:
        require_speculate(self.speculate)
        if not self.aggregates:
            raise SchemaError("agg: give at least one aggregate", instead=", such as n=rc.count()")
        keys = projected_schema(self.keys, self.input.schema, "group_by")
        answers = self._answer_fields(keys.names)
        require_names([*keys.names, *(field.name for field in answers)], "agg")
        return pa.schema([*keys, *answers])

    def _answer_fields(self, keys: list[str]) -> list[pa.Field]:
        rows = [aggregate for _, aggregate in self.aggregates if isinstance(aggregate, TopK)]
        if not rows:
            return [pa.field(name, a.result_type(self.event_schema)) for name, a in self.aggregates]
        if len(self.aggregates) > 1:
            raise SchemaError(f"agg: {rows[0]} yields rows, so it must be the only aggregate")
        return [field for field in rows[0].row_schema(self.input.schema) if field.name not in keys]

    def columns_read(self, needed: Names) -> list[Names]:
        kept = [aggregate for _, aggregate in self._kept_aggregates(needed)]
        if any(aggregate.is_order_sensitive for aggregate in kept):
            return self.all_columns(needed)
        read = [*(key.references for _, key in self.keys), *(aggregate.references for aggregate in kept)]
        return [frozenset().union(*read)]

    def without_unread(self, needed: Names) -> Node:
        kept = self._kept_aggregates(needed)
        return self if len(kept) == len(self.aggregates) else replace(self, aggregates=kept)

    def _kept_aggregates(self, needed: Names) -> tuple[tuple[str, Aggregate], ...]:
        return (
            tuple(pair for pair in self.aggregates if self.rows or pair[0] in needed) or self.aggregates[:1]
        )

    filters_below = Node.no_filters

    def with_speculate(self, speculate: Speculate) -> Node:
        return replace(self, speculate=speculate)


@dataclass(frozen=True, eq=False)
class SnapshotAggregate(AggregateNode):
    """One answer per snapshot."""

    named_times = ()

    @property
    def why_whole(self) -> str | None:
        return None if self.is_sum else self.why_not_combined()

    def derive_properties(self) -> Properties:
        """In every variant a group has one row for each start (or one for each rank): the start is a key."""
        of, is_grouped = self.input.properties, bool(self.keys)
        if self.speculate == "perfect":
            return _perfect_properties(of, is_grouped, is_single=self.gives_one_row)
        # Only end points that vanish make these variants lengthen, and only retractions make them vanish.
        return Properties(
            has_key=True,
            is_ordered=self.speculate == "ordered"
            and of.is_ordered
            and not is_grouped
            and not self.breaks_ties,
            is_shrink_only=of.is_insert_only,
        )


def _perfect_properties(of: Properties, is_grouped: bool, is_single: bool) -> Properties:
    """Perfect in, perfect out: a snapshot is shown once nothing can cut it any more.

    Not in order when grouped: a long snapshot of one group is shown after later ones of another, and
    shards do not wait for each other (ruling B15). Output is shortened or replaced, never lengthened.
    """
    in_order = of.is_perfect and not is_grouped
    return Properties(
        is_insert_only=of.is_perfect,
        is_ordered=in_order,
        is_strictly_increasing=in_order and is_single,
        has_deterministic_ties=in_order,
        has_key=True,
        is_shrink_only=True,
    )
