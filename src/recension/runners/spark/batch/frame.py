"""A history inside a batch job: `_vs`, `_ve` in ticks and payload columns `c0`, `c1`, ..."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from recension.core.errors import SchemaError

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
        return [position(i) for i in range(len(self.schema))]

    def name(self, column: str) -> str:
        """What Spark calls a payload column."""
        return position(self.schema.get_field_index(column))

    def column(self, column: str) -> Column:
        """A payload column."""
        return f.col(self.name(column))

    def timed(self, start: Column, end: Column) -> Frame:
        """The same payloads on other lifetimes; an empty one drops its event."""
        altered = self.df.select(start.alias(VS), end.alias(VE), *self.payload)
        return Frame(altered.where(f.col(VS) < f.col(VE)), self.schema)

    def renamed(self, prefix: str) -> DataFrame:
        """All columns under names that start with ``prefix``: the other side of a join."""
        return self.df.select(*(f.col(name).alias(f"{prefix}{name}") for name in self.df.columns))


def position(i: int) -> str:
    """The name of the i-th payload column."""
    return f"c{i}"


def framed(rows: DataFrame, columns: Mapping[str, Column], schema: pa.Schema) -> Frame:
    """A frame of rows that have `_vs` and `_ve`, with one column for each name of the schema."""
    if missing := [name for name in schema.names if name not in columns]:
        raise SchemaError(f"no column {missing[0]!r}")
    chosen = [columns[name].alias(position(i)) for i, name in enumerate(schema.names)]
    return Frame(rows.select(VS, VE, *chosen), schema)
