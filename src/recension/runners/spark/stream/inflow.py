"""What came on one edge in one micro-batch: events in order, and the place of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import EventBatch, Index, concat, empty
from recension.core.errors import StreamError
from recension.runners.spark.stream.blobs import events_of, rows_of
from recension.runners.spark.stream.packets import Packet

# Columns that travel beside the events: the row in a file, and what puts rows in order.
ROW = "_row"
ORDER = "_order"


@dataclass(slots=True)
class Inflow:
    """Events in order, and the packets they came in."""

    events: EventBatch
    packets: list[Packet]
    beside: list[pa.RecordBatch]
    order: Index | None = None
    """Where each event stood before they were put in order."""

    def place(self, row: int) -> tuple[str, int | None]:
        """File and row of the row-th event, as far as they are known."""
        row = row if self.order is None else int(self.order[row])
        for packet, rows in zip(self.packets, self.beside, strict=True):
            if row < rows.num_rows:
                known = ROW in rows.schema.names
                return packet.place, rows.column(ROW)[row].as_py() if known else None
            row -= rows.num_rows
        return "", None

    def placed(self, why: StreamError, source: str, rows_before: int) -> StreamError:
        """The error with the file and row it is about, where these are known."""
        if why.row is None:
            return why
        file, row = self.place(why.row - rows_before - 1)
        return StreamError(why.reason, file=file or source, row=row)


def inflow(packets: list[Packet], schema: pa.Schema) -> Inflow:
    """The events of some packets: by the columns that order them, else by their places."""
    full = sorted((p for p in packets if p.blob is not None), key=lambda p: (p.place, p.first))
    rows = [rows_of(packet.blob) for packet in full if packet.blob is not None]
    if not rows:
        return Inflow(empty(schema), [], [])
    events = concat([events_of(part, schema) for part in rows])
    columns = [name for name in rows[0].schema.names if name.startswith(ORDER)]
    if not columns:
        return Inflow(events, full, rows)
    keys = pa.Table.from_batches([part.select(columns) for part in rows])
    sort_keys = [(name, "ascending") for name in columns]
    order = pc.sort_indices(keys, sort_keys=sort_keys).to_numpy().astype(np.int64)
    return Inflow(events.take(order), full, rows, order)
