"""Rows of keyed sources from DataFrames of what databases send, as in `core.formats.change_feeds`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StructType

from recension.core.errors import SchemaError
from recension.core.formats.change_feeds import (
    DELETES,
    LOG_DELETED,
    LOG_TIME,
    LOG_VERSION,
    NO_OP,
    POST_IMAGES,
    PRE_IMAGES,
    ROW_FROM,
    STATES,
    Envelopes,
    Scd2Columns,
)
from recension.core.formats.columns import BATCH, KIND, SEQ, VE, VS
from recension.runners.spark.batch.times import to_ticks
from recension.runners.spark.types import carrier


def debezium_rows(frame: DataFrame, envelopes: Envelopes, name: str) -> DataFrame:
    """The rows of envelopes, by themselves or under ``payload``; a change of the key is two rows."""
    forms = [""] if "op" in frame.columns else []
    inner = frame.schema["payload"].dataType if "payload" in frame.columns else None
    if isinstance(inner, StructType) and "op" in inner.names:
        forms.append("payload.")
    if not forms:
        raise SchemaError(f"{name}: no column op, nor one in payload; there are {', '.join(frame.columns)}")
    rows = [_Form(frame, prefix, envelopes, name).rows() for prefix in forms]
    made = frame.select(f.explode(f.coalesce(*rows)).alias("row"))
    return made.select("row.*")


class _Form:
    """Envelopes whose fields are found under a prefix."""

    def __init__(self, frame: DataFrame, prefix: str, envelopes: Envelopes, name: str) -> None:
        self._envelopes, self._name = envelopes, name
        self._op, self._before, self._after = (f.col(f"{prefix}{part}") for part in ("op", "before", "after"))
        self._time = f.timestamp_millis(f.col(f"{prefix}source.ts_ms").cast("bigint"))
        self._number = f.col(f"{prefix}source.{envelopes.version}").cast("bigint")
        schema = frame.select(f.col(f"{prefix}before"), f.col(f"{prefix}after")).schema
        self._were, self._are = (
            {field.name: field.dataType for field in schema[part].dataType.fields}
            for part in ("before", "after")
        )
        if missing := [column for column in envelopes.key if column not in self._were]:
            raise SchemaError(f"{name}: no field {missing[0]} in before, which is in the key")
        needed = [column for column in envelopes.payload.names if column not in envelopes.optional]
        if missing := [column for column in needed if column not in self._are]:
            raise SchemaError(
                f"{name}: no field {missing[0]} in after; if it was added later, name it in optional="
            )

    def rows(self) -> Column:
        """The rows of an envelope; null if there is none, as in a tombstone."""
        op, before, after = self._op, self._before, self._after
        states = op.isin(*STATES)
        moved = reduce(lambda a, b: a | b, (before[key] != after[key] for key in self._envelopes.key))
        is_gone = (op == DELETES) | (states & f.coalesce(moved, f.lit(False)))
        gone = f.when(is_gone, self._row(before, self._were, deleted=True))
        now = f.when(states, self._row(after, self._are, deleted=False))
        words = f.concat(f.lit(f"{self._name}: op "), op, f.lit(" is not the change of a row"))
        rows = f.when((op == DELETES) | states, f.array_compact(f.array(gone, now)))
        says_more = before.isNotNull() | after.isNotNull()
        without = f.raise_error(f.lit(f"{self._name}: {NO_OP}"))
        return rows.when(op.isNotNull(), f.raise_error(words)).when(says_more, without)

    def _row(self, image: Column, there: Mapping[str, DataType], *, deleted: bool) -> Column:
        columns = [
            (image[one.name] if one.name in there else f.lit(None)).cast(self._type(one)).alias(one.name)
            for one in self._envelopes.payload
        ]
        extra = (
            self._time.alias(LOG_TIME),
            self._number.alias(LOG_VERSION),
            f.lit(deleted).alias(LOG_DELETED),
        )
        return f.struct(*columns, *extra)

    def _type(self, column: pa.Field) -> DataType:
        """The type of a column in the envelopes, or that of the source if they have none."""
        return self._are.get(column.name) or carrier(column.type, column.name)


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


def scd2_rows(frame: DataFrame, columns: Scd2Columns) -> DataFrame:
    """The rows of an SCD type 2 table; current ones have no end. Rows that were never true are left out."""
    start, end, current = columns.start, columns.end, columns.current
    until = f.col(f"`{end}`")
    if current is not None:
        until = f.when(~f.coalesce(f.col(f"`{current}`"), f.lit(False)), until)
    since = to_ticks(f.col(f"`{start}`"), frame.schema[start].dataType)
    names = dict.fromkeys([*columns.payload.names, *columns.extra])
    is_empty = f.coalesce(since == to_ticks(until, frame.schema[end].dataType), f.lit(False))
    if columns.deleted is not None:
        is_empty &= ~f.coalesce(f.col(f"`{columns.deleted}`"), f.lit(False))
    return frame.where(~is_empty).select(
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
