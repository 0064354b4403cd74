"""The output of many queries as one stream, so that one table of any format can hold it.

A row has the number of its query, and its payload as bytes. The queries have CTIs of their own, and a stream
has one: so a query's CTI is an event in a column of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tests.runners.spark.stream.rehearsal import output_of

import recension as rc
from recension.core.batch import CTI, EventBatch, concat, cti, empty, from_elements
from recension.core.events import Event
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.history import History
from recension.runners.exchange.packets import Packet
from recension.runners.spark.sinks.micro_batch import micro_batch
from recension.runners.spark.stream.task import batch_id
from recension.runners.spark.stream.topology import Topology
from recension.runners.spark.stream.unpacking import output_schema
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel

PAYLOAD: Final = pa.schema([("query", pa.int64()), ("cti", pa.int64()), ("payload", pa.binary())])
COLUMNS: Final = output_schema(PAYLOAD, pa.int64())


class Places(NamedTuple):
    """Where a query writes, as `rc.spark.write` takes it."""

    changelog: str
    history: str
    checkpoint: str


@dataclass(frozen=True)
class Uniting:
    """For ``mapInArrow``: all packets of a micro-batch into rows of one stream."""

    plan: Topology

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        packets = [Packet(**row) for batch in batches for row in batch.to_pylist()]
        if not packets:
            return
        found = [_named(n, output_of(self.plan, packets, n)) for n in range(len(self.plan.roots))]
        events = concat(found)
        number = pa.array(np.full(len(events), batch_id()))
        yield _rows(events, [number, pa.array(np.arange(len(events)))])


def _rows(events: EventBatch, numbers: list[pa.Array]) -> pa.RecordBatch:
    rows = stream_rows(events, stream_schema(PAYLOAD, pa.int64()))
    return pa.RecordBatch.from_arrays([*rows.columns, *numbers], schema=COLUMNS)


def _named(query: int, events: EventBatch) -> EventBatch:
    """The elements of a query as they are in the stream of all."""
    data = events.filter(events.kind != CTI)
    # Equal payloads must be equal bytes: built from values, and not cut out of arrays.
    values = [_packed(row, events.schema) for row in data.payload.to_pylist()]
    columns = [pa.array([query] * len(data), pa.int64()), pa.nulls(len(data), pa.int64())]
    payload = pa.RecordBatch.from_arrays([*columns, pa.array(values, pa.binary())], schema=PAYLOAD)
    kept = EventBatch(data.kind, data.vs, data.ve, data.new_ve, data.count, payload)
    ctis = [
        rc.Insert({"query": query, "cti": int(at), "payload": None}, 0, 1)
        for at in events.vs[events.kind == CTI]
    ]
    return concat([kept, from_elements(ctis, PAYLOAD)])


def _packed(row: dict[str, Any], schema: pa.Schema) -> bytes:
    return bytes(pa.RecordBatch.from_pylist([row], schema).serialize())


def _unpacked(values: Iterable[bytes], schema: pa.Schema) -> pa.RecordBatch:
    rows = [pa.ipc.read_record_batch(pa.py_buffer(value), schema) for value in values]
    return pa.concat_batches(rows) if rows else pa.RecordBatch.from_pylist([], schema)


def read_answers(spark: Any, where: Places, plan: Topology, turns: int) -> list[list[EventBatch]]:
    """For each query what the changelog says that it put out in each micro-batch; the history must agree."""
    rows = rc.spark.read_changelog(spark, where.changelog).toArrow()
    batches = [micro_batch("", n, rows.filter(pc.equal(rows["_batch"], n))).events() for n in range(turns)]
    history = History.from_arrow(rc.spark.read_history(spark, where.history).toArrow())
    found = []
    for query, root in enumerate(plan.roots):
        own = [_of_query(batch, query, root.schema) for batch in batches]
        shown = StreamModel()
        for batch in own:
            for element in batch.to_elements():
                shown.take(element)
        assert_equivalent(_events(history, query, root.schema), shown.events())
        found.append(own)
    return found


def _of_query(batch: EventBatch, query: int, schema: pa.Schema) -> EventBatch:
    mine = batch.filter(_is(batch.payload, query))
    is_cti = np.asarray(mine.payload.column("cti").is_valid())
    data = mine.filter(~is_cti)
    payload = _unpacked(data.payload.column("payload").to_pylist(), schema)
    kept = EventBatch(data.kind, data.vs, data.ve, data.new_ve, data.count, payload)
    ctis = [cti(at, schema) for at in mine.filter(is_cti).payload.column("cti").to_pylist()]
    return concat([kept, *ctis]) if len(kept) or ctis else empty(schema)


def _events(history: History, query: int, schema: pa.Schema) -> list[Event]:
    is_mine = _is(history.payload, query) & np.asarray(history.payload.column("payload").is_valid())
    rows = np.flatnonzero(is_mine)
    payload = _unpacked(history.payload.column("payload").take(pa.array(rows)).to_pylist(), schema)
    return History(history.vs[rows], history.ve[rows], pa.Table.from_batches([payload], schema)).to_events()


def _is(payload: pa.RecordBatch | pa.Table, query: int) -> Any:
    return np.asarray(pc.equal(payload.column("query"), query))
