"""The files of one stream: what they must agree on, and their elements in arrival order.

Files agree on the payload, on the kind of time, and on being a stream or a table.

Rows that several writers have numbered are read in the order of ``(_batch, _seq)``. Spark's tasks write one
file each per micro-batch, so the numbers of the files of one micro-batch interleave and those of different
micro-batches do not. Files whose numbers overlap are read together and sorted; the others are only put in
order. Memory: the largest set of files that overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import EventBatch, Index, concat, empty, null_payload
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
from recension.core.rows import NOWHERE, Origin, Rows, join_origins
from recension.core.time_kind import OneKind, merge_kinds

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
        control = {*CONTROL, self.layout.times.vs, self.layout.times.ve, self.layout.times.arrival}
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


def read_chunks(
    files: Sequence[StreamFile], decoder: Decoder, payload: pa.Schema, size: int
) -> Iterator[Rows]:
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


def _read_file(file: StreamFile, decoder: Decoder, payload: pa.Schema, size: int) -> Iterator[Rows]:
    for _, made in decode_file(file, decoder, file.columns_to_read(payload), size):
        yield made


def decode_file(
    file: StreamFile,
    decoder: Decoder,
    wanted: pa.Schema,
    size: int,
    places: PartitionColumns | None = None,
) -> Iterator[tuple[pa.RecordBatch, Rows]]:
    """The rows of a file, and the elements made of them with their places; nothing after a fault."""
    first_row = 1

    def place(rows: pa.RecordBatch) -> Placement:
        assert places is not None
        return read_places(rows, file, places, first_row)

    for rows, fault in _until_fault(file.rows.batches(wanted, size), wanted):
        read = decoder.read(rows, file.layout, file.name, first_row, None if places is None else place)
        read = read if fault is None else replace(read, fault=fault)
        yield rows.slice(0, read.size), read
        first_row += len(rows)
        if read.fault is not None:
            return


def _until_fault(
    batches: Iterator[pa.RecordBatch], wanted: pa.Schema
) -> Iterator[tuple[pa.RecordBatch, StreamError | None]]:
    """The rows of a text; with the last, of which there are none, what is wrong with the row after them."""
    try:
        for rows in batches:
            yield rows, None
    except StreamError as why:
        if why.row is None:
            raise
        yield null_payload(0, wanted), why


def _read_sorted(
    files: Sequence[StreamFile], decoder: Decoder, payload: pa.Schema, size: int
) -> Iterator[Rows]:
    """The rows of several files together, by their numbers."""
    parts, dropped = list[EventBatch](), list[tuple[str, pa.RecordBatch]]()
    origins: list[tuple[Origin, int]] = []
    columns: list[tuple[Index, ...]] = []
    for number, file in enumerate(files):
        for rows, made in decode_file(file, decoder, file.columns_to_read(payload), size):
            if made.fault is not None:  # where it stands among the rows of all files is not looked for
                raise made.fault
            kept, (_, row) = kept_rows(made), made.origin.columns(len(made.batch))
            batch, seq = row_numbers(rows, file.name, made.origin.first_row)
            parts.append(made.batch)
            origins.append((made.origin, len(made.batch)))
            dropped += made.dropped
            columns.append((batch[kept], seq[kept], np.full(len(row), number), row))
    everything = concat(parts)
    batch, seq, number_of, row_of = (np.concatenate(column) for column in zip(*columns, strict=True))
    order, layout = np.lexsort((seq, batch)), files[0].layout
    names, arrived = [file.name for file in files], join_origins(origins).arrived
    for start in range(0, len(order), size):
        at = order[start : start + size]
        came = None if arrived is None else arrived[at]
        origin = Origin(names, file=number_of[at], row=row_of[at], arrived=came)
        yield Rows(everything.take(at), origin, len(at), layout, layout.kind, dropped=dropped)
        dropped = []


def read_placed(
    files: Sequence[StreamFile], decoder: Decoder, payload: pa.Schema, columns: PartitionColumns, size: int
) -> Rows:
    """The rows of all files with their places; by ``_run``, ``_batch`` and ``_seq`` if nothing else says."""
    parts, numbers = list[Rows](), list[pa.Table]()
    for file in files:
        wanted = columns_to_read(file, payload, columns)
        for rows, made in decode_file(file, decoder, wanted, size, columns):
            parts.append(made)
            if file.layout.has_order and not columns.order:
                order = _order_columns(rows, file.name, made.origin.first_row)
                numbers.append(order.take(pa.array(kept_rows(made))))
        if parts and parts[-1].fault is not None:
            break
    joined = join_rows(parts, payload)
    return _sort_rows(joined, pa.concat_tables(numbers)) if numbers else joined


def kept_rows(rows: Rows) -> Index:
    """Of which rows elements were made, from 0."""
    return np.arange(len(rows.batch)) if rows.origin.at is None else rows.origin.at


def columns_to_read(file: StreamFile, payload: pa.Schema, places: PartitionColumns | None) -> pa.Schema:
    """The columns of a file to read: those of elements, and those that say where rows stand."""
    wanted = file.columns_to_read(payload)
    named = set() if places is None else {*places.names}.difference(wanted.names)
    return pa.schema([*wanted, *(field for field in file.rows.schema if field.name in named)])


def join_rows(parts: Sequence[Rows], payload: pa.Schema) -> Rows:
    """The rows of several parts, one after the other."""
    if not parts:
        return Rows(empty(payload), NOWHERE, 0, placement=Placement((), np.zeros(0, np.int64)))
    places = [part.placement for part in parts if part.placement is not None]
    return replace(
        parts[0],
        batch=concat([part.batch for part in parts]),
        origin=join_origins([(part.origin, len(part.batch)) for part in parts]),
        size=sum(part.size for part in parts),
        kind=reduce(merge_kinds, (part.kind for part in parts), None),
        placement=join_placements(places) if places else None,
        dropped=[dropped for part in parts for dropped in part.dropped],
        fault=parts[-1].fault,
    )


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


def _sort_rows(rows: Rows, numbers: pa.Table) -> Rows:
    keys = numbers.set_column(0, RUN, _number_runs(numbers[RUN]))
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in (RUN, BATCH, SEQ)])
    at = order.to_numpy().astype(np.int64)
    file, row = rows.origin.columns(len(at))
    placement = None if rows.placement is None else rows.placement.take(at)
    arrived = rows.origin.arrivals(len(at))
    came = None if arrived is None else arrived[at]
    origin = Origin(rows.origin.names, file=file[at], row=row[at], arrived=came)
    return replace(rows, batch=rows.batch.take(at), origin=origin, placement=placement)


def sort_rows(table: pa.Table) -> pa.Table:
    """The rows of a table by ``_batch`` and ``_seq``, if it has these columns; run by run, as these came."""
    order = row_order(table)
    return table if order is None else table.take(pa.array(order))


def row_order(table: pa.Table, name: str | None = None, first_row: int = 1) -> Index | None:
    """In which order the rows of a table are read, by these columns; None if as they are."""
    if not {BATCH, SEQ} <= set(table.column_names):
        return None
    for column in (BATCH, SEQ):
        if table[column].null_count:
            at = pc.index(table[column].is_null(), True).as_py()
            raise FormatError(f"{column} is null", file=name, row=first_row + at)
    keys, names = table.select([BATCH, SEQ]), [BATCH, SEQ]
    if RUN in table.column_names:
        keys, names = keys.append_column(RUN, _number_runs(table[RUN])), [RUN, BATCH, SEQ]
    order = pc.sort_indices(keys, sort_keys=[(one, "ascending") for one in names]).to_numpy().astype(np.int64)
    return None if bool((order == np.arange(len(order))).all()) else order


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
