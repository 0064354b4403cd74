"""The rows of one micro-batch, put in the order of ``(_batch, _seq)``, and the elements they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from recension.core.batch import EXTERNAL_CTI, EventBatch
from recension.core.errors import SchemaError, StreamError
from recension.core.formats.columns import BATCH, KIND, SEQ, VS, Layout, TimeColumns, layout_of
from recension.core.formats.decode import Decoder
from recension.core.formats.stream_files import row_numbers

NEEDED = (KIND, VS, BATCH, SEQ)


@dataclass(frozen=True)
class MicroBatch:
    """What a query put out in one step.

    ``content`` tells what the step was made of, ``before`` the same of the one before it, if that is known.
    """

    query: str
    number: int
    rows: pa.RecordBatch
    content: str = ""
    before: str | None = None

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"micro-batch {self.number}"

    @cached_property
    def layout(self) -> Layout:
        """What its columns mean."""
        return layout_of(self.rows.schema, TimeColumns(), self.name)

    def events(self) -> EventBatch:
        """The elements; only those an engine puts out may be there."""
        decoder = Decoder(self.layout.payload, "raise")
        events = decoder.decode(self.rows, self.layout, self.name, 1).batch
        if bool((events.kind > EXTERNAL_CTI).any()):
            raise StreamError(f"{self.name}: open and close rows; a sink takes the output of a query")
        return events


def micro_batch(
    query: str, number: int, table: pa.Table, content: str = "", before: str | None = None
) -> MicroBatch:
    """A micro-batch as several tasks wrote it, in order."""
    parts = table.combine_chunks().to_batches()
    rows = parts[0] if parts else pa.RecordBatch.from_pylist([], schema=table.schema)
    if len(parts) > 1:
        raise StreamError(f"micro-batch {number}: a column of more than 2 GB; make the micro-batches smaller")
    batch, seq = row_numbers(rows, f"micro-batch {number}", 1)
    order = np.lexsort((seq, batch))
    if not bool((order == np.arange(len(order))).all()):
        rows = rows.take(pa.array(order))
    return MicroBatch(query, number, rows, content, before)


def check_columns(schema: pa.Schema) -> None:
    """Refuse a DataFrame that is not the output of a query."""
    if missing := [name for name in NEEDED if name not in schema.names]:
        raise SchemaError(
            f"no column {missing[0]}: a sink takes a stream with _kind, _vs, _ve, _new_ve, _batch and _seq, "
            "as rc.spark.stream gives it"
        )
    layout_of(schema, TimeColumns(), "the DataFrame")
