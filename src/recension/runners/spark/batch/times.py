"""Columns of times: between Spark's types and ticks, exact in any session time zone, and in arithmetic.

Arithmetic on ticks is saturated as in `core.ticks`: both ends of time absorb what is added.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from recension.core.ticks import BEGINNING, FOREVER
from recension.core.time_kind import TimeKind

_DAY: Final = 86_400_000_000
_SECOND: Final = 1_000_000


def to_ticks(column: Column, kind: spark.DataType) -> Column:
    """Times as ticks, nulls kept. Timestamps without a zone, and dates, are taken as UTC."""
    if isinstance(kind, spark.TimestampType):
        return f.unix_micros(column)
    if isinstance(kind, spark.TimestampNTZType):
        return f.unix_micros(
            _at_utc(column, f.hour(column), f.minute(column), f.extract(f.lit("SECOND"), column))
        )
    if isinstance(kind, spark.DateType):
        return f.unix_micros(_at_utc(column, f.lit(0), f.lit(0), f.lit(0)))
    return column.cast("bigint")


def _at_utc(day: Column, hour: Column, minute: Column, second: Column) -> Column:
    return f.make_timestamp(f.year(day), f.month(day), f.day(day), hour, minute, second, f.lit("UTC"))


def to_times(column: Column, kind: spark.DataType) -> Column:
    """Ticks as times of a type, nulls kept."""
    if isinstance(kind, spark.TimestampType):
        return f.timestamp_micros(column)
    if isinstance(kind, spark.TimestampNTZType):
        rest = f.pmod(column, tick(_DAY)).cast("decimal(18,6)") / f.lit(_SECOND)
        days = floor_divide(column, _DAY).cast("int")
        since = f.make_dt_interval(days, f.lit(0), f.lit(0), rest.cast("decimal(18,6)"))
        return f.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'") + since
    return column


def type_of_kind(kind: TimeKind) -> spark.DataType:
    """The type in which times of a kind are given back; instants have the session's zone in Spark."""
    if kind is None or pa.types.is_integer(kind):
        return spark.LongType()
    return spark.TimestampType() if kind.tz else spark.TimestampNTZType()


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
