"""Lifetimes that are joined: equal facts as one, readings as facts, and which stretches of time are covered.

Equal facts are joined as gaps and islands. What compares neighbours by more than equality, and what slides,
runs on the local engine's operators, groups in partitions of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from recension.core.ticks import BEGINNING, FOREVER
from recension.plan.extents import Range
from recension.plan.nodes import ByKey, Coalesce, CoalesceExtent, CoalesceMany, Distinct, Edges, GroupApply
from recension.runners.spark.batch.frame import VE, VS, Frame, make_frame, raise_if
from recension.runners.spark.batch.local_operators import map_partitions, stand_in_source, union_ports
from recension.runners.spark.batch.times import tick


def edges(node: Edges, frame: Frame) -> Frame:
    """Each reading until the next start of its group."""
    keys = [frame.name(name) for name in node.group_by]
    by_time = Window.partitionBy(*keys).orderBy(VS)
    following = f.coalesce(f.lead(VS).over(by_time), tick(FOREVER))
    timed = frame.df.select(f.col(VS), following.alias(VE), *frame.payload)
    advice = f.lit(f": name what tells them apart in {node.keyed_by}")
    words = f.concat(f.lit("two readings of one group at "), f.col(VS).cast("string"), advice)
    return Frame(timed.where(raise_if(f.col(VS) == f.col(VE), words)), frame.schema)


def by_key(node: ByKey, frame: Frame) -> Frame:
    """What the rows of each key say."""
    rows = union_ports([frame], [[frame.name(name) for name in node.key]])
    return map_partitions(node.with_inputs([stand_in_source(frame)]), rows, has_order=False)


def coalesce(node: Coalesce, frame: Frame) -> Frame:
    """Equal facts on maximal lifetimes; or runs of neighbours."""
    if node.equivalence is not None:
        return _map_groups(node, frame, node.group_by)
    names = [frame.name(name) for name in node.columns]
    found = merge_intervals(frame.df, names)
    return make_frame(found, {name: frame.column(name) for name in node.columns}, node.schema)


def coalesce_extent(node: CoalesceExtent, frame: Frame) -> Frame:
    """The answers of every slide; where the readings of all groups are counted, all in one place."""
    return _map_groups(node, frame, node.group_by if isinstance(node.window, Range) else ())


def coalesce_many(node: CoalesceMany, frame: Frame) -> Frame:
    """The answers of several queries: readings that differ in what all of them group by never meet."""
    return _map_groups(node, frame, node.common_groups if isinstance(node.window, Range) else ())


def group_apply(node: GroupApply, frame: Frame) -> Frame:
    """What counts the readings of every group by itself."""
    return _map_groups(node, frame, node.keys)


def _map_groups(
    node: Coalesce | CoalesceExtent | CoalesceMany | GroupApply, frame: Frame, keys: Sequence[str]
) -> Frame:
    rows = union_ports([frame], [[frame.name(name) for name in keys]])
    return map_partitions(node.with_inputs([stand_in_source(frame)]), rows)


def distinct(node: Distinct, frame: Frame) -> Frame:
    """At every instant each payload once, on maximal lifetimes."""
    found = merge_intervals(frame.df, frame.payload)
    return Frame(found.select(VS, VE, *frame.payload), frame.schema)


def merge_intervals(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The fewest intervals, for each key, that hold the same instants.

    #   rows      |----|  |--|            a row begins an interval if all before it have ended earlier
    #               |----|       |--|
    #   merged    |----------|   |--|
    """
    # One row a start: rows that tie could change places between the two passes below.
    starts = rows.groupBy(*keys, VS).agg(f.max(VE).alias(VE))
    by_time = Window.partitionBy(*keys).orderBy(VS)
    before = f.max(VE).over(by_time.rowsBetween(Window.unboundedPreceding, -1))
    begins = (before.isNull() | (f.col(VS) > before)).cast("int")
    so_far = by_time.rowsBetween(Window.unboundedPreceding, 0)
    numbered = starts.withColumn("begins", begins).withColumn("interval", f.sum("begins").over(so_far))
    merged = numbered.groupBy(*keys, "interval").agg(f.min(VS).alias(VS), f.max(VE).alias(VE))
    return merged.select(*keys, VS, VE)


def gaps(covered: DataFrame, keys: Sequence[str]) -> DataFrame:
    """What maximal intervals leave uncovered; every key has a row at least, perhaps an empty one."""
    by_time = Window.partitionBy(*keys).orderBy(VS)
    before = f.struct(f.coalesce(f.lag(VE).over(by_time), tick(BEGINNING)).alias("a"), f.col(VS).alias("b"))
    after = f.struct(f.col(VE).alias("a"), tick(FOREVER).alias("b"))
    is_last = f.lead(VS).over(by_time).isNull()
    found = covered.select(
        *keys, f.when(is_last, f.array(before, after)).otherwise(f.array(before)).alias("g")
    )
    each = found.select(*keys, f.explode("g").alias("g"))
    return each.select(*keys, f.col("g.a").alias(VS), f.col("g.b").alias(VE))
