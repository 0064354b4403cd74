"""Partial aggregates: what one shard's events say, of which the answer of all can be made.

    count, sum, mean     of all   are   sums of what the shards change, in every variant;
    min, max                            min, max of the shards' answers, if they are eager.

Sums are added where they are stored, so floats are rounded once, as in one shard. The parts tell how far time
has come, so windows wait for all shards. Answers of min and max live as long as a shard's snapshots (or
windows); where they overlap they are put together by the same kind of aggregate. Every end point of an event
is one of its shard's answers, so no snapshot is lost. Only eager ones: the others show what has ended, and
what has ended in a shard says little of the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from recension.core.errors import RecensionError
from recension.plan.aggregate import AggregateNode
from recension.plan.node import Node, Outputs, columns_named, each_once, rebuild
from recension.plan.parts import (
    CombinedAggregate,
    CombinedWindowAggregate,
    OfAllParts,
    OfOnePart,
    PartialAggregate,
    PartialSums,
    PartialWindowAggregate,
)
from recension.plan.windows import WindowAggregate


def preaggregate(roots: Sequence[Node], skew: Collection[str] = ()) -> list[Node]:
    """Aggregates without a key first in every shard, then in one, where that gives the same answer.

    All events of an aggregate without a key go to one shard, so there should be few of them. So do all events
    of one key: those grouped by a column of ``skew``, whose values are of very different number, are made
    likewise. A column that does not help is refused.
    """
    for name in skew:
        _require_skewed(name, roots)
    return rebuild(roots, lambda node: _split_in_two(node, skew))


def _require_skewed(name: str, roots: Sequence[Node]) -> None:
    grouped = [
        node for node in each_once(roots) if isinstance(node, AggregateNode) and name in dict(node.keys)
    ]
    if not grouped:
        raise RecensionError(f"skew: no aggregate of the query is grouped by {name!r}")
    for node in grouped:
        if node.why_whole:
            raise RecensionError(
                f"skew: what is grouped by {name!r} cannot be computed in parts: {node.why_whole}"
            )


def _split_in_two(node: Node, skew: Collection[str]) -> Node:
    if not isinstance(node, AggregateNode) or isinstance(node, OfOnePart | OfAllParts) or node.why_whole:
        return node
    if node.keys and not any(name in skew for name, _ in node.keys):
        return node
    keys = columns_named(name for name, _ in node.keys)
    if node.is_sum:
        return _sum_parts(node, keys)
    of, variant = node.input, node.speculate
    again = ((name, aggregate.combining(name, of.schema)) for name, aggregate in node.aggregates)
    part = (
        PartialWindowAggregate(of, node.keys, node.aggregates, variant, node.windows)
        if isinstance(node, WindowAggregate)
        else PartialAggregate(of, node.keys, node.aggregates, variant)
    )
    return replace(
        node, input=part, keys=keys, aggregates=tuple((name, made) for name, made in again if made)
    )


def _sum_parts(node: AggregateNode, keys: Outputs) -> Node:
    of, aggregates, variant = node.input, node.aggregates, node.speculate
    windows = node.windows if isinstance(node, WindowAggregate) else None
    part = PartialSums(of, node.keys, aggregates, variant, windows)
    if windows is None:
        return CombinedAggregate(part, keys, aggregates, variant, of.schema)
    return CombinedWindowAggregate(part, keys, aggregates, variant, windows, of.schema)
