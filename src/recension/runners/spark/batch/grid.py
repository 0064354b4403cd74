"""Windows on a grid, as numbers: on that axis an event is again an interval (`operators.windowed.grid`)."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from recension.core.ticks import BEGINNING, FOREVER
from recension.core.time_kind import kind_in_messages
from recension.core.window_limit import FROM, WindowLimit
from recension.operators.windowed.grid import AT_BEGINNING, GAP, NEAR_GAP
from recension.operators.windowed.numbered import ENDLESS
from recension.plan.windows import Windows
from recension.runners.spark.batch.frame import VE, VS, describe_time
from recension.runners.spark.batch.times import add, floor_divide, tick, type_of_kind


def number_windows(rows: DataFrame, grid: Windows) -> DataFrame:
    """The rows with `_vs`, `_ve` as the first window each overlaps and the first it does not."""
    vs, ve = f.col(VS), f.col(VE)
    first, stop = (_first(grid), _stop(grid)) if grid.hop > 1 else _every_tick(grid)
    first = f.when(vs == tick(BEGINNING), f.raise_error(AT_BEGINNING).cast("bigint")).otherwise(first)
    if grid.until is None:
        stop = f.when(ve == tick(FOREVER), f.raise_error(ENDLESS).cast("bigint")).otherwise(stop)
    else:
        last = tick(-((grid.offset % grid.hop - grid.until) // grid.hop))
        first, stop = f.least(first, last), f.when(ve == tick(FOREVER), last).otherwise(f.least(stop, last))
    others = [name for name in rows.columns if name not in (VS, VE)]
    return rows.select(first.alias(VS), stop.alias(VE), *others).where(f.col(VS) < f.col(VE))


def _first(grid: Windows) -> Column:
    """Times are divided by the hop before anything is taken from them: only quotients are sure to fit."""
    hops, past = divmod(grid.size + grid.offset % grid.hop, grid.hop)
    is_past = f.pmod(f.col(VS), tick(grid.hop)) >= tick(past)
    return floor_divide(f.col(VS), grid.hop) - tick(hops) + f.when(is_past, tick(1)).otherwise(tick(0))


def _stop(grid: Windows) -> Column:
    is_past = f.pmod(f.col(VE), tick(grid.hop)) > tick(grid.offset % grid.hop)
    return floor_divide(f.col(VE), grid.hop) + f.when(is_past, tick(1)).otherwise(tick(0))


def _every_tick(grid: Windows) -> tuple[Column, Column]:
    """Below the gap windows are numbered by their ends."""
    vs, ve = f.col(VS), f.col(VE)
    below, above = tick(max(BEGINNING, GAP - grid.size)), tick(GAP + grid.size - 1)
    nowhere = f.raise_error(NEAR_GAP).cast("bigint")
    first = f.when((vs < above) & (ve > below), nowhere).when(vs < above, add(vs, 1))
    return first.otherwise(add(vs, 1 - grid.size)), f.when(ve <= below, add(ve, grid.size)).otherwise(ve)


def explode_windows(rows: DataFrame, limit: WindowLimit, grid: Windows) -> DataFrame:
    """Rows over a stretch of windows, once for every window: `_vs` is its number."""
    others = [name for name in rows.columns if name not in (VS, VE)]
    # As decimals, since the difference may not fit.
    count = f.col(VE).cast("decimal(20,0)") - f.col(VS).cast("decimal(20,0)")
    names = {name: getattr(limit, name).replace("%", "%%") for name in ("step", "with_units")}
    words = replace(limit, **names).message(f"an event {FROM} %s", "%s")
    start = describe_time(window_lifetime(grid)[0], type_of_kind(kind_in_messages()))
    refused = f.raise_error(f.format_string(words, start, f.format_number(count, 0)))
    numbers = f.sequence(f.col(VS), f.col(VE) - 1)
    numbers = f.when(count > limit.most, refused.cast("array<bigint>")).otherwise(numbers)
    return rows.select(f.explode(numbers).alias(VS), *others)


def window_lifetime(grid: Windows) -> list[Column]:
    """The lifetimes of windows given by number."""
    window, offset = f.col(VS), grid.offset % grid.hop
    if grid.hop > 1:
        return [_at(grid.hop, offset).alias(VS), _at(grid.hop, offset + grid.size).alias(VE)]
    start = f.when(window < tick(GAP), add(window, -grid.size)).otherwise(window)
    return [start.alias(VS), f.when(window < tick(GAP), window).otherwise(add(window, grid.size)).alias(VE)]


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
