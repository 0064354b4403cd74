"""A history inside a batch job: `_vs`, `_ve` in ticks and payload columns `c0`, `c1`, ..."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as f

from recension.core.errors import SchemaError
from recension.core.ticks import FOREVER
from recension.runners.spark.batch.times import tick, to_times

VS = "_vs"
VE = "_ve"


@dataclass(frozen=True)
class Frame:
    """No time is null: an event that never ends ends at FOREVER. ``schema`` names the payload columns."""

    df: DataFrame
    schema: pa.Schema

    @property
    def payload(self) -> list[str]:
        """The payload columns as Spark knows them."""
        return [column_name(i) for i in range(len(self.schema))]

    def name(self, column: str) -> str:
        """What Spark calls a payload column."""
        return column_name(self.schema.get_field_index(column))

    def column(self, column: str) -> Column:
        """A payload column."""
        return f.col(self.name(column))

    def with_lifetimes(self, start: Column, end: Column) -> Frame:
        """The same payloads on other lifetimes; an empty one drops its event."""
        altered = self.df.select(start.alias(VS), end.alias(VE), *self.payload)
        return Frame(altered.where(f.col(VS) < f.col(VE)), self.schema)

    def add_prefix(self, prefix: str) -> DataFrame:
        """All columns under names that start with ``prefix``: the other side of a join."""
        return self.df.select(*(f.col(name).alias(f"{prefix}{name}") for name in self.df.columns))


def column_name(i: int) -> str:
    """The name of the i-th payload column."""
    return f"c{i}"


def make_frame(rows: DataFrame, columns: Mapping[str, Column], schema: pa.Schema) -> Frame:
    """A frame of rows that have `_vs` and `_ve`, with one column for each name of the schema."""
    if missing := [name for name in schema.names if name not in columns]:
        raise SchemaError(f"no column {missing[0]!r}")
    chosen = [columns[name].alias(column_name(i)) for i, name in enumerate(schema.names)]
    return Frame(rows.select(VS, VE, *chosen), schema)


def raise_if(bad: Column, message: Column) -> Column:
    """True, or an error with this message.

    Spark may move another filter in front of this one, which would then not see the bad rows. It moves no
    filter past what is not deterministic, so this is made to look so.
    """
    stop = f.raise_error(message).cast("boolean")
    is_in_place = f.spark_partition_id() >= 0
    return is_in_place & f.when(f.coalesce(bad, f.lit(False)), stop).otherwise(f.lit(True))


def repeat_rows(rows: DataFrame, count: str) -> DataFrame:
    """Every row as often as a column says."""
    copies = f.explode(f.array_repeat(f.lit(0), f.col(count).cast("int")))
    return rows.select("*", copies.alias("copy")).drop("copy")


def describe_event(names: Sequence[str], columns: Sequence[str], time_type: types.DataType) -> Column:
    """An event as text: its lifetime, and the payload under the user's names."""
    payload = f.to_json(f.struct(*(f.col(own).alias(name) for own, name in zip(columns, names, strict=True))))
    return f.concat(describe_lifetime(time_type), f.lit(" "), payload)


def describe_lifetime(time_type: types.DataType) -> Column:
    """`_vs` and `_ve` as text, written as the user wrote times."""
    return f.concat(
        f.lit("["),
        describe_time(f.col(VS), time_type),
        f.lit(", "),
        describe_time(f.col(VE), time_type),
        f.lit(")"),
    )


def describe_time(ticks: Column, time_type: types.DataType) -> Column:
    """A time as text; without end it has no timestamp."""
    time = f.when(ticks != tick(FOREVER), to_times(ticks, time_type)).cast("string")
    return f.coalesce(time, f.when(ticks.isNotNull(), f.lit("∞")), f.lit("null"))
