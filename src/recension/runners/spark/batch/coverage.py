"""Which stretches of time events cover, key by key: maximal intervals, and the gaps between them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from recension.core.ticks import BEGINNING, FOREVER
from recension.plan.nodes import Distinct
from recension.runners.spark.batch.frame import VE, VS, Frame
from recension.runners.spark.batch.instants import tick


def distinct(node: Distinct, frame: Frame) -> Frame:
    """At every instant each payload once, on maximal lifetimes."""
    found = maximal(frame.df, frame.payload)
    return Frame(found.select(VS, VE, *frame.payload), frame.schema)


def maximal(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The fewest intervals, for each key, that hold the same instants.

    #   rows      |----|  |--|            a row begins an interval if all before it have ended earlier
    #               |----|       |--|
    #   maximal   |----------|   |--|
    """
    # One row a start: rows that tie could change places between the two passes below.
    starts = rows.groupBy(*keys, VS).agg(f.max(VE).alias(VE))
    in_turn = Window.partitionBy(*keys).orderBy(VS)
    before = f.max(VE).over(in_turn.rowsBetween(Window.unboundedPreceding, -1))
    begins = (before.isNull() | (f.col(VS) > before)).cast("int")
    so_far = in_turn.rowsBetween(Window.unboundedPreceding, 0)
    numbered = starts.withColumn("begins", begins).withColumn("interval", f.sum("begins").over(so_far))
    merged = numbered.groupBy(*keys, "interval").agg(f.min(VS).alias(VS), f.max(VE).alias(VE))
    return merged.select(*keys, VS, VE)


def gaps(covered: DataFrame, keys: Sequence[str]) -> DataFrame:
    """What maximal intervals leave uncovered; every key has a row at least, perhaps an empty one."""
    in_turn = Window.partitionBy(*keys).orderBy(VS)
    before = f.struct(f.coalesce(f.lag(VE).over(in_turn), tick(BEGINNING)).alias("a"), f.col(VS).alias("b"))
    after = f.struct(f.col(VE).alias("a"), tick(FOREVER).alias("b"))
    is_last = f.lead(VS).over(in_turn).isNull()
    found = covered.select(
        *keys, f.when(is_last, f.array(before, after)).otherwise(f.array(before)).alias("g")
    )
    each = found.select(*keys, f.explode("g").alias("g"))
    return each.select(*keys, f.col("g.a").alias(VS), f.col("g.b").alias(VE))
