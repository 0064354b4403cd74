"""Readings as facts, and equal facts as one: looks ahead, gaps and islands.

What compares neighbours by more than equality, and what slides, runs on the local engine's operators, groups
in partitions of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Window
from pyspark.sql import functions as f

from recension.core.ticks import FOREVER
from recension.plan.extents import Range
from recension.plan.nodes import Coalesce, CoalesceExtent, CoalesceMany, Edges, GroupApply
from recension.runners.spark.batch.checks import unless
from recension.runners.spark.batch.coverage import maximal
from recension.runners.spark.batch.frame import VE, VS, Frame, framed
from recension.runners.spark.batch.hosted import each_partition, ported, stand_in
from recension.runners.spark.batch.instants import tick


def edges(node: Edges, frame: Frame) -> Frame:
    """Each reading until the next start of its group."""
    keys = [frame.name(name) for name in node.group_by]
    in_turn = Window.partitionBy(*keys).orderBy(VS)
    following = f.coalesce(f.lead(VS).over(in_turn), tick(FOREVER))
    timed = frame.df.select(f.col(VS), following.alias(VE), *frame.payload)
    advice = f.lit(f": name what tells them apart in {node.keyed_by}")
    words = f.concat(f.lit("two readings of one group at "), f.col(VS).cast("string"), advice)
    return Frame(timed.where(unless(f.col(VS) == f.col(VE), words)), frame.schema)


def coalesce(node: Coalesce, frame: Frame) -> Frame:
    """Equal facts on maximal lifetimes; or runs of neighbours."""
    if node.equivalence is not None:
        return _hosted(node, frame, node.group_by)
    names = [frame.name(name) for name in node.columns]
    found = maximal(frame.df, names)
    return framed(found, {name: frame.column(name) for name in node.columns}, node.schema)


def coalesce_extent(node: CoalesceExtent, frame: Frame) -> Frame:
    """The answers of every slide; where the readings of all groups are counted, all in one place."""
    return _hosted(node, frame, node.group_by if isinstance(node.window, Range) else ())


def coalesce_many(node: CoalesceMany, frame: Frame) -> Frame:
    """The answers of several queries: readings that differ in what all of them group by never meet."""
    return _hosted(node, frame, node.common_groups if isinstance(node.window, Range) else ())


def group_apply(node: GroupApply, frame: Frame) -> Frame:
    """What counts the readings of every group by itself."""
    return _hosted(node, frame, node.keys)


def _hosted(
    node: Coalesce | CoalesceExtent | CoalesceMany | GroupApply, frame: Frame, keys: Sequence[str]
) -> Frame:
    rows = ported([frame], [[frame.name(name) for name in keys]])
    return each_partition(node.with_inputs([stand_in(frame)]), rows)
