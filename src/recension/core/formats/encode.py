"""Stream elements and histories as the rows of a file."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from recension.core.batch import EXTERNAL_CTI, KIND_NAMES, EventBatch
from recension.core.errors import SchemaError, TimeError
from recension.core.formats.columns import (
    COUNT,
    KIND,
    NEW_VE,
    VE,
    VS,
    plain_type,
    refuse_reserved,
)
from recension.core.history import History
from recension.core.ticks import to_arrow


@cache
def _kinds() -> pa.Array:
    # Made when first needed: making an array may load pandas, which an import must not do.
    return pa.array(KIND_NAMES)


def stream_schema(payload: pa.Schema, time_type: pa.DataType) -> pa.Schema:
    """The columns of a stream file."""
    times = [pa.field(name, _check_time_type(time_type)) for name in (VS, VE, NEW_VE)]
    return pa.schema(
        [pa.field(KIND, pa.string()), *times, pa.field(COUNT, pa.int64()), *_plain_fields(payload)]
    )


def history_schema(payload: pa.Schema, time_type: pa.DataType) -> pa.Schema:
    """The columns of a history file."""
    return pa.schema(
        [*(pa.field(name, _check_time_type(time_type)) for name in (VS, VE)), *_plain_fields(payload)]
    )


def _check_time_type(time_type: pa.DataType) -> pa.DataType:
    if pa.types.is_int64(time_type) or (pa.types.is_timestamp(time_type) and time_type.unit == "us"):
        return time_type
    raise TimeError(f"times are written as int64 or as microsecond timestamps, not as {time_type}")


def _plain_fields(payload: pa.Schema) -> list[pa.Field]:
    refuse_reserved(payload)
    return [pa.field(f.name, plain_type(f.type)) for f in payload]


def stream_rows(batch: EventBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch as rows of the given stream schema."""
    time_type = schema.field(VS).type
    columns = [
        _kinds().take(pa.array(batch.kind)),
        # Only a CTI starts at the end of time, and there null says so in every time type.
        to_arrow(batch.vs, time_type, null_forever=True),
        to_arrow(batch.ve, time_type, null_forever=True),
        to_arrow(batch.new_ve, time_type, null_forever=True),
        pa.array(batch.count, mask=batch.kind != EXTERNAL_CTI),
    ]
    return _assemble(columns, batch.payload.columns, batch.schema, schema)


def history_rows(history: History, schema: pa.Schema, size: int) -> list[pa.RecordBatch]:
    """A history as rows of the given history schema, ``size`` at a time."""
    time_type = schema.field(VS).type
    vs = to_arrow(history.vs, time_type, null_forever=False)
    ve = to_arrow(history.ve, time_type, null_forever=True)
    batches = []
    for start in range(0, len(history), size):
        payload = [column.slice(start, size).combine_chunks() for column in history.payload.columns]
        times = [vs.slice(start, size), ve.slice(start, size)]
        batches.append(_assemble(times, payload, history.schema, schema))
    return batches


def _assemble(
    control: list[pa.Array], payload: list[pa.Array], found: pa.Schema, schema: pa.Schema
) -> pa.RecordBatch:
    if found.names != schema.names[len(control) :]:
        expected, there = ", ".join(schema.names[len(control) :]), ", ".join(found.names)
        raise SchemaError(f"payload columns differ: {there} instead of {expected}")
    columns = [*control, *payload]
    return pa.record_batch([_cast(c, f) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise SchemaError(f"column {field.name} is {column.type}, not {field.type}") from None
