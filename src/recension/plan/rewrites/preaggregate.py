"""Partial aggregates: the answers of one shard's events, of which the answer of all can be made.

    count()   of all   is the   sum   of the shards' counts,
    sum(x)                      sum,  if x is a whole number (floats would be rounded twice),
    min, max                    min, max.

A shard's answers live as long as its snapshots (or windows); where they overlap they are put together by the
same kind of aggregate. Every end point of an event is one of its shard's answers, so no snapshot is lost.

Only eager aggregates: the others show what has ended, and what has ended in a shard says little of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from recension.plan.aggregate import AggregateNode, SnapshotAggregate
from recension.plan.aggregates import Aggregate, Count, Max, Min, Sum
from recension.plan.expressions import column
from recension.plan.node import Node, rebuild
from recension.plan.windows import WindowAggregate


class _OfOneShard(AggregateNode):
    """An aggregate of whatever events a shard has."""

    is_spread = True

    @property
    def label(self) -> str:
        return f"partial {super().label}"

    def needs(self) -> None:
        return None


@dataclass(frozen=True, eq=False)
class PartialAggregate(_OfOneShard, SnapshotAggregate):
    """Per snapshot of a shard's events."""


@dataclass(frozen=True, eq=False)
class PartialWindowAggregate(_OfOneShard, WindowAggregate):
    """Per window."""


def preaggregate(roots: Sequence[Node]) -> list[Node]:
    """Aggregates without a key first in every shard, then in one, where that gives the same answer.

    All events of an aggregate without a key go to one shard, so there should be few of them.
    """
    return rebuild(roots, _split_in_two)


def _split_in_two(node: Node) -> Node:
    if not isinstance(node, AggregateNode) or node.keys or node.speculate != "eager":
        return node
    again = [
        (name, _combining_aggregate(name, aggregate, node.input.schema))
        for name, aggregate in node.aggregates
    ]
    final = tuple((name, aggregate) for name, aggregate in again if aggregate is not None)
    partial = _partial(node)
    if partial is None or len(final) < len(again):
        return node
    return replace(node, input=partial, aggregates=final)


def _partial(node: AggregateNode) -> Node | None:
    """The aggregate of one shard; None if partial answers of different windows would mix."""
    if type(node) is SnapshotAggregate:
        return PartialAggregate(node.input, (), node.aggregates, node.speculate)
    if type(node) is WindowAggregate and not node.windows.overlap:
        return PartialWindowAggregate(node.input, (), node.aggregates, node.speculate, node.windows)
    return None


def _combining_aggregate(name: str, aggregate: Aggregate, schema: pa.Schema) -> Aggregate | None:
    """What makes one answer of several shards' answers."""
    answer = column(name)
    match aggregate:
        case Count():
            return Sum(answer)
        case Sum() if pa.types.is_int64(aggregate.result_type(schema)):
            return Sum(answer)
        case Min():
            return Min(answer)
        case Max():
            return Max(answer)
    return None
