"""Columns of times between Spark's types and ticks, exact in any session time zone."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from recension.core.time_kind import TimeKind
from recension.runners.spark.batch.instants import floor_divide, tick

_DAY: Final = 86_400_000_000
_SECOND: Final = 1_000_000


def ticks(column: Column, kind: spark.DataType) -> Column:
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


def moments(column: Column, kind: spark.DataType) -> Column:
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
