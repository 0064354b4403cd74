"""The files of one stream: what they must agree on, and their elements in arrival order.

Files agree on the payload, on the kind of time, and on being a stream or a table.

Rows that several writers have numbered are read in the order of ``(_batch, _seq)``. Spark's tasks write one
file each per micro-batch, so the numbers of the files of one micro-batch interleave and those of different
micro-batches do not. Files whose numbers overlap are read together and sorted; the others are only put in
order. Memory: the largest set of files that overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import EventBatch, Index, Mask, concat, empty
from recension.core.errors import FormatError, StreamError, TimeError
from recension.core.formats.columns import (
    BATCH,
    CONTROL,
    RUN,
    SEQ,
    Layout,
    describe_missing,
    describe_missing_column,
    neutral_type,
    unify_types,
)
from recension.core.formats.decode import Decoder
from recension.core.placement import PartitionColumns, Placement, join_placements
from recension.core.time_kind import OneKind

_NUMBERS: Final = pa.schema([(BATCH, pa.int64()), (SEQ, pa.int64())])


class FileRows(Protocol):
    """A file of any format."""

    schema: pa.Schema
    is_typed: bool
    may_lack_columns: bool

    def batches(self, wanted: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
        """The wanted columns, at most ``size`` rows at a time."""


@dataclass(frozen=True, slots=True)
class StreamFile:
    """A file of a stream, its rows and what its columns mean."""

    name: str
    rows: FileRows
    layout: Layout
    partition: str | None = None
    """The sub-stream that all of it is of, if its directory says so."""

    def columns_to_read(self, payload: pa.Schema) -> pa.Schema:
        """The columns to read: the control columns there are, and the payload."""
        control = {*CONTROL, self.layout.times.vs, self.layout.times.ve}
        fields = [f for f in self.rows.schema if f.name in control]
        there = set(self.rows.schema.names)
        more = (f for f in payload if f.name in there or not self.rows.is_typed)
        return pa.schema([*fields, *(f for f in more if f.name not in there & control)])


def agreed_payload(files: Sequence[StreamFile], declared: pa.Schema | None) -> pa.Schema:
    """The payload of all files: what the user declared, or what they have in common."""
    files = [file for file in files if file.rows.schema.names]
    times = OneKind()
    for file in files:
        _refuse_mixture(files[0], file)
        _note_kind(times, file)
    names = list(dict.fromkeys(name for file in files for name in file.layout.payload.names))
    if declared is not None:
        names = declared.names
    for file in files:
        there = set(file.layout.payload.names)
        if file.rows.may_lack_columns:
            continue
        if missing := [name for name in names if name not in there]:
            raise FormatError(describe_missing_column(missing[0], file.layout.payload.names), file=file.name)
        if declared is not None and (reason := describe_missing(declared, file.layout.payload)) is not None:
            raise FormatError(reason, file=file.name)
    if declared is not None:
        return pa.schema([pa.field(f.name, f.type) for f in declared])
    return pa.schema([pa.field(name, _agreed_type(name, files)) for name in names])


def _refuse_mixture(first: StreamFile, other: StreamFile) -> None:
    if other.layout.is_table != first.layout.is_table:
        raise FormatError(f"one of this and {first.name} has a column _kind", file=other.name)
    if other.layout.has_order != first.layout.has_order:
        raise FormatError(f"one of this and {first.name} has the columns _batch and _seq", file=other.name)


def _note_kind(times: OneKind, file: StreamFile) -> None:
    try:
        times.note(file.layout.kind, file.name)
    except TimeError as why:
        raise FormatError(str(why).removeprefix(f"{file.name}: "), file=file.name) from None


def _agreed_type(name: str, files: Sequence[StreamFile]) -> pa.DataType:
    having = [file for file in files if file.layout.payload.get_field_index(name) >= 0]
    first, kind = having[0], having[0].layout.payload.field(name).type
    for file in having[1:]:
        other = file.layout.payload.field(name).type
        if other == kind:
            continue
        if neutral_type(other) == neutral_type(kind):
            kind = neutral_type(kind)
            continue
        if file.rows.is_typed and first.rows.is_typed:
            raise FormatError(f"column {name} is {other} here and {kind} in {first.name}", file=file.name)
        try:
            # Types read off a text are guesses, and may widen.
            kind = unify_types(kind, other)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            reason = f"column {name} is {other} here and {kind} in {first.name}"
            raise FormatError(reason, file=file.name) from None
    return kind


@dataclass(frozen=True, slots=True)
class FileChunk:
    """Elements as the files have them; ``origin`` gives each row's file and row where files are mixed."""

    batch: EventBatch
    file: str
    first_row: int
    origin: tuple[Sequence[str], Index, Index] | None = None

    def locate(self, row: int) -> tuple[str, int]:
        """The file, and the row in it, of row ``row`` of the chunk."""
        if self.origin is None:
            return self.file, row
        names, files, rows = self.origin
        return names[files[row - self.first_row]], int(rows[row - self.first_row])


def read_chunks(
    files: Sequence[StreamFile], decoder: Decoder, payload: pa.Schema, size: int
) -> Iterator[FileChunk]:
    """All elements, at most about ``size`` at a time."""
    if not any(file.layout.has_order for file in files):
        for file in files:
            yield from _read_file(file, decoder, payload, size)
        return
    for members, is_mixed in _group_overlapping(files, size):
        if is_mixed:
            yield from _read_sorted(members, decoder, payload, size)
        else:
            yield from _read_file(members[0], decoder, payload, size)


def files_in_order(files: Sequence[StreamFile], size: int) -> list[StreamFile] | None:
    """The files as they are read one after the other; None if rows of several have to be sorted."""
    if not any(file.layout.has_order for file in files):
        return list(files)
    groups = list(_group_overlapping(files, size))
    return None if any(is_mixed for _, is_mixed in groups) else [members[0] for members, _ in groups]


def _read_file(file: StreamFile, decoder: Decoder, payload: pa.Schema, size: int) -> Iterator[FileChunk]:
    first_row = 1
    for rows in file.rows.batches(file.columns_to_read(payload), size):
        yield FileChunk(decoder.decode(rows, file.layout, file.name, first_row).batch, file.name, first_row)
        first_row += len(rows)


def _read_sorted(
    files: Sequence[StreamFile], decoder: Decoder, payload: pa.Schema, size: int
) -> Iterator[FileChunk]:
    """The rows of several files together, by their numbers."""
    parts: list[EventBatch] = []
    columns: list[tuple[Index, ...]] = []
    for number, file in enumerate(files):
        first_row = 1
        for rows in file.rows.batches(file.columns_to_read(payload), size):
            decoded = decoder.decode(rows, file.layout, file.name, first_row)
            at = np.flatnonzero(decoded.kept)
            batch, seq = row_numbers(rows, file.name, first_row)
            parts.append(decoded.batch)
            columns.append((batch[at], seq[at], np.full(len(at), number), at + first_row))
            first_row += len(rows)
    everything = concat(parts)
    batch, seq, number_of, row_of = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.lexsort((seq, batch))
    names = [file.name for file in files]
    for start in range(0, len(order), size):
        rows_at = order[start : start + size]
        origin = (names, number_of[rows_at], row_of[rows_at])
        yield FileChunk(everything.take(rows_at), names[0], 1, origin)


@dataclass(slots=True)
class PlacedChunk:
    """All elements of some files, their places in sub-streams, and the file and row of each."""

    batch: EventBatch
    placement: Placement
    names: Sequence[str]
    file: Index
    row: Index

    def leave_out(self, rows: Mask) -> None:
        """Without some of the rows."""
        if bool(rows.any()):
            self.batch, self.placement = self.batch.filter(~rows), self.placement.take(~rows)
            self.file, self.row = self.file[~rows], self.row[~rows]

    @contextmanager
    def locate_errors(self, before: int = 0) -> Iterator[None]:
        """Errors name file and row; ``before`` rows came before these."""
        try:
            yield
        except StreamError as why:
            if why.row is None or not 0 < why.row - before <= len(self.row):
                raise
            at = why.row - before - 1
            raise StreamError(why.reason, file=self.names[self.file[at]], row=int(self.row[at])) from None


def read_placed(
    files: Sequence[StreamFile], decoder: Decoder, payload: pa.Schema, columns: PartitionColumns, size: int
) -> PlacedChunk:
    """The rows of all files with their places; by ``_run``, ``_batch`` and ``_seq`` if nothing else says."""
    parts, places, origin = list[EventBatch](), list[Placement](), list[tuple[Index, Index]]()
    numbers: list[pa.Table] = []
    for number, file in enumerate(files):
        first_row, there = 1, file.rows.schema
        extra = [
            there.field(n) for n in columns.names if n in there.names and n not in (*payload.names, *CONTROL)
        ]
        wanted = file.columns_to_read(pa.schema([*payload, *extra]))
        for rows in file.rows.batches(wanted, size):
            decoded = decoder.decode(rows, file.layout, file.name, first_row)
            at = np.flatnonzero(decoded.kept)
            parts.append(decoded.batch)
            places.append(read_places(rows, file, columns, first_row).take(at))
            origin.append((np.full(len(at), number), at + first_row))
            if file.layout.has_order and not columns.order:
                numbers.append(_order_columns(rows, file.name, first_row).take(pa.array(at)))
            first_row += len(rows)
    names = [file.name for file in files]
    nothing = np.zeros(0, np.int64)
    if not parts:
        return PlacedChunk(empty(payload), Placement((), nothing), names, nothing, nothing)
    file_of, row_of = (np.concatenate(column) for column in zip(*origin, strict=True))
    chunk = PlacedChunk(concat(parts), join_placements(places), names, file_of, row_of)
    if numbers:
        _sort_chunk(chunk, pa.concat_tables(numbers))
    return chunk


def read_places(
    rows: pa.RecordBatch, file: StreamFile, columns: PartitionColumns, first_row: int
) -> Placement:
    """Where rows of a file stand: by their columns, or by its directory."""
    if file.partition is None:
        return columns.read(rows, file.name, first_row)
    if there := [name for name in columns.partition if name in rows.schema.names]:
        raise FormatError(
            f"column {there[0]} says of which partition a row is, and so does its directory", file=file.name
        )
    others = replace(columns, partition=()).read(rows, file.name, first_row)
    return replace(others, names=(file.partition,))


def _order_columns(rows: pa.RecordBatch, file: str, first_row: int) -> pa.Table:
    batch, seq = row_numbers(rows, file, first_row)
    run = rows.column(RUN).cast(pa.string()) if RUN in rows.schema.names else pa.nulls(len(rows), pa.string())
    return pa.table({RUN: run, BATCH: batch, SEQ: seq})


def _sort_chunk(chunk: PlacedChunk, numbers: pa.Table) -> None:
    keys = numbers.set_column(0, RUN, _number_runs(numbers[RUN]))
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in (RUN, BATCH, SEQ)])
    at = order.to_numpy().astype(np.int64)
    chunk.batch, chunk.placement = chunk.batch.take(at), chunk.placement.take(at)
    chunk.file, chunk.row = chunk.file[at], chunk.row[at]


def sort_rows(table: pa.Table) -> pa.Table:
    """The rows of a table by ``_batch`` and ``_seq``, if it has these columns; run by run, as these came."""
    if not {BATCH, SEQ} <= set(table.column_names):
        return table
    numbers = [(BATCH, "ascending"), (SEQ, "ascending")]
    if RUN not in table.column_names:
        return table.sort_by(numbers)
    keys = table.select([BATCH, SEQ]).append_column(RUN, _number_runs(table[RUN]))
    return table.take(pc.sort_indices(keys, sort_keys=[(RUN, "ascending"), *numbers]))


def _number_runs(runs: pa.ChunkedArray) -> pa.Array:
    """Runs by the order in which they came; what has none is one of its own."""
    codes = runs.combine_chunks().cast(pa.string()).fill_null("").dictionary_encode()
    return codes.indices


@dataclass(slots=True)
class _NumberRange:
    """The first and last number in a file, and whether its rows are in order."""

    file: StreamFile
    first: tuple[int, int]
    last: tuple[int, int]
    is_sorted: bool = True

    def add(self, batch: Index, seq: Index) -> None:
        order = np.lexsort((seq, batch))
        first, last = ((int(batch[i]), int(seq[i])) for i in (order[0], order[-1]))
        # A stable sort of rows in order leaves them where they are.
        are_in_order = bool((order == np.arange(len(order))).all())
        self.is_sorted &= are_in_order and first >= self.last
        self.first, self.last = min(self.first, first), max(self.last, last)


def _group_overlapping(files: Sequence[StreamFile], size: int) -> Iterator[tuple[list[StreamFile], bool]]:
    """Files that must be read together, in order of their numbers, and whether they must be sorted."""
    ranges = [found for file in files if (found := _find_range(file, size)) is not None]
    held: list[_NumberRange] = []
    for found in sorted(ranges, key=lambda r: r.first):
        if held and found.first > max(r.last for r in held):
            yield _make_group(held, files)
            held = []
        held.append(found)
    if held:
        yield _make_group(held, files)


def _make_group(held: list[_NumberRange], files: Sequence[StreamFile]) -> tuple[list[StreamFile], bool]:
    # Rows of equal numbers keep the order of the files.
    members = {found.file.name for found in held}
    is_sorted = len(held) == 1 and held[0].is_sorted
    return [file for file in files if file.name in members], not is_sorted


def _find_range(file: StreamFile, size: int) -> _NumberRange | None:
    found, row = None, 1
    for rows in file.rows.batches(_NUMBERS, size):
        batch, seq = row_numbers(rows, file.name, row)
        row += len(rows)
        if len(rows):
            first = int(batch[0]), int(seq[0])
            found = found or _NumberRange(file, first, first)
            found.add(batch, seq)
    return found


def row_numbers(rows: pa.RecordBatch, file: str, first_row: int) -> tuple[Index, Index]:
    """The columns ``_batch`` and ``_seq`` of a run of rows; none may be null."""
    columns = []
    for name in (BATCH, SEQ):
        column = rows.column(name)
        if column.null_count:
            at = column.is_null().index(True).as_py()
            raise FormatError(f"{name} is null", file=file, row=first_row + at)
        columns.append(column.cast(pa.int64()).to_numpy())
    return columns[0], columns[1]
