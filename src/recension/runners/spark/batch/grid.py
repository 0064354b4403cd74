"""Windows on a grid, as numbers: on that axis an event is again an interval (`operators.windows.grid`)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from recension.core.ticks import BEGINNING, FOREVER
from recension.plan.window import Windows
from recension.runners.spark.batch.frame import VE, VS
from recension.runners.spark.batch.instants import floor_divide, tick

ENDLESS = "windows over an event that never ends go on for ever: name a last start with until="
UNBEGUN = "an event that starts at the beginning of time is in windows without number"
TOO_NEAR = "an event this near to the beginning of time is in windows without number"


def numbered(rows: DataFrame, grid: Windows) -> DataFrame:
    """The rows with `_vs`, `_ve` as the first window each overlaps and the first it does not."""
    others = [name for name in rows.columns if name not in (VS, VE)]
    found = rows.select(_first(grid).alias(VS), _stop(grid).alias(VE), *others)
    return found.where(f.col(VS) < f.col(VE))


def _first(grid: Windows) -> Column:
    """Times are divided by the hop before anything is taken from them: only quotients are sure to fit."""
    vs = f.col(VS)
    hops, past = divmod(grid.size + grid.offset % grid.hop, grid.hop)
    whole = floor_divide(vs, grid.hop)
    first = f.when(vs == tick(BEGINNING), f.raise_error(UNBEGUN).cast("bigint"))
    # Only with a hop of one tick.
    first = first.when(whole <= tick(BEGINNING + hops), f.raise_error(TOO_NEAR).cast("bigint"))
    is_past = f.pmod(vs, tick(grid.hop)) >= tick(past)
    return first.otherwise(whole - tick(hops) + f.when(is_past, tick(1)).otherwise(tick(0)))


def _stop(grid: Windows) -> Column:
    ve, offset = f.col(VE), grid.offset % grid.hop
    is_past = f.pmod(ve, tick(grid.hop)) > tick(offset)
    stop = floor_divide(ve, grid.hop) + f.when(is_past, tick(1)).otherwise(tick(0))
    if grid.until is None:
        return f.when(ve == tick(FOREVER), f.raise_error(ENDLESS).cast("bigint")).otherwise(stop)
    last = tick(-((offset - grid.until) // grid.hop))
    return f.when(ve == tick(FOREVER), last).otherwise(f.least(stop, last))


def each_window(rows: DataFrame) -> DataFrame:
    """Rows over a stretch of windows, once for every window: `_vs` is its number."""
    others = [name for name in rows.columns if name not in (VS, VE)]
    return rows.select(f.explode(f.sequence(f.col(VS), f.col(VE) - 1)).alias(VS), *others)


def lifetime(grid: Windows) -> list[Column]:
    """The lifetimes of windows given by number."""
    offset = grid.offset % grid.hop
    return [_at(grid.hop, offset).alias(VS), _at(grid.hop, offset + grid.size).alias(VE)]


def _at(hop: int, shift: int) -> Column:
    """``shift + window * hop``, saturated."""
    low, high = max(BEGINNING, -((shift - BEGINNING) // hop)), (FOREVER - shift) // hop
    window = f.col(VS)
    hops, rest = divmod(shift, hop)
    within = f.greatest(f.least(window, tick(high)), tick(low)) + tick(hops)
    # The product is taken on the near side of zero, so that it does not leave the range the sum is in.
    at = f.when(within < 0, (within + 1) * tick(hop) + tick(rest - hop)).otherwise(
        within * tick(hop) + tick(rest)
    )
    return f.when(window < tick(low), tick(BEGINNING)).when(window > tick(high), tick(FOREVER)).otherwise(at)
