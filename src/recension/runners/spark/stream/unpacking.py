"""Packets at the end of the pipeline into rows of the output stream.

Read in the order of (_batch, _seq) the rows are a valid stream: what each shard gave, in its order; then one
CTI, the least over all shards, if it advanced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, concat, cti
from recension.core.formats.columns import BATCH, SEQ
from recension.core.formats.encode import stream_rows, stream_schema
from recension.runners.exchange.packets import METRICS, OUTPUT, Packet
from recension.runners.spark.stream.feedback import publish_feedback
from recension.runners.spark.stream.task import batch_id, freeze_gc
from recension.runners.spark.types import arrow_carrier

LAST: Final = 2**62
_SHARD: Final = 2**40
REPORT: Final = "_report"


def output_schema(payload: pa.Schema, time_type: pa.DataType) -> pa.Schema:
    """The columns of the output stream as Spark can hold them; a column that it cannot is refused."""
    columns = [
        field.with_type(arrow_carrier(field.type, field.name)) if field.name in payload.names else field
        for field in stream_schema(payload, time_type)
    ]
    return pa.schema([*columns, (BATCH, pa.int64()), (SEQ, pa.int64())])


class Unpacker:
    """For ``mapInArrow``: packets of the output into rows. It gets the CTIs of all shards.

    With ``in_order`` the output has an order to keep: it is then merged here, in one task.
    """

    def __init__(
        self,
        schema: pa.Schema,
        time_type: pa.DataType,
        *,
        first_key: int,
        in_order: bool,
        feedback: Path | None = None,
    ) -> None:
        self._schema, self._time_type = schema, time_type
        self._columns = output_schema(schema, time_type)
        self._first_key, self._in_order = first_key, in_order
        self._feedback = feedback

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        yield from self.rows([Packet(**row) for batch in batches for row in batch.to_pylist()])

    def rows_and_reports(self, packets: list[Packet]) -> pa.RecordBatch:
        """The rows, and after them the reports of the engines, in a column of its own.

        All in one batch: each costs Spark some milliseconds, however small it is.
        """
        schema, rows = self.reporting_schema(), list(self.rows(packets))
        reports = [{REPORT: packet.info} for packet in packets if packet.edge == METRICS]
        parts = [batch.append_column(REPORT, pa.nulls(batch.num_rows, pa.string())) for batch in rows]
        return pa.concat_batches([*parts, pa.RecordBatch.from_pylist(reports, schema)])

    @property
    def is_simple(self) -> bool:
        """Do all columns pass through pandas as they are?"""
        carried = [self._columns.field(name) for name in self._schema.names]
        return REPORT not in self._schema.names and all(_is_simple(field.type) for field in carried)

    def schema(self) -> pa.Schema:
        """The columns of the output."""
        return self._columns

    def reporting_schema(self) -> pa.Schema:
        """The columns of the output, and that of the reports."""
        return pa.schema([*self.schema(), (REPORT, pa.string())])

    def rows(self, packets: list[Packet]) -> Iterator[pa.RecordBatch]:
        """The rows of the output that one task gives."""
        mine = [packet for packet in packets if packet.edge == OUTPUT]
        if not mine:
            return
        batch = batch_id()
        full = sorted((p for p in mine if p.blob is not None), key=lambda p: int(p.place))
        parts = [(int(p.place), p.open(self._schema).events) for p in full]
        for shard, events in self._merge_in_order(parts):
            yield self._encode(events, batch, shard * _SHARD)
        now, before = (min(p.cti for p in mine), min(p.previous_cti for p in mine))
        if now > before and mine[0].shard == self._first_key:
            yield self._encode(cti(now, self._schema), batch, LAST)
            # If this micro-batch is run again it gets as far, so this may be published before it is done.
            if self._feedback is not None:
                publish_feedback(self._feedback, now)

    def _merge_in_order(self, parts: list[tuple[int, EventBatch]]) -> list[tuple[int, EventBatch]]:
        if not self._in_order or len(parts) < 2:
            return parts
        events = concat([events for _, events in parts])
        return [(0, events.take(np.argsort(events.sync(), kind="stable")))]

    def _encode(self, events: EventBatch, batch: int, first: int) -> pa.RecordBatch:
        rows = stream_rows(events, stream_schema(self._schema, self._time_type))
        size = len(events)
        order = [pa.array(np.full(size, batch)), pa.array(np.arange(first, first + size))]
        columns = zip([*rows.columns, *order], self._columns, strict=True)
        carried = [column.cast(field.type, safe=False) for column, field in columns]
        return pa.RecordBatch.from_arrays(carried, schema=self._columns)


def _is_simple(kind: pa.DataType) -> bool:
    t = pa.types
    tests = (t.is_signed_integer, t.is_float32, t.is_float64, t.is_boolean, t.is_string, t.is_binary)
    return any(test(kind) for test in tests)
