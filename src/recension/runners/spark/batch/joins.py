"""Temporal joins: equal keys as Spark's equi-join, overlap as its condition.

Where only keys and lifetimes decide, a semi join meets the stretches that the right side covers, and an
anti join the gaps it leaves: disjoint, so that what they cut out of an event needs no putting together.
Conditions on pairs, and coverage without a key, are left to the local engine's operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as f

from recension.plan.nodes import Join, Where
from recension.runners.spark.batch.coverage import gaps, maximal
from recension.runners.spark.batch.frame import VE, VS, Frame, position
from recension.runners.spark.batch.hosted import each_partition, ported, stand_in
from recension.runners.spark.batch.span import where
from recension.runners.spark.types import carrier

_RIGHT = "r"


def join(node: Join, left: Frame, right: Frame) -> Frame:
    """Each kind by its own way."""
    if node.how == "inner":
        return inner(node, left, right)
    if node.where is not None or not node.on:
        return hosted(node, left, right)
    if node.how == "semi":
        return semi(node, left, right)
    rest = anti(node, left, right)
    return rest if node.how == "anti" else _with_nulls(node, inner(node, left, right), rest)


def inner(node: Join, left: Frame, right: Frame) -> Frame:
    """The pairs, alive while both are."""
    met = left.df.join(right.renamed(_RIGHT), _meet(node, left, right))
    columns = [f.col(name) for name in left.payload]
    columns += [f.col(_RIGHT + right.name(old)) for old, _ in node.right_outputs]
    chosen = [column.alias(position(i)) for i, column in enumerate(columns)]
    pairs = Frame(met.select(*_shared(), *chosen), node.pair_schema)
    return pairs if node.where is None else where(Where(stand_in(pairs), node.where), pairs)


def semi(node: Join, left: Frame, right: Frame) -> Frame:
    """The left events on the stretches that the right side covers."""
    covered = Frame(maximal(right.df, _keys(node, right)), right.schema)
    met = left.df.join(covered.renamed(_RIGHT), _meet(node, left, right))
    return Frame(met.select(*_shared(), *left.payload), left.schema)


def anti(node: Join, left: Frame, right: Frame) -> Frame:
    """The left events on the gaps that the right side leaves; whole, where it has no such key."""
    keys = _keys(node, right)
    free = Frame(gaps(maximal(right.df, keys), keys), right.schema)
    met = left.df.join(free.renamed(_RIGHT), _same_keys(node, left, right), "left")
    start, end = (f.col(_RIGHT + name) for name in (VS, VE))
    # Greatest and least pass over nulls: without a right row the event stays as it is.
    return Frame(met, left.schema).timed(f.greatest(VS, start), f.least(VE, end))


def hosted(node: Join, left: Frame, right: Frame) -> Frame:
    """The local engine's operator, on partitions that hold all that can match."""
    alone = node.with_inputs([stand_in(left, 0), stand_in(right, 1)])
    return each_partition(alone, ported([left, right], [_keys(node, left), _keys(node, right)]))


def _with_nulls(node: Join, pairs: Frame, rest: Frame) -> Frame:
    right = node.right.schema
    nulls = [
        f.lit(None).cast(carrier(right.field(old).type, old)).alias(position(len(rest.schema) + i))
        for i, (old, _) in enumerate(node.right_outputs)
    ]
    return Frame(pairs.df.unionAll(rest.df.select("*", *nulls)), node.schema)


def _keys(node: Join, side: Frame) -> list[str]:
    return [side.name(key) for key in node.on]


def _meet(node: Join, left: Frame, right: Frame) -> Column:
    """Equal keys and a common instant."""
    overlap = (f.col(VS) < f.col(_RIGHT + VE)) & (f.col(_RIGHT + VS) < f.col(VE))
    return _same_keys(node, left, right) & overlap if node.on else overlap


def _same_keys(node: Join, left: Frame, right: Frame) -> Column:
    """Null matches null only where the key is a group's."""
    return _all(
        [
            mine.eqNullSafe(theirs) if key in node.null_matches else mine == theirs
            for key in node.on
            for mine, theirs in [(left.column(key), f.col(_RIGHT + right.name(key)))]
        ]
    )


def _all(conditions: Sequence[Column]) -> Column:
    return reduce(lambda one, other: one & other, conditions)


def _shared() -> list[Column]:
    return [f.greatest(VS, _RIGHT + VS).alias(VS), f.least(VE, _RIGHT + VE).alias(VE)]
