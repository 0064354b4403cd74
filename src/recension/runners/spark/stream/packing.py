"""Rows of an input into packets: decoded, each event to the shard its route names, promises to all.

Every task sends every shard a packet, if only to say that it had nothing for it: so every shard takes part
in every micro-batch, and knows the latest start that any task has seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, EventBatch
from recension.core.errors import FormatError, TimeError
from recension.core.formats.columns import KIND, TimeColumns, layout_of
from recension.core.formats.decode import Decoder
from recension.core.formats.listing import StoredFile
from recension.core.formats.reader import open_file
from recension.core.formats.stream_files import StreamFile, row_numbers
from recension.core.ticks import BEGINNING
from recension.core.time_kind import merge_kinds
from recension.plan.nodes import Source
from recension.runners.spark.stream.names import own_name
from recension.runners.spark.stream.packets import ORDER, ROW, Contents, Packet
from recension.runners.spark.stream.routing import Router
from recension.runners.spark.stream.task import keep_what_is_loaded, task_number
from recension.runners.spark.stream.topology import Topology

# The file in which a stream is told to be at its end: a stream file like any other, in a folder of its own.
CLOSING: Final = "closing.jsonl"
_AFTER_ALL: Final = "\U0010ffff"
FILE: Final = "_file"
_ROWS: Final = 1 << 19
# Where rows have no place, packets are in the order of tasks: a second attempt must give what the first gave.
_MOST_SENT: Final = 1 << 32
PACKETS: Final = pa.schema(
    [
        ("shard", pa.int32()),
        ("edge", pa.int32()),
        ("place", pa.string()),
        ("first", pa.int64()),
        ("blob", pa.binary()),
        ("cti", pa.int64()),
        ("previous", pa.int64()),
        ("info", pa.string()),
    ]
)


class SourcePacker:
    """For ``mapInArrow``: the rows of one source into packets for the edges of one level that read it."""

    def __init__(self, topology: Topology, source: str, level: int, keys: list[int]) -> None:
        self._topology, self._source, self._level, self._keys = topology, source, level, keys

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_what_is_loaded()
        packing = Packing(self._topology, self._source, self._level, task_number())
        for packet in chain(self.packets(packing, batches), packing.farewell()):
            # A batch a packet: they are large.
            row = packet.sealed()._replace(shard=self._keys[packet.shard])._asdict()
            yield pa.RecordBatch.from_pylist([row], PACKETS)

    def packets(self, packing: Packing, batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
        """What one task sends for its rows."""
        for rows in _gathered(batches):
            for run in _runs(rows.rename_columns([own_name(name) for name in rows.schema.names])):
                yield from packing.packets(run)


class FilePacker(SourcePacker):
    """The same for files that the task reads itself, given their paths."""

    def packets(self, packing: Packing, batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
        for path in paths_of(batches):
            yield from packing.read(path)


def paths_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Path]:
    """The files that Spark has found."""
    for address in (address for batch in batches for address in batch.column("path").to_pylist()):
        yield local_path(address)


class Packing:
    """One task's work: what it sends to all shards, or to the one that does this for itself."""

    def __init__(
        self, topology: Topology, source: str, level: int, task: int = 0, only: int | None = None
    ) -> None:
        self._only = only
        self._origin: Source = topology.sources()[source]
        self._kind = topology.inlets[source].kind
        self._decoder = Decoder(self._origin.columns, self._origin.on_violation)
        self._latest, self._sent = BEGINNING, task * _MOST_SENT
        self._tells = topology.first_edge(self._origin)
        self._called = topology.called_from(level)
        self._routers = {
            number: Router(edge.route, self._origin.schema, topology.shards)
            for number, edge in enumerate(topology.edges)
            if edge.level == level and edge.origin is self._origin
        }

    def read(self, path: Path) -> Iterator[Packet]:
        """The packets of a file."""
        times = TimeColumns() if path.name == CLOSING else self._times
        file, row = open_file(StoredFile(path), times, self._origin.columns), 1
        self._require_kind(file)
        for rows in file.rows.batches(file.columns_to_read(self._origin.columns), _ROWS):
            decoded = self._decoder.decode(rows, file.layout, file.name, row)
            kept = np.flatnonzero(decoded.kept)
            beside = {} if file.layout.is_table else {ROW: pa.array(kept + row)}
            if file.layout.has_order:
                keys = row_numbers(rows, file.name, row)
                beside |= {f"{ORDER}{i}": pa.array(key[kept]) for i, key in enumerate(keys)}
            yield from self._packed(decoded.batch, beside, place_of(path))
            row += rows.num_rows

    def _require_kind(self, file: StreamFile) -> None:
        """What was there when the query began says the kind of all times, and the type of its output's."""
        try:
            merge_kinds(self._kind, file.layout.kind)
        except TimeError as why:
            reason = f"{why} (the files that are there when a query begins decide: if none is, it is ticks)"
            raise FormatError(reason, file=file.name) from None

    def tell(self, words: str, place: str) -> Iterator[Packet]:
        """A word for every shard."""
        for number, router in self._routers.items():
            for shard in range(router.shards):
                yield Packet(shard, number, place, info=words)

    def packets(self, rows: pa.RecordBatch) -> Iterator[Packet]:
        """The packets of a run of rows from one place."""
        names = rows.schema.names
        file = rows.column(FILE)[0].as_py() if FILE in names and rows.num_rows else ""
        beside = {n: rows.column(n) for n in names if n == ROW or n.startswith(ORDER)}
        rows = rows.select([n for n in names if n != FILE and n not in beside])
        times = TimeColumns() if KIND in names else self._times
        try:
            layout = layout_of(rows.schema, times, self._origin.name)
            decoded = self._decoder.decode(rows, layout, file or self._origin.name, 1)
        except FormatError as why:
            raise _placed(why, beside) from None
        kept = pa.array(decoded.kept)
        yield from self._packed(decoded.batch, {n: c.filter(kept) for n, c in beside.items()}, file)

    @property
    def _times(self) -> TimeColumns:
        return TimeColumns(self._origin.start, self._origin.end)

    def _packed(self, events: EventBatch, beside: Mapping[str, pa.Array], place: str) -> Iterator[Packet]:
        if not len(events):
            return
        starts = events.vs[events.kind != CTI]
        self._latest = max(self._latest, int(starts.max(initial=BEGINNING)))
        first = beside[ROW][0].as_py() if ROW in beside else self._sent
        self._sent += 1
        for number, router in self._routers.items():
            for shard, share, at in router.split(events, self._only):
                own = beside if at is None else {n: column.take(pa.array(at)) for n, column in beside.items()}
                yield Packet(shard, number, place, first, Contents(share, own), self._latest)

    def farewell(self) -> Iterator[Packet]:
        """To every shard: this task is done, and what it has seen; also to those that only pass it on."""
        counted = dict(self._decoder.counts)
        counts = json.dumps({self._origin.name: counted}) if counted else ""
        for number, router in self._routers.items():
            for shard in range(max(router.shards, self._called)):
                tells = (shard, number) == (0, self._tells)
                yield Packet(shard, number, cti=self._latest, info=counts if tells else "")


def local_path(address: str) -> Path:
    """The file that Spark means, whose addresses are not encoded."""
    return Path("/" + address.removeprefix("file:").lstrip("/"))


def place_of(path: Path) -> str:
    """A file's place in its stream; the word that a stream is closed comes after all its files."""
    return f"{_AFTER_ALL}{path}" if path.name == CLOSING else str(path)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Spark's small batches as large ones."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(part.num_rows for part in waiting) >= _ROWS:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def _runs(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Runs of rows from one file, where rows have one."""
    if FILE not in rows.schema.names or not rows.num_rows:
        yield rows
        return
    codes = rows.column(FILE).dictionary_encode().indices.to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), rows.num_rows]
    for start, stop in pairwise(edges):
        yield rows.slice(start, stop - start)


def _placed(why: FormatError, beside: dict[str, pa.Array]) -> FormatError:
    """The error with the row's number in its file."""
    row = beside[ROW][why.row - 1].as_py() if ROW in beside and why.row else None
    return FormatError(why.reason, file=why.file, row=row)
