"""Joins by start: equal keys as Spark's equi-join, the distance of the starts as its condition.

Whether a left event has a match is then a semi or an anti join of Spark's. Where conditions on pairs decide
that, it is left to the local engine's operators, and so are patterns.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from recension.core.ticks import FOREVER
from recension.plan.nodes import IntervalJoin, Pattern, Unless
from recension.runners.spark.batch.frame import VE, VS, Frame
from recension.runners.spark.batch.joins import RIGHT, add_unmatched, coverage_join, pairs_of, same_keys
from recension.runners.spark.batch.local_operators import map_partitions, stand_in_source, union_ports
from recension.runners.spark.batch.times import tick


def interval_join(node: IntervalJoin, left: Frame, right: Frame) -> Frame:
    """The join of each kind."""
    if node.how == "inner":
        return _pairs(node, left, right)
    if node.where is not None:
        return coverage_join(node, left, right)
    if node.how == "left":
        return add_unmatched(node, _pairs(node, left, right), _matches(node, left, right, "left_anti"))
    return _matches(node, left, right, "left_semi" if node.how == "semi" else "left_anti")


def pattern(node: Pattern, *frames: Frame) -> Frame:
    """The local engine's operator, on partitions that hold all of a key; without a limit."""
    streams = tuple(stand_in_source(frame, port) for port, frame in enumerate(frames))
    keys = [[frame.name(key) for key in node.on] for frame in frames]
    return map_partitions(replace(node, streams=streams, most=None), union_ports(frames, keys))


def _pairs(node: IntervalJoin, left: Frame, right: Frame) -> Frame:
    """The pairs, each for the one tick of its later start."""
    later = f.greatest(VS, RIGHT + VS)
    return pairs_of(
        node, _meet(node, left, right, "inner"), left, right, [later.alias(VS), (later + 1).alias(VE)]
    )


def _matches(node: IntervalJoin, left: Frame, right: Frame, kind: str) -> Frame:
    """The left events that meet some right event, or none."""
    kept = Frame(_meet(node, left, right, kind), left.schema)
    if not isinstance(node, Unless):
        return kept
    is_near_end = f.col(VS) > tick(FOREVER - node.within)
    return kept.with_lifetimes(
        f.col(VS), f.when(is_near_end, tick(FOREVER)).otherwise(f.col(VS) + tick(node.within))
    )


def _meet(node: IntervalJoin, left: Frame, right: Frame, kind: str) -> DataFrame:
    # Differences would leave 64 bits at the ends of time.
    distance = f.col(RIGHT + VS).cast("decimal(20)") - f.col(VS).cast("decimal(20)")
    meets: Column = (distance >= node.low) & (distance <= node.high)
    if node.on:
        meets = same_keys(node, left, right) & meets
    return left.df.join(right.add_prefix(RIGHT), meets, kind)
