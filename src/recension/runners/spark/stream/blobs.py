"""Batches of events as bytes: Arrow IPC, without the control columns that say nothing.

Most batches are inserts only; their kinds, new ends and counts need no bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch
from recension.core.formats.columns import COUNT, KIND, NEW_VE, VE, VS
from recension.core.ticks import FOREVER

_DEFAULTS: Final = {KIND: INSERT, NEW_VE: FOREVER, COUNT: 0}
_TYPES: Final = {KIND: np.uint8, NEW_VE: np.int64, COUNT: np.int64}


def to_blob(batch: EventBatch, beside: Mapping[str, pa.Array] | None = None) -> bytes:
    """The batch, and columns that travel beside it, as bytes."""
    columns = {VS: pa.array(batch.vs), VE: pa.array(batch.ve)}
    for name, values in ((KIND, batch.kind), (NEW_VE, batch.new_ve), (COUNT, batch.count)):
        if bool((values != _DEFAULTS[name]).any()):
            columns[name] = pa.array(values)
    columns |= dict(beside or {})
    schema = pa.schema([*((n, c.type) for n, c in columns.items()), *batch.schema])
    rows = pa.RecordBatch.from_arrays([*columns.values(), *batch.payload.columns], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())


def rows_of(blob: bytes) -> pa.RecordBatch:
    """The rows that `to_blob` wrote."""
    return next(iter(pa.ipc.open_stream(pa.py_buffer(blob))))


def events_of(rows: pa.RecordBatch, schema: pa.Schema) -> EventBatch:
    """The events in the rows; ``schema`` is their payload's."""
    size = rows.num_rows
    named = {
        name: rows.column(name).to_numpy()
        if name in rows.schema.names
        else np.full(size, default, _TYPES[name])
        for name, default in _DEFAULTS.items()
    }
    payload = pa.RecordBatch.from_arrays([rows.column(name) for name in schema.names], schema=schema)
    vs, ve = rows.column(VS).to_numpy(), rows.column(VE).to_numpy()
    return EventBatch(named[KIND], vs, ve, named[NEW_VE], named[COUNT], payload)
