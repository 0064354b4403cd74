"""Windows on a grid, as numbers: on that axis an event is again an interval (`operators.windows.grid`)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from recension.core.ticks import BEGINNING, FOREVER
from recension.plan.window import Windows
from recension.runners.spark.batch.frame import VE, VS
from recension.runners.spark.batch.instants import add, ceil_divide, floor_divide, tick

ENDLESS = "windows over an event that never ends go on for ever: name a last start with until="
UNBEGUN = "an event that starts at the beginning of time is in windows without number"


def numbered(rows: DataFrame, grid: Windows) -> DataFrame:
    """The rows with `_vs`, `_ve` as the first window each overlaps and the first it does not."""
    vs, ve = f.col(VS), f.col(VE)
    first = floor_divide(add(add(vs, -grid.size), -grid.offset), grid.hop) + 1
    first = f.when(vs == tick(BEGINNING), f.raise_error(UNBEGUN).cast("bigint")).otherwise(first)
    if grid.until is None:
        stop = f.when(ve == tick(FOREVER), f.raise_error(ENDLESS).cast("bigint"))
        stop = stop.otherwise(ceil_divide(add(ve, -grid.offset), grid.hop))
    else:
        stop = ceil_divide(add(f.least(ve, tick(grid.until)), -grid.offset), grid.hop)
    others = [name for name in rows.columns if name not in (VS, VE)]
    return rows.select(first.alias(VS), stop.alias(VE), *others).where(f.col(VS) < f.col(VE))


def each_window(rows: DataFrame) -> DataFrame:
    """Rows over a stretch of windows, once for every window: `_vs` is its number."""
    others = [name for name in rows.columns if name not in (VS, VE)]
    return rows.select(f.explode(f.sequence(f.col(VS), f.col(VE) - 1)).alias(VS), *others)


def lifetime(grid: Windows) -> list[Column]:
    """The lifetimes of windows given by number."""
    start = f.col(VS) * tick(grid.hop) + tick(grid.offset)
    return [start.alias(VS), add(start, grid.size).alias(VE)]
