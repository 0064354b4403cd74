"""Reading streams: files of any format into checked batches of elements, a piece at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Final

import pyarrow as pa

from recension.core.batch import EventBatch, concat, cti
from recension.core.bitemporal import believed_events
from recension.core.errors import FormatError, StreamError
from recension.core.formats.change_feeds import EnvelopeRows, Envelopes, has_envelopes
from recension.core.formats.changelog import OLD_FORMAT, parts_with_times, read_mark
from recension.core.formats.columns import (
    BATCH,
    CONTROL,
    KIND,
    RUN,
    SEQ,
    TimeColumns,
    kind_and_unit,
    layout_of,
    refuse_reserved,
)
from recension.core.formats.decode import Decoder
from recension.core.formats.files import format_errors
from recension.core.formats.listing import StoredFile, format_of, partition_folders, stored_files
from recension.core.formats.stream_files import (
    FileChunk,
    FileRows,
    PlacedChunk,
    StreamFile,
    agreed_payload,
    files_in_order,
    read_chunks,
    read_placed,
)
from recension.core.formats.stream_parts import StreamParts, can_read_parts
from recension.core.formats.versions import NEWEST, Version
from recension.core.history import History
from recension.core.openclose import OpenClose
from recension.core.partitions import Partitions
from recension.core.placement import PartitionColumns
from recension.core.reconstitution import reconstitute
from recension.core.repeats import REPEATED, Sequences
from recension.core.ticks import BEGINNING, TimeLike, TimeUnit
from recension.core.time_kind import TICKS, TimeKind, merge_kinds
from recension.core.validity import Checker, Policy

BATCH_SIZE: Final = 1 << 16


def open_stream(
    path: str | PathLike[str],
    *,
    schema: pa.Schema | None = None,
    start: str | None = None,
    end: str | None = None,
    times: TimeUnit | pa.DataType | None = None,
    on_violation: Policy = "raise",
    check_orphans: bool = True,
    check_lateness: bool = True,
    closes_once: bool = False,
    batch_size: int = BATCH_SIZE,
    version: Version = NEWEST,
    is_timeless: bool = False,
    places: PartitionColumns | None = None,
    envelopes: Envelopes | None = None,
) -> StreamReader:
    """Open a stream file, a directory of them, or a plain table.

    ``schema`` is the payload to read: its columns, in its types (all columns, in the types the files
    have or show, if it is left out). ``start`` and ``end`` name a plain table's own columns of times, which
    the schema may have too; with a start alone each row is true for one tick. ``times`` is their kind, or
    what integers count since 1970: ``"s"``, ``"ms"`` or ``"us"``. ``on_violation`` says what happens to rows
    and elements that may not be there; ``check_orphans=False`` lets retractions of unknown events pass, for
    callers that can handle them, and ``check_lateness=False`` elements that break a CTI. With ``closes_once``
    each of equal events has a close of its own. ``version`` is that of a history table or changelog. With
    ``is_timeless`` it is a table without times, whose rows are true for ever. JSON Lines may hold
    ``envelopes`` of changes. The files are opened at once and read as the batches are asked for.

    ``places`` names the columns of sub-streams. Such a stream is read whole before its first batch is given,
    and so is one whose rows say in ``_run`` which run of a producer numbered them. In a directory of
    directories each of these is a partition: ``part=7``, or its name.
    """
    columns = TimeColumns.of(start, end, schema, *kind_and_unit(times))
    columns = TimeColumns(is_timeless=True) if is_timeless else columns
    if schema is not None:
        refuse_reserved(schema)
    folders: dict[Path, str | None] = {Path(path): None}
    if places is not None and (found := partition_folders(Path(path), places.partition)):
        folders = {**found}
    files = [
        replace(open_file(file, columns, schema, places, envelopes), partition=partition)
        for folder, partition in folders.items()
        for file in stored_files(folder, version)
    ]
    checks = _Checks(on_violation, check_orphans, check_lateness, closes_once)
    reader = StreamReader(files, agreed_payload(files, schema), checks, batch_size, places)
    reader.reopen = partial(
        open_stream,
        path,
        start=start,
        end=end,
        on_violation=on_violation,
        check_orphans=check_orphans,
        check_lateness=check_lateness,
        batch_size=batch_size,
        version=version,
        is_timeless=is_timeless,
        places=places,
        envelopes=envelopes,
        closes_once=closes_once,
    )
    return reader


def open_file(
    file: StoredFile,
    times: TimeColumns,
    declared: pa.Schema | None,
    places: PartitionColumns | None = None,
    envelopes: Envelopes | None = None,
) -> StreamFile:
    """Open one file of a stream."""
    known, name = format_of(file.path), str(file.path)
    rows: FileRows
    if envelopes is not None and known.name == "json" and has_envelopes(file.path):
        rows = EnvelopeRows(file.path, envelopes)
    else:
        rows = known.open_rows(file, times, _declare_places(file, times, declared, places))
    return StreamFile(name, rows, layout_of(rows.schema, times, name))


def _declare_places(
    file: StoredFile, times: TimeColumns, declared: pa.Schema | None, places: PartitionColumns | None
) -> pa.Schema | None:
    """The columns to read of a text: what nobody declares of those that place a row is read as it looks."""
    known = format_of(file.path)
    if places is None or declared is None or not known.is_text:
        return declared
    there = known.open_rows(file, times, None).schema
    extra = [name for name in places.names if name in there.names and name not in declared.names]
    return pa.schema([*declared, *(there.field(name) for name in extra if name not in CONTROL)])


class StreamReader:
    """A stream as batches of elements. It can be read again from the start."""

    def __init__(
        self,
        files: list[StreamFile],
        schema: pa.Schema,
        checking: _Checks,
        size: int,
        places: PartitionColumns | None = None,
    ) -> None:
        self._files, self._checking, self._size = files, checking, size
        has_runs = any(RUN in file.rows.schema.names for file in files)
        if has_runs and (places is None or not places.sequence):
            places = replace(places or PartitionColumns(), run=RUN, sequence=(BATCH, SEQ))
        self._places = places
        self.schema: pa.Schema = schema
        self.reopen: Callable[..., StreamReader] | None = None
        """Opens the same files again, for another ``schema``."""
        self.kind: TimeKind = reduce(merge_kinds, (file.layout.kind for file in files), None)
        self._pass = _Pass(schema, checking, self.kind)

    def in_columns(self, schema: pa.Schema) -> StreamReader:
        """The same stream with these columns in these types; files with others are refused."""
        if self.schema.equals(schema) or self.reopen is None:
            return self
        return self.reopen(schema=schema)

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
    def counts(self) -> Counter[str]:
        """How many elements were dropped, moved or ignored in this reading so far, by reason."""
        one = self._pass
        return one.decoder.counts + one.openclose.counts + one.checker.counts + one.counts

    @property
    def dropped(self) -> list[tuple[str, EventBatch]]:
        """The elements dropped, with the reason."""
        return [*self._pass.openclose.dropped, *self._pass.checker.dropped]

    def take_dropped(self) -> list[tuple[str, EventBatch]]:
        """The elements dropped since the last call; forgets them, and unreadable rows."""
        self._pass.decoder.dropped.clear()
        return [*self._pass.openclose.take_dropped(), *self._pass.checker.take_dropped()]

    def forget_before(self, t: int) -> None:
        """Changes to events that ended before ``t`` have no effect: they need not be checked."""
        self._pass.checker.forget_before(t)
        self._pass.openclose.forget_before(t)

    def check_rows(self) -> int:
        """How many events the checks remember."""
        return self._pass.checker.state_rows() + len(self._pass.openclose)

    def check_bytes(self) -> int:
        """How much memory they take."""
        return self._pass.checker.state_bytes() + self._pass.openclose.state_bytes()

    @property
    def unreadable(self) -> list[tuple[str, pa.RecordBatch]]:
        """The rows dropped because no element could be made of them, with the reason."""
        return self._pass.decoder.dropped

    @property
    def batch_size(self) -> int:
        """How many rows it reads at a time."""
        return self._size

    @property
    def has_partitions(self) -> bool:
        """Are there sub-streams? Then the stream is read whole."""
        return self._places is not None and bool(self._places.partition)

    def read_placed(self) -> PlacedChunk:
        """All elements, unchecked, and their places in sub-streams."""
        self._pass = one = _Pass(self.schema, self._checking, self.kind)
        return read_placed(
            self._files, one.decoder, self.schema, self._places or PartitionColumns(), self._size
        )

    def __iter__(self) -> Iterator[EventBatch]:
        if self._places is not None:
            yield from self._check_placed()
            return
        self._pass = one = _Pass(self.schema, self._checking, self.kind)
        for chunk in read_chunks(self._files, one.decoder, self.schema, self._size):
            batch = one.check(chunk)
            if len(batch):
                yield batch

    def parts(self) -> StreamParts | None:
        """Parts of it without the rest: of Parquet files in order, if nothing is dropped or moved."""
        if self._places is not None or self._checking.policy != "raise":
            return None
        files = files_in_order(self._files, self._size)
        if files is None or not all(can_read_parts(file) for file in files):
            return None
        return StreamParts(
            files, self.schema, lambda chunk: _Pass(self.schema, self._checking, self.kind).check(chunk)
        )

    def _check_placed(self) -> Iterator[EventBatch]:
        """The valid elements of all sub-streams, then their CTI; or those of one, without repeats."""
        chunk = self.read_placed()
        with chunk.locate_errors():
            batch = self._pass.check_placed(chunk, is_split=self.has_partitions)
        for start in range(0, len(batch), self._size):
            yield batch.slice(start, min(start + self._size, len(batch)))


@dataclass(frozen=True, slots=True)
class _Checks:
    """How strictly elements are checked."""

    policy: Policy
    orphans: bool
    lateness: bool
    closes_once: bool = False


class _Pass:
    """One reading of a stream: everything that starts anew with it."""

    def __init__(self, schema: pa.Schema, checking: _Checks, kind: TimeKind) -> None:
        self._kind = kind
        self.decoder = Decoder(schema, checking.policy)
        self.openclose = OpenClose(checking.policy, once=checking.closes_once)
        self.checker = Checker(checking.policy, orphans=checking.orphans, lateness=checking.lateness)
        self.counts: Counter[str] = Counter()
        self._is_strict = checking.policy == "raise"

    def check_placed(self, chunk: PlacedChunk, *, is_split: bool) -> EventBatch:
        """The valid elements of a whole stream whose rows have places; repeats are left out."""
        if is_split:
            return self._check_partitions(chunk)
        places = chunk.placement
        is_repeat, _ = Sequences().find_repeats(places, places.code, places.names)
        self.counts[REPEATED] += int(is_repeat.sum())
        chunk.leave_out(is_repeat)
        batch = self.openclose.translate(chunk.batch, kind=self._kind)
        return self.checker.check(batch, kind=self._kind)

    def _check_partitions(self, chunk: PlacedChunk) -> EventBatch:
        partitions = Partitions()
        placed = partitions.judge(chunk.batch, chunk.placement, is_strict=self._is_strict, kind=self._kind)
        for reason, _, counts in placed.dropped:
            self.counts[reason] += int(counts.sum())
        translated = self.openclose.judge(placed.batch, kind=self._kind, placed=placed)
        self.openclose.note(translated)
        kept = placed if translated.kept is None else placed.take(translated.kept)
        valid = self.checker.check(translated.batch, kind=self._kind, placed=kept)
        return concat([valid, cti(placed.cti, valid.schema)]) if placed.cti > BEGINNING else valid

    def check(self, chunk: FileChunk) -> EventBatch:
        """The valid elements of a chunk, without opens and closes."""
        try:
            return self._check_elements(chunk.batch, chunk)
        except StreamError as why:
            if chunk.origin is None or why.row is None:
                raise
            file, row = chunk.locate(why.row)
            raise StreamError(why.reason, file=file, row=row) from None

    def _check_elements(self, batch: EventBatch, chunk: FileChunk) -> EventBatch:
        try:
            batch = self.openclose.translate(
                batch, first_row=chunk.first_row, file=chunk.file, kind=self._kind
            )
        except StreamError as why:
            # Rows before the faulty one are checked first: the first fault is the one to report.
            if why.row is not None and why.row > chunk.first_row:
                self._check_elements(batch.slice(0, why.row - chunk.first_row), chunk)
            raise
        return self.checker.check(batch, first_row=chunk.first_row, file=chunk.file, kind=self._kind)


def read_history(
    path: str | PathLike[str],
    *,
    schema: pa.Schema | None = None,
    version: int | None = None,
    as_of: TimeLike | None = None,
) -> History:
    """The history in a file or a directory of files.

    Of a history table, ``version`` (so many micro-batches) or ``as_of`` (a time of the wall clock) asks for
    what was believed before.
    """
    reader = open_stream(path, schema=schema, version=Version.from_request(version, as_of))
    if reader.has_kinds:
        raise FormatError("a stream, not a history: it has a column _kind", file=str(path))
    return replace(reconstitute(reader, reader.schema), time_type=reader.time_type)


def read_bitemporal(path: str | PathLike[str], version: Version = NEWEST) -> History:
    """Every event that a changelog ever told, with the times from and until which it was believed.

    ``believed_from`` and ``believed_to`` (null: still believed) are columns of the payload; the lifetimes say
    when the events are true. The rows with ``believed_from <= t`` and ``believed_to > t``, or null, are what
    was believed at ``t``.
    """
    log = read_micro_batches(path, version)
    if log is None:
        raise FormatError(
            "not a changelog; only changelogs have the times of their micro-batches", file=str(path)
        )
    return replace(believed_events(log.batches, log.schema), time_type=log.time_type)


@dataclass(frozen=True)
class MicroBatches:
    """A changelog as it was written: batches of elements, each with the wall clock of its micro-batch."""

    schema: pa.Schema
    time_type: pa.DataType
    batches: Iterator[tuple[int, EventBatch]]


def read_micro_batches(
    path: str | PathLike[str], version: Version = NEWEST, *, after: int = -1
) -> MicroBatches | None:
    """A changelog by micro-batches, those that came ``after`` a time; None if it is none, or has no times."""
    folder = Path(path)
    with format_errors(str(folder)):
        mark = read_mark(folder) if folder.is_dir() else None
    if mark is None or mark.format == OLD_FORMAT:
        return None
    parts = parts_with_times(folder, mark, version)
    files = {part: open_file(StoredFile(part.path, seal=part.seal), TimeColumns(), None) for part in parts}
    schema = agreed_payload(list(files.values()), None)
    kind = reduce(merge_kinds, (file.layout.kind for file in files.values()), None)
    batches = (
        (at, batch)
        for at, pieces in groupby(parts, key=lambda part: part.at)
        if at > after
        for batch in StreamReader(
            [files[p] for p in pieces], schema, _Checks("raise", False, True), BATCH_SIZE
        )
    )
    return MicroBatches(schema, TICKS if kind is None else kind, batches)
