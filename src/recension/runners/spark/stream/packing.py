"""Rows of an input into packets: they are decoded, and each event goes to its shard, CTIs to all shards.

Every task sends every shard a packet, even if it has no event for it. So every shard takes part in every
micro-batch, and knows the latest start that any task has seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path, PurePath
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, EXTERNAL_CTI, EventBatch
from recension.core.errors import FormatError, RecensionError, TimeError
from recension.core.formats.columns import TimeColumns, layout_of
from recension.core.formats.decode import Decoder
from recension.core.formats.listing import StoredFile, partition_of
from recension.core.formats.reader import open_file
from recension.core.formats.stream_files import (
    StreamFile,
    agreed_payload,
    columns_to_read,
    decode_file,
    kept_rows,
    row_numbers,
)
from recension.core.placement import Placement
from recension.core.ticks import BEGINNING
from recension.core.time_kind import merge_kinds
from recension.core.validity import refuse_malformed
from recension.plan.keyed import envelopes_of
from recension.plan.nodes import Source
from recension.runners.exchange.clocks import EdgeSender
from recension.runners.exchange.packets import (
    NAMED,
    ORDER,
    PACKETS,
    ROW,
    Packet,
    order_columns,
    place_columns,
)
from recension.runners.spark.stream.summaries import Summary
from recension.runners.spark.stream.task import freeze_gc, task_number
from recension.runners.spark.stream.topology import Topology

# The file that says that a stream has ended: a stream file like any other, in a folder of its own.
CLOSING: Final = "closing.jsonl"
_AFTER_ALL: Final = "\U0010ffff"
FILE: Final = "_file"
_ROWS: Final = 1 << 19
# Rows without a place are in the order of tasks: a second attempt must give the same order as the first.
_MOST_SENT: Final = 1 << 32
# In an address: the scheme, and the bucket, container or server, which may be left to a default.
_BEFORE_PATH: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?")


class SourcePacker:
    """For ``mapInArrow``: the rows of one source into packets for the edges of one level that read it."""

    def __init__(self, topology: Topology, source: str, level: int, keys: list[int]) -> None:
        self._topology, self._source, self._level, self._keys = topology, source, level, keys

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        packing = Packing(self._topology, self._source, self._level, task_number())
        for packet in chain(self.packets(packing, batches), packing.end_of_task_packets()):
            # A batch a packet: they are large.
            row = packet.seal()._replace(shard=self._keys[packet.shard])._asdict()
            yield pa.RecordBatch.from_pylist([row], PACKETS)

    def packets(self, packing: Packing, batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
        """What one task sends for its rows."""
        for rows in join_batches(batches):
            for run in _runs_of_files(rows.rename_columns([unquote(name) for name in rows.schema.names])):
                yield from packing.packets(run)


class FilePacker(SourcePacker):
    """The same for files that the task reads itself, given their paths."""

    def packets(self, packing: Packing, batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
        for path in paths_of(batches):
            yield from packing.read_file(path)


def paths_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Path]:
    """The files that Spark has found."""
    for address in (address for batch in batches for address in batch.column("path").to_pylist()):
        yield path_of(address)


class Packing:
    """What one task sends to all shards; with ``only``, what a shard that reads for itself keeps."""

    def __init__(
        self, topology: Topology, source: str, level: int, task: int = 0, only: int | None = None
    ) -> None:
        self._only = only
        self._origin: Source = topology.sources()[source]
        self._kind, self._folder = topology.inlets[source].kind, topology.inlets[source].folder
        self._decoder = Decoder(self._origin.columns, self._origin.on_violation)
        self._latest, self._sent = BEGINNING, task * _MOST_SENT
        self._counting_edge = topology.first_edge(self._origin)
        self._all_shards = topology.shards_from(level)
        self._senders = {
            number: EdgeSender(edge, topology.shards)
            for number, edge in enumerate(topology.edges)
            if edge.level == level and edge.origin is self._origin
        }
        self._counts_alone = topology.counts_external_ctis_alone(self._senders)
        self._is_strict = is_strict = self._origin.on_violation == "raise"
        # A repeat may have the order of what it repeats.
        keeps_orders = is_strict and not self._origin.sequence
        self._summary = Summary(is_stepwise=not is_strict, keeps_orders=keeps_orders)

    def read_file(self, path: Path, address: str = "") -> Iterator[Packet]:
        """The packets of a file; one that was brought here goes by its address."""
        times, places = self._times, self._origin.sub_streams
        if path.name == CLOSING:
            times, places = TimeColumns(), None
        envelopes = envelopes_of(self._origin)
        file = open_file(
            *(StoredFile(path), times, self._origin.columns, places, envelopes), finds_times=True
        )
        if places is not None and self._folder is not None:
            where = path_of(address or str(path))
            file = replace(file, partition=partition_of(where, self._folder, places.partition))
        file = replace(file, name=address or file.name)
        self._require_kind(file)
        if path.name != CLOSING:
            agreed_payload([file], self._origin.columns)  # files that come later may lack columns
        place = file_place(address or str(path))
        columns = None if path.name == CLOSING else self._origin.sub_streams_in(file.rows.schema.names)
        wanted = columns_to_read(file, self._origin.columns, columns)
        for read, rows in decode_file(file, self._decoder, wanted, _ROWS, columns):
            if file.layout.is_table and self._is_strict and not self._origin.are_rows:
                # Rows of tables do not travel with their numbers: what can be found here, is found here.
                refuse_malformed(rows.batch, rows.origin, rows.kind)
            if rows.fault is not None:
                raise rows.fault
            self._decoder.note(rows.dropped)
            kept, first = kept_rows(rows), rows.origin.first_row
            extra = {} if file.layout.is_table else {ROW: pa.array(kept + first)}
            if file.layout.has_order and not self._origin.order:
                keys = row_numbers(read, file.name, first)
                extra |= {f"{ORDER}{i}": pa.array(key[kept]) for i, key in enumerate(keys)}
            yield from self._send(rows.batch, extra, place, file.layout.is_table, rows.placement)

    def _require_kind(self, file: StreamFile) -> None:
        """The files that were there when the query began decide the kind of all times."""
        try:
            merge_kinds(self._kind, file.layout.kind)
        except TimeError as why:
            reason = f"{why} (the files that are there when a query begins decide: if none is, it is ticks)"
            raise FormatError(reason, file=file.name) from None

    def broadcast(self, info: str, place: str) -> Iterator[Packet]:
        """A message for every shard."""
        for number, sender in self._senders.items():
            for shard in range(sender.shards):
                yield Packet(shard, number, place, info=info)

    def packets(self, rows: pa.RecordBatch) -> Iterator[Packet]:
        """The packets of a run of rows from one place."""
        names = rows.schema.names
        file = rows.column(FILE)[0].as_py() if FILE in names and rows.num_rows else ""
        extra = {n: rows.column(n) for n in names if n == ROW or n.startswith(ORDER)}
        named = rows.select([n for n in names if n.startswith(NAMED)])
        named = named.rename_columns([n.removeprefix(NAMED) for n in named.schema.names])
        columns = self._origin.sub_streams_in(named.schema.names)
        rows = rows.select([n for n in names if n != FILE and n not in extra and not n.startswith(NAMED)])
        place = file or self._origin.name

        def find_places(head: pa.RecordBatch) -> Placement:
            assert columns is not None
            return columns.read(named.slice(0, len(head)), place)

        try:
            layout = layout_of(rows.schema, self._times.found_in(names), self._origin.name)
            read = self._decoder.read(rows, layout, place, 1, None if columns is None else find_places)
            if read.fault is not None:
                raise read.fault
        except FormatError as why:
            raise _locate_error(why, extra) from None
        self._decoder.note(read.dropped)
        kept = pa.array(kept_rows(read))
        kept_extra = {n: c.take(kept) for n, c in extra.items()}
        yield from self._send(read.batch, kept_extra, file, layout.is_table, read.placement)

    def send(
        self,
        events: EventBatch,
        order: Mapping[str, pa.Array],
        is_table: bool,
        placement: Placement | None,
    ) -> Iterator[Packet]:
        """The packets of events that were decoded elsewhere."""
        yield from self._send(events, order, "", is_table, placement)

    def count(self, reason: str, number: int) -> None:
        """Count what was dropped where the events were decoded."""
        if number:
            self._decoder.counts[reason] += number

    @property
    def source(self) -> Source:
        """The source whose rows these are."""
        return self._origin

    @property
    def is_counting(self) -> bool:
        """Is it here that what is dropped of the source is counted? It may be read at several levels."""
        return self._counting_edge in self._senders

    @property
    def _times(self) -> TimeColumns:
        return self._origin.time_columns

    def _send(
        self,
        events: EventBatch,
        extra: Mapping[str, pa.Array],
        place: str,
        is_table: bool,
        placement: Placement | None,
    ) -> Iterator[Packet]:
        if not len(events):
            return
        if placement is not None:
            self._summary.add(events, placement)
            extra = {**extra, **place_columns(placement)}
        starts = events.vs[events.kind != CTI]
        self._latest = max(self._latest, int(starts.max(initial=BEGINNING)))
        position = extra[ROW][0].as_py() if ROW in extra else self._sent
        self._sent += 1
        if self._counts_alone and bool((events.kind == EXTERNAL_CTI).any()):
            raise RecensionError(
                f"{self._origin.name}: an external cti came, which counts the elements of all shards: "
                f"declare rc.source({self._origin.name!r}, ..., external_ctis=True)"
            )
        for number, sender in self._senders.items():
            if placement is not None and placement.order and sender.has_clock:
                extra = {**extra, **order_columns(placement)}
            for shard, contents, marks in sender.split(events, extra, self._only, by_start=is_table):
                yield Packet(shard, number, place, position, contents, self._latest, marks=marks)

    def end_of_task_packets(self) -> Iterator[Packet]:
        """To every shard, also those that only pass it on: the latest start seen; to the first: counts."""
        counted = dict(self._decoder.counts)
        counts = json.dumps({self._origin.name: counted}) if counted else ""
        for number, sender in self._senders.items():
            for shard in range(max(sender.shards, self._all_shards)):
                is_first = (shard, number) == (0, self._counting_edge)
                summary = None
                if shard < sender.shards:
                    with_orders = number == self._counting_edge and sender.shards > 1
                    summary = self._summary.to_bytes(shard, sender.shards, with_orders=with_orders)
                info = counts if is_first else ""
                yield Packet(shard, number, latest_start=self._latest, info=info, summary=summary)


def path_of(address: str) -> Path:
    """The path in an address of Spark, which is not encoded, without the scheme and the bucket or server.

    >>> str(path_of("file:/data/orders")), str(path_of("s3a://bucket/orders/2026/"))
    ('/data/orders', '/orders/2026')
    """
    return Path("/" + _BEFORE_PATH.sub("", address, count=1).lstrip("/"))


def file_place(name: str) -> str:
    """The place in its stream of a file by its path or address; the one that closes a stream comes last."""
    return f"{_AFTER_ALL}{name}" if PurePath(name).name == CLOSING else name


def is_closing(place: str) -> bool:
    """Is it the place of the file that closes a stream?"""
    return place.startswith(_AFTER_ALL)


def join_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Spark's small batches, joined to large ones."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(part.num_rows for part in waiting) >= _ROWS:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def _runs_of_files(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Runs of rows from one file, where rows have one."""
    if FILE not in rows.schema.names or not rows.num_rows:
        yield rows
        return
    codes = rows.column(FILE).dictionary_encode().indices.to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), rows.num_rows]
    for start, stop in pairwise(edges):
        yield rows.slice(start, stop - start)


def _locate_error(why: FormatError, extra: dict[str, pa.Array]) -> FormatError:
    """The error with the row's number in its file."""
    row = extra[ROW][why.row - 1].as_py() if ROW in extra and why.row else None
    return FormatError(why.reason, file=why.file, row=row)


class ShardFiles:
    """The files that a shard reads for itself in one micro-batch, instead of being sent their events.

    A file of columns is read faster than its rows are sent: with few shards, each of them reads all files and
    keeps its own events, and a stage of the pipeline has nothing to do. Each file is read once, whatever the
    number of edges that read its source.
    """

    def __init__(self, topology: Topology, level: int, shard: int) -> None:
        self._topology, self._level, self._shard = topology, level, shard
        self._read: dict[str, list[Packet]] = {}

    def read_packets(self, packets: list[Packet], source: str) -> list[Packet]:
        """The packets of an edge; those that name files are replaced by what is in the files."""
        addresses = [packet.place for packet in packets if packet.place and packet.blob is None]
        if not addresses:
            return packets
        if source not in self._read:
            packing = Packing(self._topology, source, self._level, only=self._shard)
            packets_read = [packet for address in addresses for packet in packing.read_file(path_of(address))]
            self._read[source] = [
                *packets_read,
                *(p for p in packing.end_of_task_packets() if p.shard == self._shard),
            ]
        return [packet for packet in self._read[source] if packet.edge == packets[0].edge]


def plain_name(name: str) -> str:
    """A column's name without signs: ``mapInArrow`` asks for columns without quoting their names."""
    return name.replace("%", "%25").replace(".", "%2E").replace("`", "%60")
