"""What travels between the stages of a pipeline: one row that holds many events.

Rows crossing between Spark and Python cost by their number, bytes hardly matter. So a stage sends each shard
of the next one packet with the events for it, as Arrow IPC, and in it the CTI that goes with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import CTI, INSERT, EventBatch, Index, concat, empty
from recension.core.errors import RecensionError, StreamError
from recension.core.formats.columns import COUNT, KIND, NEW_VE, VE, VS
from recension.core.placement import Placement, join_placements
from recension.core.records import record
from recension.core.rows import Origin, Rows
from recension.core.ticks import BEGINNING, FOREVER

# Columns that travel with events: the row of a file each came from, and what puts them in order.
ROW: Final = "_row"
ORDER: Final = "_order"
# Of a source with partitions: the partition that each is in, its order there, its run and its sequence, and
# whether it has one.
PARTITION: Final = "_partition"
PLACE: Final = "_place"
RUN: Final = "_run"
SEQUENCE: Final = "_sequence"
NUMBERED: Final = "_numbered"
# Before the names of a user's columns that say all this.
NAMED: Final = "_named "
# With a clock: where each stood among the rows that were sent together.
AT: Final = "_at"
# Instead of the number of an edge. The first two are for the end of the pipeline, the others for the engines:
# what readers do not need, and that time has passed.
OUTPUT: Final = -1
METRICS: Final = -2
FEEDBACK: Final = -3
TIME: Final = -4
# Most batches are inserts only: a control column that has these values throughout is not sent.
_DEFAULTS: Final = {KIND: INSERT, NEW_VE: FOREVER, COUNT: 0}
NOWHERE: Final = Placement((), np.zeros(0, np.int64))
_TYPES: Final = {KIND: np.uint8, NEW_VE: np.int64, COUNT: np.int64}


class Contents(NamedTuple):
    """Events, and the columns that travel with them."""

    events: EventBatch
    extra: Mapping[str, pa.Array]


class Packet(NamedTuple):
    """Events for a shard; or none, so that the shard takes part in the micro-batch."""

    shard: int
    """The number of the shard; while it travels, the key that Spark sends to the shard's partition."""
    edge: int
    """The number of the edge it travels on; or OUTPUT, METRICS, FEEDBACK, TIME."""
    place: str = ""
    """Where its events stand among all of this edge: a file, or the number of a shard."""
    position: int = 0
    """Where they stand in that place."""
    blob: bytes | Contents | None = None
    """The events, as bytes while they travel. A source's packet with a place and no blob: read that file."""
    latest_start: int = BEGINNING
    """From a source: the latest start that its task has seen."""
    cti: int = BEGINNING
    """From a shard: its CTI."""
    previous_cti: int = BEGINNING
    """From a shard to the end: its CTI before this micro-batch."""
    query: int = 0
    """From a shard to the end: the number of the query that it answers."""
    marks: bytes | None = None
    """On an edge with a clock: what all shards must know of the rows of which these are a part."""
    info: str = ""
    """Counts and messages, as JSON."""
    summary: bytes | None = None
    """From a task that reads a source with partitions: how far each has got (see summaries.py)."""
    now: int = 0
    """The timestamp of the micro-batch in microseconds, where a source or a step goes by it."""

    def seal(self) -> Packet:
        """The packet as it travels."""
        return self._replace(blob=_to_bytes(*self.blob)) if isinstance(self.blob, Contents) else self

    def open(self, schema: pa.Schema) -> Contents:
        """What it holds; ``schema`` is that of the events' payload."""
        assert self.blob is not None
        return self.blob if isinstance(self.blob, Contents) else from_buffer(self.blob, schema)


# The columns of packets in Spark and in Arrow.
SPARK_COLUMNS: Final = {
    "shard": "int",
    "edge": "int",
    "place": "string",
    "position": "long",
    "blob": "binary",
    "latest_start": "long",
    "cti": "long",
    "previous_cti": "long",
    "query": "int",
    "marks": "binary",
    "info": "string",
    "summary": "binary",
    "now": "long",
}
DDL: Final = ", ".join(f"{name} {kind}" for name, kind in SPARK_COLUMNS.items())
_ARROW: Final = {"int": pa.int32(), "long": pa.int64(), "string": pa.string(), "binary": pa.binary()}
PACKETS: Final = pa.schema([(name, _ARROW[kind]) for name, kind in SPARK_COLUMNS.items()])


def as_rows(events: EventBatch, extra: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Events, and the columns that travel with them, as rows; `from_buffer` reads them back."""
    columns = {VS: pa.array(events.vs), VE: pa.array(events.ve)}
    for name, values in ((KIND, events.kind), (NEW_VE, events.new_ve), (COUNT, events.count)):
        if bool((values != _DEFAULTS[name]).any()):
            columns[name] = pa.array(values)
    columns |= extra
    schema = pa.schema([*((n, c.type) for n, c in columns.items()), *events.schema])
    return pa.RecordBatch.from_arrays([*columns.values(), *events.payload.columns], schema=schema)


def _to_bytes(events: EventBatch, extra: Mapping[str, pa.Array]) -> bytes:
    rows, sink = as_rows(events, extra), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())


def from_buffer(blob: bytes | pa.Buffer, schema: pa.Schema) -> Contents:
    """Events that were written as an Arrow stream; ``schema`` is that of their payload."""
    rows = next(iter(pa.ipc.open_stream(pa.py_buffer(blob))))
    names = rows.schema.names
    controls = {
        name: rows.column(name).to_numpy() if name in names else np.full(rows.num_rows, value, _TYPES[name])
        for name, value in _DEFAULTS.items()
    }
    payload = pa.RecordBatch.from_arrays([rows.column(name) for name in schema.names], schema=schema)
    vs, ve = rows.column(VS).to_numpy(), rows.column(VE).to_numpy()
    events = EventBatch(controls[KIND], vs, ve, controls[NEW_VE], controls[COUNT], payload)
    return Contents(events, {n: rows.column(n) for n in names if travels(n)})


def travels(name: str) -> bool:
    """Is it a column that travels with events?"""
    return name in (ROW, AT, PARTITION, RUN, NUMBERED) or name.startswith((ORDER, PLACE, SEQUENCE))


def place_columns(placement: Placement) -> dict[str, pa.Array]:
    """Where rows stand, as columns that travel with them."""
    columns = {PARTITION: _coded(placement.code, placement.names)}
    columns |= {f"{PLACE}{i}": pa.array(column) for i, column in enumerate(placement.order)}
    columns |= {f"{SEQUENCE}{i}": pa.array(column) for i, column in enumerate(placement.sequence)}
    if placement.run is not None:
        columns[RUN] = _coded(placement.run, placement.runs)
    if placement.numbered is not None:
        columns[NUMBERED] = pa.array(placement.numbered)
    return columns


def _coded(codes: Index, texts: Sequence[str]) -> pa.DictionaryArray:
    kind = np.int16 if len(texts) < 1 << 15 else np.int32
    return pa.DictionaryArray.from_arrays(codes.astype(kind), pa.array(texts, pa.string()))


def placement_of(extra: Mapping[str, pa.Array]) -> Placement:
    """What `place_columns` gave."""
    code, names = _decoded(extra[PARTITION])
    run, runs = _decoded(extra[RUN]) if RUN in extra else (None, ("",))
    order = tuple(column.to_numpy() for name, column in extra.items() if name.startswith(PLACE))
    sequence = tuple(column.to_numpy() for name, column in extra.items() if name.startswith(SEQUENCE))
    numbered = extra[NUMBERED].to_numpy(zero_copy_only=False) if NUMBERED in extra else None
    return Placement(names, code, order, sequence, runs, run, numbered)


def order_columns(placement: Placement) -> dict[str, pa.Array]:
    """The columns that put rows in the order of their partitions, and of each."""
    names = pa.array(placement.names, pa.string()).take(pa.array(placement.code))
    return {f"{ORDER}{i}": column for i, column in enumerate([names, *map(pa.array, placement.order)])}


def _decoded(column: pa.DictionaryArray) -> tuple[Index, Sequence[str]]:
    return column.indices.to_numpy().astype(np.int64), column.dictionary.to_pylist()


@dataclass(slots=True)
class Inflow:
    """What came on one edge in one micro-batch: events in order, and the packets they came in."""

    events: EventBatch
    parts: list[tuple[str, Contents]]
    """What came from each place."""
    order: Index | None = None
    """Where each event stood before they were put in order."""
    marks: Sequence[bytes] = ()
    """On an edge with a clock: what was marked among the rows of which each part is one."""
    placement: Placement | None = None
    """Of a source with partitions: where each event stands."""

    def locate_row(self, row: int) -> tuple[str, int | None]:
        """File and row of the row-th event, as far as they are known."""
        row = row if self.order is None else int(self.order[row])
        for place, (events, extra) in self.parts:
            if row < len(events):
                return place, extra[ROW][row].as_py() if ROW in extra else None
            row -= len(events)
        return "", None

    def rows(self, source: str, order: Sequence[str] = ()) -> Rows:
        """The events with their origins; ``order`` names the columns that order the rows of a partition."""
        origin = _PacketOrigin(inflow=self, source=source, order=order)
        return Rows(self.events, origin, len(self.events), placement=self.placement)

    def has_several_runs(self) -> bool:
        """Are there elements of several runs of their producer?"""
        run = None if self.placement is None else self.placement.run
        return run is not None and bool((run[1:] != run[:-1]).any())

    def with_ctis_first(self) -> Inflow:
        """The same with CTIs before rows. Where each stands in its partition does not change by that.

        A CTI and a row may have the same order, and the later one is dropped then. All shards have the CTI,
        and one has the row: all must keep the CTI.
        """
        is_data = self.events.kind != CTI
        if self.placement is None or bool(is_data.all()):
            return self
        order = np.argsort(is_data, kind="stable")
        before = order if self.order is None else self.order[order]
        return Inflow(self.events.take(order), self.parts, before, self.marks, self.placement.take(order))


@record
class _PacketOrigin(Origin):
    """Rows that came in packets: from a file each, or from a place in the order of a partition."""

    inflow: Inflow | None = None
    source: str = ""
    order: Sequence[str] = ()

    def locate(self, position: int) -> tuple[str | None, int | None]:
        """File and row, as far as they are known."""
        assert self.inflow is not None
        file, row = self.inflow.locate_row(position)
        return file or self.source, row

    def error(self, reason: str, at: int) -> StreamError:
        """The fault of a row, with its partition and its order there."""
        assert self.inflow is not None
        position, placement = self.position(at), self.inflow.placement
        if placement is not None:
            partition = f"partition {placement.names[placement.code[position]]}"
            named = zip(self.order, placement.order, strict=True)
            place = ", ".join([partition, *(f"{name} {column[position]}" for name, column in named)])
            reason = f"{place}: {reason.removeprefix(f'{partition}: ')}"
        file, row = self.locate(position)
        return StreamError(reason, file=file, row=row, position=position)


def merge_packets(packets: list[Packet], schema: pa.Schema) -> Inflow:
    """The events of some packets: by the columns that order them, else by their places."""
    full = sorted((p for p in packets if p.blob is not None), key=lambda p: (p.place, p.position))
    parts = [(packet.place, packet.open(schema)) for packet in full]
    if not parts:
        return Inflow(empty(schema), [], placement=NOWHERE)
    events = concat([part.events for _, part in parts])
    marks = [packet.marks for packet in full if packet.marks is not None]
    placement = None
    if PARTITION in parts[0][1].extra:
        placement = join_placements([placement_of(part.extra) for _, part in parts])
    columns = [name for name in parts[0][1].extra if name.startswith(ORDER)]
    if not columns:
        return Inflow(events, parts, marks=marks, placement=placement)
    keys = pa.Table.from_batches(
        [pa.RecordBatch.from_pydict({name: part.extra[name] for name in columns}) for _, part in parts]
    )
    sort_keys = [(name, "ascending") for name in columns]
    order = pc.sort_indices(keys, sort_keys=sort_keys).to_numpy().astype(np.int64)
    placement = None if placement is None else placement.take(order)
    return Inflow(events.take(order), parts, order, marks, placement)


def require_file_order(known: dict[str, str], name: str, packets: Iterable[Packet]) -> None:
    """Refuse files whose names are not in the order of their age, by which Spark takes them."""
    places = [packet.place for packet in packets if packet.place]
    if not places:
        return
    last = known.get(name, "")
    if min(places) < last:
        raise RecensionError(
            f"{min(places)} came after {last}: Spark takes files by the time they were written, and a "
            "stream is its files in the order of their names; write them in that order"
        )
    known[name] = max(places)
