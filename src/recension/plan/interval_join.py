"""Interval joins: events meet by the distance of their starts, whatever their ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa

from recension.core.errors import SchemaError, TimeError
from recension.core.ticks import FOREVER, Length, describe_duration, duration
from recension.core.time_kind import TICKS, merge_kinds
from recension.plan.expressions import Expression
from recension.plan.join import How, Join, full_join
from recension.plan.node import Node
from recension.plan.properties import Properties
from recension.plan.source import declared_kind
from recension.plan.tables import find_table

Closed: TypeAlias = Literal["both", "left", "right", "neither"]


@dataclass(frozen=True, eq=False)
class IntervalJoin(Join):
    """Pairs whose right start lies ``low`` to ``high`` ticks after the left one, both included.

    ``inner`` gives the pairs, at the later start for one tick; ``semi`` and ``anti`` whole left events that
    have a pair, or none; ``left`` the pairs and, with nulls, the left events that have none.
    """

    low: int = 0
    high: int = 0

    @property
    def label(self) -> str:
        return self._label(str)

    @property
    def label_with_units(self) -> str:
        """The label over timestamps."""
        return self._label(describe_duration)

    def _label(self, length: Any) -> str:
        keys = f" on {', '.join(self.on)}" if self.on else ""
        starts = f", starts {length(self.low)} to {length(self.high)} after"
        return f"{self.how} join{keys}{starts}" + (f" where {self.where}" if self.where else "")

    def derive_schema(self) -> pa.Schema:
        require_starts(self.inputs, self.verb)
        return super().derive_schema()

    def derive_properties(self) -> Properties:
        left, right = self.left.properties, self.right.properties
        is_insert_only = left.is_insert_only and right.is_insert_only
        match self.how:
            case "inner":
                return Properties(is_insert_only=is_insert_only, is_point=True)
            case "left":
                return Properties(is_shrink_only=left.is_shrink_only, is_point=left.is_point)
        # What is kept of a left event is the event itself.
        return Properties(
            is_insert_only=is_insert_only and self.how == "semi",
            has_key=left.has_key,
            is_shrink_only=left.is_shrink_only,
            constant_duration=left.constant_duration,
        )

    def swapped(self, how: How, suffix: str) -> Join:
        return replace(
            self,
            left=self.right,
            right=self.left,
            where=None,
            how=how,
            suffix=suffix,
            low=-self.high,
            high=-self.low,
        )


@dataclass(frozen=True, eq=False)
class Unless(IntervalJoin):
    """Left events that no right event follows within ``high`` ticks, alive for ``within``."""

    within: int = 1

    def _label(self, length: Any) -> str:
        keys = f" on {', '.join(self.on)}" if self.on else ""
        return f"unless{keys} within {length(self.within)}" + (f" where {self.where}" if self.where else "")

    def derive_properties(self) -> Properties:
        """Ends do not matter: all that becomes of an answer is that it goes or comes back."""
        return Properties(has_key=self.left.properties.has_key, constant_duration=self.within)


def interval_join_of(
    left: Node,
    right: Node,
    on: tuple[str, ...],
    where: Expression | None,
    how: How | Literal["full", "cross"],
    suffix: str,
    starts: Any,
    closed: str,
) -> Node:
    """The join by starts that somebody asks for."""
    if how == "cross":
        raise SchemaError(
            "join(how='cross'): every pair matches",
            instead=", so starts= cannot choose: leave out how='cross'",
        )
    low, high = range_of_starts(starts, closed)
    require_lengths(tuple(starts), (left, right), "join", "starts")
    kind: How = "left" if how == "full" else how
    pairs = IntervalJoin(left, right, on, where, kind, suffix, low=low, high=high)
    return full_join(pairs) if how == "full" else pairs


def require_starts(inputs: tuple[Node, ...], verb: str) -> None:
    """Refuse what has no starts of its own, or starts of several kinds."""
    kind = None
    for node in inputs:
        if (table := find_table(node)) is not None:
            raise SchemaError(
                f"{verb}: the rows of table {table.name!r} are true at all times and have no start; "
                "join a stream with the table first, by on="
            )
        try:
            kind = merge_kinds(kind, declared_kind(node))
        except TimeError as why:
            raise TimeError(f"{verb}: {why}") from None


def require_lengths(lengths: tuple[Any, ...], inputs: tuple[Node, ...], verb: str, what: str) -> None:
    """Refuse lengths in seconds where the owner of a stream has said that its times are ticks."""
    words = next((given for given in lengths if isinstance(duration(given), Length)), None)
    if words is not None and TICKS in map(declared_kind, inputs):
        raise TimeError(
            f"{verb}: {what}={words!r} is a length of time, but the streams' times are ticks; write ticks"
        )


def require_no_closed(closed: str) -> None:
    """Refuse to say which bounds are in a range that is not there."""
    if closed != "both":
        raise SchemaError(f"join: closed={closed!r} is about starts=; give the range, as in starts=(0, '5m')")


def range_of_starts(starts: Any, closed: str) -> tuple[int, int]:
    """The least and the greatest distance in ticks, both included; an empty range holds nothing.

    >>> range_of_starts((0, "1ms"), "left"), range_of_starts(("-5us", 0), "neither")
    ((0, 999), (-4, -1))
    """
    if closed not in get_args(Closed):
        raise SchemaError(f"join: closed is 'both', 'left', 'right' or 'neither', not {closed!r}")
    if not isinstance(starts, tuple | list) or len(starts) != 2:
        raise TimeError(
            "join: starts is the least and the greatest distance of the starts, as in starts=(0, '5m'), "
            f"not {starts!r}"
        )
    try:
        low, high = map(duration, starts)
    except TimeError as why:
        raise TimeError(f"join(starts=...): {why}") from None
    if low > high:
        raise TimeError(f"join: starts={tuple(starts)} is reversed; write the least distance first")
    kind = Length if isinstance(low, Length) or isinstance(high, Length) else int
    low, high = low + (closed in ("right", "neither")), high - (closed in ("left", "neither"))
    # So that neither bound, nor the tick after it, leaves int64.
    return kind(max(low, 1 - FOREVER)), kind(min(max(high, 1 - FOREVER), FOREVER - 1))
