"""The end-point sweep: sums over events that are alive together, as running sums over end points.

    events     |------ 3 ------|
                    |--- 5 ---------|
    steps      +3   +5         -3  -5
    sums       | 3  |    8     | 5  |      each from its end point to the next

Cost: one sort of the end points of each key; end points that coincide are added up before they are shuffled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from recension.runners.spark.batch.frame import VE, VS
from recension.runners.spark.batch.sums import EVENTS

_AT = "_at"


def sweep(rows: DataFrame, keys: Sequence[str], parts: Mapping[str, Column]) -> DataFrame:
    """The sums of every snapshot that holds an event, with the number of events, for every key by itself."""
    ends = f.array(_end(VS, 1), _end(VE, -1))
    steps = rows.select(
        *keys, *(part.alias(name) for name, part in parts.items()), f.explode(ends).alias(_AT)
    )
    sign = f.col(f"{_AT}.sign")
    at_once = steps.groupBy(*keys, f.col(f"{_AT}.t").alias(VS)).agg(
        f.sum(sign).alias(EVENTS), *(f.sum(f.col(name) * sign).alias(name) for name in parts)
    )
    in_turn = Window.partitionBy(*keys).orderBy(VS)
    so_far = in_turn.rowsBetween(Window.unboundedPreceding, 0)
    running = [f.sum(name).over(so_far).alias(name) for name in (EVENTS, *parts)]
    snapshots = at_once.select(*keys, VS, f.lead(VS).over(in_turn).alias(VE), *running)
    return snapshots.where(f.col(EVENTS) > 0)


def _end(name: str, sign: int) -> Column:
    return f.struct(f.col(name).alias("t"), f.lit(sign).cast("bigint").alias("sign"))
