"""Readings as facts, and equal facts as one: looks ahead, gaps and islands."""

from __future__ import annotations

from pyspark.sql import Window
from pyspark.sql import functions as f

from recension.core.ticks import FOREVER
from recension.plan.nodes import Edges
from recension.runners.spark.batch.checks import unless
from recension.runners.spark.batch.frame import VE, VS, Frame
from recension.runners.spark.batch.instants import tick


def edges(node: Edges, frame: Frame) -> Frame:
    """Each reading until the next start of its group."""
    keys = [frame.name(name) for name in node.group_by]
    in_turn = Window.partitionBy(*keys).orderBy(VS)
    following = f.coalesce(f.lead(VS).over(in_turn), tick(FOREVER))
    timed = frame.df.select(f.col(VS), following.alias(VE), *frame.payload)
    words = f.concat(f.lit(f"{node.label}: two readings of one group at "), f.col(VS).cast("string"))
    return Frame(timed.where(unless(f.col(VS) == f.col(VE), words)), frame.schema)
