"""A DataFrame given by the user, its columns read by position: no name meets Spark's rules for names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from recension.core.errors import RecensionError, SchemaError, nearest
from recension.core.formats.columns import KIND, Layout, TimeColumns, layout_of
from recension.runners.spark.batch.times import moments, ticks, type_of_kind
from recension.runners.spark.types import arrow_type, carrier

_WIDENING = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class Table:
    """A DataFrame under a name for messages."""

    given: DataFrame
    name: str
    start: str | None = None
    end: str | None = None

    @staticmethod
    def of(given: Any, name: str, start: str | None = None, end: str | None = None) -> Table:
        """What was given, if it is a DataFrame that a batch job can read."""
        if not isinstance(given, DataFrame):
            raise RecensionError(f"{name}: a batch run reads Spark DataFrames, not a {type(given).__name__}")
        if given.isStreaming:
            raise RecensionError(f"{name}: a streaming DataFrame; run it with rc.spark.stream")
        return Table(given, name, start, end)

    @cached_property
    def layout(self) -> Layout:
        """What the columns mean, or an error that names the one that is wrong."""
        is_stream = KIND in self.given.columns
        times = TimeColumns() if is_stream else TimeColumns(self.start, self.end)
        fields = [pa.field(field.name, self._arrow(field)) for field in self.given.schema]
        return layout_of(pa.schema(fields), times, self.name)

    def _arrow(self, field: spark.StructField) -> pa.DataType:
        try:
            return arrow_type(field.dataType)
        except (PySparkException, TypeError, ValueError):
            kind = field.dataType.simpleString()
            raise SchemaError(f"{self.name}: column {field.name} is {kind}, which is not supported") from None

    @cached_property
    def rows(self) -> DataFrame:
        """The rows, columns by position."""
        return self.given.toDF(*(f"x{i}" for i in range(len(self.given.columns))))

    @cached_property
    def _found(self) -> Mapping[str, tuple[Column, spark.DataType]]:
        fields = self.given.schema.fields
        return {field.name: (f.col(f"x{i}"), field.dataType) for i, field in enumerate(fields)}

    def has(self, name: str) -> bool:
        """Is there such a column?"""
        return name in self._found

    def column(self, name: str) -> Column:
        """A column by its name, null where there is none."""
        return self._found[name][0] if name in self._found else f.lit(None)

    def ticks(self, name: str) -> Column:
        """A column of times as ticks, null where there is none."""
        return ticks(*self._found[name]) if name in self._found else f.lit(None).cast("bigint")

    @property
    def time_type(self) -> spark.DataType:
        """The type in which its times are given back."""
        return type_of_kind(self.layout.kind)

    def payload(self, schema: pa.Schema) -> dict[str, Column]:
        """The payload columns as the carriers of their declared types; one that does not fit is refused."""
        return {field.name: self._carried(field) for field in schema}

    def _carried(self, field: pa.Field) -> Column:
        if field.name not in self._found or field.name not in self.layout.payload.names:
            names = self.layout.payload.names
            hint, there = nearest(field.name, names), ", ".join(names) or "none"
            raise SchemaError(f"{self.name}: no column {field.name}{hint}; the payload columns are {there}")
        (column, found), wanted = self._found[field.name], carrier(field.type, field.name)
        if found.simpleString() == wanted.simpleString():
            return column
        if _is_time(found) and _is_time(wanted):
            return moments(ticks(column, found), wanted)
        if _fits(found, wanted):
            return column.cast(wanted)
        raise SchemaError(
            f"{self.name}: column {field.name} is {found.simpleString()}, but the source says "
            f"{field.type}, which is {wanted.simpleString()} in Spark; cast it"
        )


def _is_time(kind: spark.DataType) -> bool:
    return isinstance(kind, spark.TimestampType | spark.TimestampNTZType)


def _fits(found: spark.DataType, wanted: spark.DataType) -> bool:
    """Does every value survive the cast?"""
    small, large = found.simpleString(), wanted.simpleString()
    if small in _WIDENING and large in _WIDENING:
        return _WIDENING.index(small) < _WIDENING.index(large)
    return small == "void" or (small, large) == ("float", "double")
