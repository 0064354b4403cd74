"""Arithmetic on columns of ticks, saturated as in `core.ticks`: both ends of time absorb what is added."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

from recension.core.ticks import BEGINNING, FOREVER


def tick(t: int) -> Column:
    """A time as a column."""
    return f.lit(t).cast("bigint")


def add(times: Column, delta: int) -> Column:
    """``times + delta``, saturated; a delta of ``FOREVER`` is endless."""
    if delta == FOREVER:
        return tick(FOREVER)
    is_end = (times == tick(FOREVER)) | (times == tick(BEGINNING))
    if delta >= 0:
        beyond, at = times > tick(FOREVER - delta), FOREVER
    else:
        beyond, at = times < tick(BEGINNING - delta), BEGINNING
    return f.when(is_end, times).when(beyond, tick(at)).otherwise(times + tick(delta))


def floor(times: Column, step: int) -> Column:
    """The greatest multiple of ``step`` at or before each time; ends of time stay."""
    is_end = (times == tick(FOREVER)) | (times == tick(BEGINNING))
    past = f.pmod(times, tick(step))
    # Where the multiple lies before the beginning of time, it is the beginning.
    below = times < tick(BEGINNING) + past
    return f.when(is_end, times).when(below, tick(BEGINNING)).otherwise(times - past)


def floor_divide(times: Column, step: int) -> Column:
    """The whole number of steps up to each time, rounded down."""
    # Not by way of the multiple of the step, which may lie before the beginning of time.
    is_past = (times < 0) & (f.pmod(times, tick(step)) != 0)
    return f.call_function("div", times, tick(step)) - f.when(is_past, tick(1)).otherwise(tick(0))
