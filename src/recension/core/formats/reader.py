"""Reading streams: files of any format as decoded rows with their origins, a piece at a time.

What the rows may be, judges the gate (`gate`): here nothing is checked but that elements can be made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from recension.core.batch import EventBatch, empty
from recension.core.formats.change_feeds import EnvelopeRows, Envelopes, has_envelopes
from recension.core.formats.columns import BATCH, CONTROL, KIND, RUN, SEQ, TimeColumns, layout_of
from recension.core.formats.decode import Decoder
from recension.core.formats.listing import StoredFile, format_of, partition_folders, stored_files
from recension.core.formats.stream_files import (
    FileRows,
    StreamFile,
    agreed_payload,
    files_in_order,
    read_chunks,
    read_placed,
)
from recension.core.formats.stream_parts import StreamParts, can_read_parts
from recension.core.formats.versions import NEWEST, Version
from recension.core.placement import PartitionColumns
from recension.core.rows import NOWHERE, Rows
from recension.core.time_kind import AWARE, TICKS, TimeKind, merge_kinds
from recension.core.validity import Policy

BATCH_SIZE: Final = 1 << 16


class StreamFiles:
    """The files of one stream, opened; they are read when their rows are asked for, and can be read again."""

    def __init__(
        self,
        files: list[StreamFile],
        schema: pa.Schema,
        size: int = BATCH_SIZE,
        places: PartitionColumns | None = None,
    ) -> None:
        self._files, self._size = files, size
        has_runs = any(RUN in file.rows.schema.names for file in files)
        if has_runs and (places is None or not places.sequence):
            places = replace(places or PartitionColumns(), run=RUN, sequence=(BATCH, SEQ))
        self._places = places
        self.schema: pa.Schema = schema
        self.reopen: Callable[[Any], StreamFiles] | None = None
        """Opens the same files again as the input of a source."""
        self.kind: TimeKind = reduce(merge_kinds, (file.layout.kind for file in files), None)

    @property
    def time_type(self) -> pa.DataType:
        """How the files write times: int64 or a microsecond timestamp."""
        return TICKS if self.kind is None else self.kind

    @property
    def is_typed(self) -> bool:
        """Do the files carry types (Parquet, Arrow), or were these declared or guessed (JSON, CSV)?"""
        return all(file.rows.is_typed for file in self._files)

    @property
    def may_lack_columns(self) -> bool:
        """Is a column that is not there a column of nulls (JSON)?"""
        return all(file.rows.may_lack_columns for file in self._files)

    @property
    def is_table(self) -> bool:
        """A plain table: its rows are events, and nothing follows them."""
        return any(file.layout.is_table for file in self._files)

    @property
    def has_kinds(self) -> bool:
        """Do the files say of each row what it is? (A JSON file without rows is neither this nor a table.)"""
        return any(KIND in file.rows.schema.names for file in self._files)

    @property
    def column_names(self) -> set[str]:
        """The names of all columns that there are."""
        return {name for file in self._files for name in file.rows.schema.names}

    @property
    def partition_folders(self) -> list[str]:
        """The partitions that have a directory of their own."""
        return list(dict.fromkeys(file.partition for file in self._files if file.partition is not None))

    @property
    def batch_size(self) -> int:
        """How many rows it reads at a time."""
        return self._size

    @property
    def places(self) -> PartitionColumns | None:
        """The columns that say where rows stand; then the stream is read whole."""
        return self._places

    @property
    def has_partitions(self) -> bool:
        """Are there partitions?"""
        return self._places is not None and bool(self._places.partition)

    def rows(self, policy: Policy = "raise") -> Iterator[Rows]:
        """All rows, piece by piece, at least one; with another policy than ``raise``, those of which elements
        can be made. After a piece with a fault comes nothing more.
        """
        decoder = Decoder(self.schema, policy)
        if self._places is not None:
            yield read_placed(self._files, decoder, self.schema, self._places, self._size)
            return
        is_empty = True
        for rows in read_chunks(self._files, decoder, self.schema, self._size):
            yield rows
            is_empty = False
            if rows.fault is not None:
                return
        if is_empty:
            # A table without rows is a table all the same.
            layouts = sorted((file.layout for file in self._files), key=lambda one: not one.is_table)
            yield Rows(empty(self.schema), NOWHERE, 0, layouts[0] if layouts else None, self.kind)

    def parts(self, check: Callable[[Rows], EventBatch]) -> StreamParts | None:
        """Parts of it without the rest, checked: of Parquet files in order."""
        if self._places is not None:
            return None
        files = files_in_order(self._files, self._size)
        if files is None or not all(can_read_parts(file) for file in files):
            return None
        return StreamParts(files, self.schema, check)


def open_files(
    path: Path,
    times: TimeColumns,
    schema: pa.Schema | None,
    *,
    places: PartitionColumns | None = None,
    envelopes: Envelopes | None = None,
    version: Version = NEWEST,
    finds_times: bool = False,
) -> tuple[list[StreamFile], pa.Schema]:
    """The files at a path, in their order, and the payload that they agree on.

    In a directory of directories each of these is a partition, if there are any: ``part=7``, or its name.
    """
    folders: dict[Path, str | None] = {path: None}
    if places is not None and (found := partition_folders(path, places.partition)):
        folders = {**found}
    files = [
        replace(
            open_file(file, times, schema, places, envelopes, finds_times=finds_times), partition=partition
        )
        for folder, partition in folders.items()
        for file in stored_files(folder, version)
    ]
    return files, agreed_payload(files, schema)


def open_file(
    file: StoredFile,
    times: TimeColumns,
    declared: pa.Schema | None,
    places: PartitionColumns | None = None,
    envelopes: Envelopes | None = None,
    *,
    finds_times: bool = False,
) -> StreamFile:
    """Open one file of a stream.

    With ``finds_times`` it may be a table with the user's columns of times, or a stream or history with ours.
    """
    known, name = format_of(file.path), str(file.path)
    rows: FileRows
    if envelopes is not None and known.name == "json" and has_envelopes(file.path):
        rows = EnvelopeRows(file.path, envelopes)
    else:
        rows = known.open_rows(file, times, _declare_origins(file, times, declared, places))
    if finds_times and (found := times.found_in(rows.schema.names)) != times:
        return open_file(file, found, declared, places, envelopes)
    return StreamFile(name, rows, layout_of(rows.schema, times, name))


def _declare_origins(
    file: StoredFile, times: TimeColumns, declared: pa.Schema | None, places: PartitionColumns | None
) -> pa.Schema | None:
    """The columns to read of a text: those that say where a row comes from are read as they look."""
    known = format_of(file.path)
    named = [*(() if places is None else places.names), *([times.arrival] if times.arrival else [])]
    if not named or declared is None or not known.is_text:
        return declared
    there = known.open_rows(file, times, None).schema
    extra = [name for name in named if name in there.names and name not in declared.names]
    found = [there.field(name) for name in extra if name not in CONTROL]
    is_text = {one.name for one in found if one.name == times.arrival and pa.types.is_string(one.type)}
    return pa.schema([*declared, *(one.with_type(AWARE) if one.name in is_text else one for one in found)])
