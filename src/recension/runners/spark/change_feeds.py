"""Rows of keyed sources from DataFrames of what databases send, as in `core.formats.change_feeds`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType

from recension.core.errors import SchemaError
from recension.core.formats.change_feeds import (
    DELETES,
    LOG_DELETED,
    LOG_TIME,
    LOG_VERSION,
    POST_IMAGES,
    PRE_IMAGES,
    ROW_FROM,
    STATES,
    Envelopes,
)
from recension.core.formats.columns import BATCH, KIND, SEQ, VE, VS
from recension.runners.spark.batch.times import to_ticks
from recension.runners.spark.types import carrier


def debezium_rows(frame: DataFrame, envelopes: Envelopes, name: str) -> DataFrame:
    """The rows of envelopes, by themselves or under ``payload``; a change of the key is two rows."""
    payload, key, version = envelopes.payload, envelopes.key, envelopes.version
    if "op" not in frame.columns and "payload" in frame.columns:
        frame = frame.select("payload.*")
    op, before, after = f.col("op"), f.col("before"), f.col("after")
    time = f.timestamp_millis(f.col("source.ts_ms").cast("bigint"))
    number = f.col(f"source.{version}").cast("bigint")
    states = op.isin(*STATES)
    there = {field.name for field in frame.schema["before"].dataType.fields}
    if missing := [column for column in key if column not in there]:
        raise SchemaError(f"{name}: no field {missing[0]} in before, which is in the key")
    given = {field.name for field in frame.schema["after"].dataType.fields}
    needed = [column for column in payload.names if column not in envelopes.optional]
    if missing := [column for column in needed if column not in given]:
        raise SchemaError(
            f"{name}: no field {missing[0]} in after; if it was added later, name it in optional="
        )
    moved = reduce(lambda a, b: a | b, (before[column] != after[column] for column in key))

    def row(image: Column, names: set[str], deleted: bool) -> Column:
        columns = [
            (image[one.name] if one.name in names else f.lit(None).cast(_type(frame, one))).alias(one.name)
            for one in payload
        ]
        extra = (time.alias(LOG_TIME), number.alias(LOG_VERSION), f.lit(deleted).alias(LOG_DELETED))
        return f.struct(*columns, *extra)

    gone = f.when((op == DELETES) | (states & f.coalesce(moved, f.lit(False))), row(before, there, True))
    unknown = f.raise_error(f.concat(f.lit(f"{name}: op "), op, f.lit(" is not the change of a row")))
    now = f.when(states, row(after, given, False))
    rows = f.when((op == DELETES) | states, f.array_compact(f.array(gone, now))).otherwise(unknown)
    made = frame.where(op.isNotNull()).select(f.explode(rows).alias("row"))
    return made.select("row.*")


def _type(frame: DataFrame, column: pa.Field) -> DataType:
    """The type of a column in the envelopes, or that of the source if they have none."""
    fields = {field.name: field.dataType for field in frame.schema["after"].dataType.fields}
    return fields.get(column.name) or carrier(column.type, column.name)


def delta_elements(frame: DataFrame, payload: pa.Schema) -> DataFrame:
    """The elements of Delta's change feed without a key, in the order of commits; without CTIs."""
    is_gone, time = _is_gone(f.col("_change_type")).cast("boolean"), f.col("_commit_timestamp")
    return frame.select(
        f.when(is_gone, "close").otherwise("open").alias(KIND),
        f.when(~is_gone, time).alias(VS),
        f.when(is_gone, time).alias(VE),
        f.col("_commit_version").cast("bigint").alias(BATCH),
        f.when(is_gone, 0).otherwise(1).cast("bigint").alias(SEQ),
        *(f.col(f"`{name}`") for name in payload.names),
    )


def _is_gone(kind: Column) -> Column:
    is_gone = kind.isin(*PRE_IMAGES)
    return f.when(is_gone | kind.isin(*POST_IMAGES), is_gone).otherwise(
        f.raise_error(f.concat(f.lit("_change_type "), kind, f.lit(" is not known")))
    )


def delta_rows(frame: DataFrame, payload: pa.Schema) -> DataFrame:
    """The rows of Delta's change feed."""
    kind = f.col("_change_type")
    is_gone, known = kind.isin(*PRE_IMAGES), _is_gone(kind)
    version = f.col("_commit_version").cast("bigint") * 2 + f.when(is_gone, 0).otherwise(1)
    return frame.select(
        *(f.col(f"`{name}`") for name in payload.names),
        f.col("_commit_timestamp").alias(LOG_TIME),
        version.alias(LOG_VERSION),
        known.cast("boolean").alias(LOG_DELETED),
    )


def scd2_rows(
    frame: DataFrame, payload: pa.Schema, start: str, end: str, current: str | None, extra: Sequence[str]
) -> DataFrame:
    """The rows of an SCD type 2 table; current ones have no end."""
    until = f.col(f"`{end}`")
    if current is not None:
        until = f.when(~f.coalesce(f.col(f"`{current}`"), f.lit(False)), until)
    since = to_ticks(f.col(f"`{start}`"), frame.schema[start].dataType)
    names = dict.fromkeys([*payload.names, *extra])
    return frame.select(
        *(f.col(f"`{name}`") for name in names),
        f.col(f"`{start}`"),
        until.alias(end),
        since.alias(ROW_FROM),
    )


def scd2_table(history: DataFrame, start: str, end: str, current: str) -> DataFrame:
    """A history as an SCD type 2 table; rows have no order."""
    names = [name for name in history.columns if name not in ("_vs", "_ve")]
    return history.select(
        *(f.col(f"`{name}`") for name in names),
        f.col("_vs").alias(start),
        f.col("_ve").alias(end),
        f.col("_ve").isNull().alias(current),
    )
