"""What came on one edge in one micro-batch: events in order, and the place of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import EventBatch, Index, concat, empty
from recension.core.errors import StreamError
from recension.runners.spark.stream.packets import ORDER, ROW, Contents, Packet


@dataclass(slots=True)
class Inflow:
    """Events in order, and the packets they came in."""

    events: EventBatch
    parts: list[tuple[str, Contents]]
    """What came from each place."""
    order: Index | None = None
    """Where each event stood before they were put in order."""

    def place(self, row: int) -> tuple[str, int | None]:
        """File and row of the row-th event, as far as they are known."""
        row = row if self.order is None else int(self.order[row])
        for place, (events, beside) in self.parts:
            if row < len(events):
                return place, beside[ROW][row].as_py() if ROW in beside else None
            row -= len(events)
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
    parts = [(packet.place, packet.opened(schema)) for packet in full]
    if not parts:
        return Inflow(empty(schema), [])
    events = concat([part.events for _, part in parts])
    columns = [name for name in parts[0][1].beside if name.startswith(ORDER)]
    if not columns:
        return Inflow(events, parts)
    beside = [{name: part.beside[name] for name in columns} for _, part in parts]
    keys = pa.Table.from_batches([pa.RecordBatch.from_pydict(own) for own in beside])
    sort_keys = [(name, "ascending") for name in columns]
    order = pc.sort_indices(keys, sort_keys=sort_keys).to_numpy().astype(np.int64)
    return Inflow(events.take(order), parts, order)
