"""Temporal joins: equal keys as Spark's equi-join, overlap as its condition.

Where only keys and lifetimes decide, a semi join meets the stretches that the right side covers, and an
anti join the gaps it leaves: disjoint, so that what they cut out of an event needs no putting together.
Conditions on pairs, and coverage without a key, are left to the local engine's operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from recension.plan.nodes import Join, Where
from recension.runners.spark.batch.coalescing import gaps, merge_intervals
from recension.runners.spark.batch.frame import VE, VS, Frame, column_name
from recension.runners.spark.batch.local_operators import map_partitions, stand_in_source, union_ports
from recension.runners.spark.batch.span import where
from recension.runners.spark.types import carrier

RIGHT = "r"


def join(node: Join, left: Frame, right: Frame) -> Frame:
    """The join of each kind."""
    if node.how == "inner":
        return inner_join(node, left, right)
    if node.where is not None or not node.on:
        return coverage_join(node, left, right)
    if node.how == "semi":
        return semi_join(node, left, right)
    rest = anti_join(node, left, right)
    return rest if node.how == "anti" else add_unmatched(node, inner_join(node, left, right), rest)


def inner_join(node: Join, left: Frame, right: Frame) -> Frame:
    """The pairs, alive while both are."""
    met = left.df.join(right.add_prefix(RIGHT), _meeting_condition(node, left, right))
    return pairs_of(node, met, left, right, _common_lifetime())


def pairs_of(node: Join, met: DataFrame, left: Frame, right: Frame, lifetime: Sequence[Column]) -> Frame:
    """The rows that met as pairs that satisfy the condition."""
    columns = [f.col(name) for name in left.payload]
    columns += [f.col(RIGHT + right.name(old)) for old, _ in node.right_outputs]
    chosen = [column.alias(column_name(i)) for i, column in enumerate(columns)]
    pairs = Frame(met.select(*lifetime, *chosen), node.pair_schema)
    return pairs if node.where is None else where(Where(stand_in_source(pairs), node.where), pairs)


def semi_join(node: Join, left: Frame, right: Frame) -> Frame:
    """The left events on the stretches that the right side covers."""
    covered = Frame(merge_intervals(right.df, _keys(node, right)), right.schema)
    met = left.df.join(covered.add_prefix(RIGHT), _meeting_condition(node, left, right))
    return Frame(met.select(*_common_lifetime(), *left.payload), left.schema)


def anti_join(node: Join, left: Frame, right: Frame) -> Frame:
    """The left events on the gaps that the right side leaves; whole, where it has no such key."""
    keys = _keys(node, right)
    free = Frame(gaps(merge_intervals(right.df, keys), keys), right.schema)
    met = left.df.join(free.add_prefix(RIGHT), same_keys(node, left, right), "left")
    start, end = (f.col(RIGHT + name) for name in (VS, VE))
    # Greatest and least pass over nulls: without a right row the event stays as it is.
    return Frame(met, left.schema).with_lifetimes(f.greatest(VS, start), f.least(VE, end))


def coverage_join(node: Join, left: Frame, right: Frame) -> Frame:
    """The local engine's operator, on partitions that hold all that can match."""
    alone = node.with_inputs([stand_in_source(left, 0), stand_in_source(right, 1)])
    return map_partitions(alone, union_ports([left, right], [_keys(node, left), _keys(node, right)]))


def add_unmatched(node: Join, pairs: Frame, rest: Frame) -> Frame:
    """The pairs, and left events with nulls."""
    right = node.right.schema
    nulls = [
        f.lit(None).cast(carrier(right.field(old).type, old)).alias(column_name(len(rest.schema) + i))
        for i, (old, _) in enumerate(node.right_outputs)
    ]
    return Frame(pairs.df.unionAll(rest.df.select("*", *nulls)), node.schema)


def _keys(node: Join, side: Frame) -> list[str]:
    return [side.name(key) for key in node.on]


def _meeting_condition(node: Join, left: Frame, right: Frame) -> Column:
    """Equal keys and a common instant."""
    overlap = (f.col(VS) < f.col(RIGHT + VE)) & (f.col(RIGHT + VS) < f.col(VE))
    return same_keys(node, left, right) & overlap if node.on else overlap


def same_keys(node: Join, left: Frame, right: Frame) -> Column:
    """Null matches null only where the key is a group's."""
    return _all(
        [
            mine.eqNullSafe(theirs) if key in node.null_matches else mine == theirs
            for key in node.on
            for mine, theirs in [(left.column(key), f.col(RIGHT + right.name(key)))]
        ]
    )


def _all(conditions: Sequence[Column]) -> Column:
    return reduce(lambda one, other: one & other, conditions)


def _common_lifetime() -> list[Column]:
    return [f.greatest(VS, RIGHT + VS).alias(VS), f.least(VE, RIGHT + VE).alias(VE)]
