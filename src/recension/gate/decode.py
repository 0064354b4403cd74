"""The step *decode*: whatever data comes in, as elements in the columns of the source, with their origins.

A table, a frame, a history, a result of another query, a list of elements, files at a path, or these by
partition. Where a row cannot be read, those before it are decoded: another step may find a fault there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from recension.core import frames
from recension.core.batch import EventBatch, Index, cti, empty, null_payload
from recension.core.errors import FormatError, RecensionError, before_fault, first_line
from recension.core.formats.columns import Layout, describe_missing, layout_of
from recension.core.formats.decode import Decoder
from recension.core.formats.long_texts import LongTexts
from recension.core.formats.reader import BATCH_SIZE, StreamFiles, open_files
from recension.core.formats.stream_files import join_rows, row_order
from recension.core.history import History
from recension.core.placement import PartitionColumns
from recension.core.rows import Origin, Rows
from recension.core.time_kind import OneKind
from recension.gate.elements import read_elements
from recension.gate.partition_names import PartitionNames
from recension.gate.readings import Reading
from recension.gate.step import Arrival
from recension.plan.keyed import envelopes_of
from recension.plan.source import Source

Data: TypeAlias = Any
"""An Arrow table or batch, a pandas or polars frame, a History, a Result, a list of elements, a path."""


class Decode:
    """Decodes the data of one source. What makes no element is an error, or dropped, as its policy says."""

    def __init__(self, source: Source, times: OneKind) -> None:
        self._source, self._times = source, times
        self._decoder = Decoder(source.columns, source.on_violation)
        self._names = PartitionNames(source)
        self.counts, self.unreadable = self._decoder.counts, self._decoder.dropped

    def read(self, data: Data, arrival: Arrival, first: int) -> Rows:
        """The elements of data whose first row is number ``first`` of the source. Nothing changes."""
        if isinstance(data, Mapping):
            return self._read_parts(data, arrival, first)
        rows = self._read(data, arrival, first)
        placement = self._names.name_rows(len(rows.batch), rows.placement, arrival.partition)
        return rows if placement is rows.placement else replace(rows, placement=placement)

    def advance(self, t: int, arrival: Arrival) -> tuple[Rows, Arrival]:
        """A CTI, as if it had been pushed, but nobody's row; without a partition it is for all."""
        columns, origin = self._source.columns, self._origin(1)
        if self._source.partition and arrival.partition is None:
            return Rows(empty(columns), origin, 0), replace(arrival, promise=t)
        placement = self._names.name_rows(1, None, arrival.partition)
        return Rows(cti(t, columns), origin, 0, placement=placement), arrival

    def admit(self, rows: Rows) -> None:
        """Count and keep what was dropped."""
        self._decoder.note(rows.dropped)

    def _origin(self, first: int) -> Origin:
        return Origin((self._source.name,), first)

    def _read_parts(self, parts: Mapping[Any, Data], arrival: Arrival, first: int) -> Rows:
        """Data by partition."""
        name = self._source.name
        if arrival.partition is not None:
            raise RecensionError(f"{name}: give the data by partition, or pass partition=, not both")
        times, found = self._times.copy(), list[Rows]()
        for partition, data in parts.items():
            found.append(self.read(data, replace(arrival, partition=partition), first))
            times.note(found[-1].kind, name)
            first += found[-1].size
            if found[-1].fault is not None:
                break
        tables = {part.is_table for part in found if part.layout is not None}
        if len(tables) > 1:
            raise RecensionError(f"{name}: one part has a column _kind and another has none")
        joined = self._join(found)
        has_layouts = all(part.layout is not None for part in found)
        return replace(joined, kind=times.seen, layout=joined.layout if has_layouts else None)

    def _read(self, data: Data, arrival: Arrival, first: int) -> Rows:
        if isinstance(data, Rows | StreamFiles | str) or hasattr(data, "__fspath__"):
            return self._require_columns(self._read_files(data, arrival))
        data = to_readable(data, self._source.name)
        if isinstance(data, pa.Table):
            return self._read_table(data, arrival, first)
        if isinstance(data, EventBatch):
            return self._require_columns(Rows(data, self._origin(first), len(data)))
        return self._read_elements(data, first)

    def _read_files(self, data: Rows | StreamFiles | str | PathLike[str], arrival: Arrival) -> Rows:
        """Rows that files have given, or all that are in some files."""
        if isinstance(data, Rows):
            self._times.require(data.kind, self._source.name)
            return data
        is_named = arrival.partition is not None
        files = open_source(self._source, data, is_named=is_named)
        if is_named:
            self._names.refuse_both(files.column_names)
            self._names.refuse_folders(files.partition_folders)
        self._times.require(files.kind, self._source.name)
        return self._join(list(files.rows(self._source.on_violation)))

    def _require_columns(self, rows: Rows) -> Rows:
        if not rows.batch.schema.equals(self._source.columns):
            raise RecensionError(
                f"{self._source.name}: the elements' columns are {rows.batch.schema.names}, "
                f"the source's are {self._source.columns.names}"
            )
        return rows

    def _read_elements(self, elements: Sequence[Any], first: int) -> Rows:
        def read(size: int) -> Rows:
            times, some = self._times.copy(), elements if size == len(elements) else elements[:size]
            batch = read_elements(some, self._source.columns, self._source.name, first, times)
            return Rows(batch, self._origin(first), len(batch), kind=times.seen)

        rows, fault = before_fault(len(elements), first, read)
        return rows if fault is None else replace(rows, fault=fault)

    def _read_table(self, table: pa.Table, arrival: Arrival, first: int) -> Rows:
        name, columns = self._source.name, self._names.columns_in(table.schema, arrival)
        # Whoever knows where rows come from has read them, without the column of arrivals.
        known = self._source.columns_of_times if arrival.origin is None else self._source.time_columns
        layout = layout_of(table.schema, known.found_in(table.schema.names), name)
        self._times.require(layout.kind, name)
        if (reason := describe_missing(self._source.columns, layout.payload)) is not None:
            raise FormatError(reason, file=name)
        order = None if columns is not None and columns.order else row_order(table, name, first)
        table = table if order is None else table.take(pa.array(order))
        texts = LongTexts(self._source.columns.names, name)
        parts, at = list[Rows](), first
        for rows in chain.from_iterable(map(texts.slices, _combined_batches(table))):
            parts.append(self._read_rows(rows, layout, columns, at, arrival.origin))
            at += parts[-1].size
            if parts[-1].fault is not None:
                break
        joined = self._join(parts)
        return joined if order is None or arrival.origin is not None else _number_rows(joined, order, first)

    def _read_rows(
        self,
        rows: pa.RecordBatch,
        layout: Layout,
        columns: PartitionColumns | None,
        first: int,
        given: Origin | None,
    ) -> Rows:
        name = self._source.name
        place = None if columns is None else partial(columns.read, file=name, first_row=first)
        read = self._decoder.read(rows, layout, name, first, place)
        if given is None:
            return read
        origin = given if read.origin.at is None else given.take(read.origin.at)
        fault = None if read.fault is None else given.fault(read.fault, read.size)
        return replace(read, origin=origin, fault=fault)

    def _join(self, parts: list[Rows]) -> Rows:
        if len(parts) == 1:
            return parts[0]
        try:
            return join_rows(parts, self._source.columns)
        except pa.ArrowInvalid as why:  # texts of more than 2 GiB in all
            reason = f"too much for one push ({first_line(why)}): push it in parts"
            raise RecensionError(f"{self._source.name}: {reason}") from None


def open_source(
    source: Source,
    data: StreamFiles | str | PathLike[str],
    batch_size: int = BATCH_SIZE,
    *,
    is_named: bool = False,
) -> StreamFiles:
    """Files as the input of a source: in its columns and types, with the places that it names.

    With ``is_named`` somebody else says of which partition they are.
    """
    if isinstance(data, StreamFiles):
        return data if data.reopen is None else data.reopen(source)
    files, _ = open_files(
        Path(data),
        source.columns_of_times,
        source.columns,
        places=source.sub_streams,
        envelopes=envelopes_of(source),
        finds_times=True,
    )
    places = source.sub_streams
    if is_named and places is not None:
        places = replace(places, partition=())
    return StreamFiles(files, source.columns, batch_size, places)


def to_readable(data: Data, name: str | None = None) -> pa.Table | EventBatch | Sequence[Any]:
    """What data can be had from: a table, a batch, or elements."""
    if isinstance(data, EventBatch) or (isinstance(data, Sequence) and not isinstance(data, str)):
        return data
    is_ours = isinstance(data, History) or isinstance(getattr(data, "reading", None), Reading)
    return data.to_arrow() if is_ours else frames.table_of(data, name)


def _number_rows(rows: Rows, order: Index, first: int) -> Rows:
    """The same rows with the numbers that they had before they were put in order."""
    row, fault = rows.origin.row, rows.fault
    numbers = order + first if row is None else order[row - first] + first
    if fault is not None and fault.row is not None:
        at = int(order[fault.row - first]) + first
        fault = FormatError(fault.reason, file=fault.file, row=at, position=fault.position)
    return replace(rows, origin=replace(rows.origin, row=numbers), fault=fault)


def _combined_batches(table: pa.Table) -> list[pa.RecordBatch]:
    """The rows in as few batches as can be, one at the least."""
    is_one = all(column.num_chunks == 1 for column in table.columns)
    batches = (table if is_one else table.combine_chunks()).to_batches()
    return batches or [null_payload(0, table.schema)]
