"""The changelog: every element a query put out, one Parquet file per micro-batch, or a piece per task.

Assumes     a query's micro-batches come in the order of their numbers, the last ones perhaps again.
Guarantees  a file has its rows in the order of ``(_batch, _seq)``; it appears complete, under a name that
            only its number (and bucket) decides, and is never changed, so that a directory read at any time
            is a prefix of the stream, and another streaming query may read it as it grows: an event's rows
            are in one piece, and the piece with the CTIs appears last. A file that is missing or exchanged is
            noticed; a micro-batch made of other input than one of its number that is there is refused.
State       the mark: how far the changelog has come (`core.formats.changelog`).
Cost        O(n) for n rows, and four fsyncs; of pieces, two more. When it is opened, a look at every part.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recension.core.errors import FormatError, RecensionError
from recension.core.formats.changelog import (
    FORMAT,
    LINK,
    MARK,
    OLD_FORMAT,
    Link,
    Mark,
    Publishing,
    SealedPart,
    changelog_parts,
    part_path,
    read_link,
    read_mark,
)
from recension.core.formats.columns import KIND
from recension.core.formats.files import format_errors, seal_of
from recension.core.formats.manifest import FOLDER
from recension.runners.spark.sinks.files import (
    SealedName,
    old_format_error,
    publish,
    publish_text,
    require_new_table,
    sync_folder,
    write_named,
    writer_lock,
)
from recension.runners.spark.sinks.micro_batch import (
    MicroBatch,
    is_next,
    remember,
    require_same_columns,
    require_same_part,
)


@dataclass(frozen=True, slots=True)
class Piece:
    """What a task has written: its bucket, the name that the file has for now, and its seal."""

    bucket: int
    partial: str
    seal: str


@dataclass(frozen=True, slots=True)
class PieceWriter:
    """For tasks: writes the rows of one bucket, under a name that follows from them."""

    folder: Path
    link: Link
    buckets: int | None = None

    def write(self, batch: MicroBatch, bucket: int, buckets: int) -> Piece | None:
        """Write the piece of a bucket. All buckets get the CTIs; the last one keeps them."""
        rows = batch.rows
        if bucket != buckets - 1:
            rows = rows.filter(pc.not_equal(rows.column(KIND), "cti"))
        if not len(rows):
            return None
        return Piece(bucket, *write_rows(self.folder, rows, self.link, bucket))


def write_rows(folder: Path, rows: pa.RecordBatch, link: Link, bucket: int | None = None) -> SealedName:
    """Write a file that is to become a part or a piece; gives the name that it has for now, and the seal."""
    rows = rows.replace_schema_metadata({LINK: link.to_json()})
    prefix = f"{link.number:012}" if bucket is None else f"{link.number:012}-{bucket:04}"
    return write_named(folder, prefix, [rows], rows.schema)


class Changelog:
    """Appends to one directory."""

    def __init__(self, path: Path) -> None:
        self._path, self._partial = path, path / "_tmp"
        self._is_open = False

    def check(self, batch: MicroBatch) -> None:
        """Refuse what `apply` would refuse, and write nothing."""
        self._is_new(self._read_mark(batch.query, is_begun=batch.number > 0), batch)

    def check_owner(self, query: str | None, is_begun: bool, schema: pa.Schema) -> None:
        """Refuse, before anything runs, another query's changelog, other columns, or a gap."""
        if (mark := self._read_mark(query or "", is_begun)).part:
            first, *_ = changelog_parts(self._path, mark)
            with format_errors(str(first.path)):
                require_same_columns(pq.read_schema(first.path), schema)

    def apply(self, batch: MicroBatch) -> None:
        """Write a micro-batch, unless it is there already."""
        with self._next(batch) as mark:
            if mark is None:
                return
            part: tuple[SealedPart, ...] = mark.part
            # Without rows there is nothing to write, but the first file gives readers the columns.
            if len(batch.rows) or not batch.number:
                name, seal = write_rows(self._partial, batch.rows, _link(mark, batch))
                publish(self._partial / name, part_path(self._path, batch.number))
                part = (SealedPart(batch.number, seal),)
            self._put_mark(_advance(mark, batch, part))

    @contextmanager
    def hold(self, batch: MicroBatch) -> Iterator[PieceWriter | None]:
        """What tasks write a micro-batch with, until `commit`; none if it is there already."""
        with self._next(batch) as mark:
            yield None if mark is None else PieceWriter(self._partial, _link(mark, batch))

    def commit(self, batch: MicroBatch, written: Sequence[Piece]) -> None:
        """Publish what the tasks have written; `hold` must hold the changelog."""
        mark = self._read_mark(batch.query, is_begun=batch.number > 0)
        pieces = sorted(written, key=lambda piece: piece.bucket)
        if not pieces and not batch.number:
            # Without rows there is nothing to write, but the first file gives readers the columns.
            pieces = [Piece(0, *write_rows(self._partial, batch.rows, _link(mark, batch), 0))]
        if not pieces:
            self._put_mark(_advance(mark, batch, mark.part))
            return
        sealed = tuple(SealedPart(batch.number, piece.seal, piece.bucket) for piece in pieces)
        names = tuple(piece.partial for piece in pieces)
        sync_folder(self._partial)
        mark = replace(mark, publishing=Publishing(batch.number, batch.content, sealed, names))
        self._put_mark(mark)
        self._put_mark(self._publish(mark, batch))

    @contextmanager
    def _next(self, batch: MicroBatch) -> Iterator[Mark | None]:
        """Hold the changelog, and the mark that the micro-batch follows; none if it is there already."""
        with writer_lock(self._partial, self._path):
            mark = self._read_mark(batch.query, is_begun=batch.number > 0)
            if not self._is_open:
                self._open(mark)
            is_new = self._is_new(mark, batch)
            if is_new and (finished := self._finish(mark, batch)) is not None:
                self._put_mark(finished)
                is_new = False
            yield mark if is_new else None

    def _finish(self, mark: Mark, batch: MicroBatch) -> Mark | None:
        """The mark after a micro-batch that a writer has published who was killed before he said so."""
        if mark.publishing is not None:
            return self._publish(mark, batch)
        target = part_path(self._path, batch.number)
        if target.exists():
            return _advance(mark, batch, (SealedPart(batch.number, seal_of(target)),))
        return None

    def _publish(self, mark: Mark, batch: MicroBatch) -> Mark:
        """Give the pieces their names, in order; gives the mark that counts them."""
        assert mark.publishing is not None
        pieces, began = mark.publishing.pieces, time.time_ns()
        for number, (piece, name) in enumerate(zip(pieces, mark.publishing.partial, strict=True)):
            partial, target = self._partial / name, self._path / piece.name
            if partial.exists():
                # Spark's file source takes files by the time of their change, in milliseconds, and never one
                # much older than those that it has taken elsewhere: so that time alone is the clock's.
                changed = began - (len(pieces) - number) * 1_000_000
                os.utime(partial, ns=(changed, changed))
                os.replace(partial, target)
            elif not target.exists():
                raise FormatError("missing, and with it a part of the stream", file=str(target))
        sync_folder(self._path)
        return _advance(mark, batch, pieces)

    def _put_mark(self, mark: Mark) -> None:
        publish_text(self._path / MARK, mark.to_json())

    def _is_new(self, mark: Mark, batch: MicroBatch) -> bool:
        target = part_path(self._path, batch.number)
        is_new = is_next(self._path, batch, mark.last, mark.recent)
        if is_new and mark.publishing is not None:
            require_same_part(self._path, batch, mark.publishing.content)
        elif is_new and target.exists():
            link = read_link(target)
            require_same_part(self._path, batch, link.content if link else "")
        return is_new

    def _open(self, mark: Mark) -> None:
        """Begin to write: clear away what failed attempts have left, and see that all parts are there."""
        wanted = mark.publishing.partial if mark.publishing else ()
        for leftover in self._partial.glob("*.parquet"):
            if leftover.name not in wanted:
                with suppress(FileNotFoundError):
                    leftover.unlink()
        if not mark.part and not mark.publishing:
            self._put_mark(mark)
        changelog_parts(self._path, mark)
        self._is_open = True

    def _read_mark(self, query: str, is_begun: bool) -> Mark:
        """The mark of this query's changelog, or the first one where a changelog may begin."""
        mark = read_mark(self._path)
        if mark is None:
            reason = "a changelog starts with its query"
            require_new_table(self._path, "changelog", FOLDER, is_begun, reason)
            return Mark(query)
        if mark.format == OLD_FORMAT:
            raise old_format_error(self._path, "changelog", OLD_FORMAT, FORMAT)
        if mark.query != query:
            raise RecensionError(f"{self._path}: the changelog of another query; give each its own path")
        return mark


def _link(mark: Mark, batch: MicroBatch) -> Link:
    return Link(batch.number, batch.content, mark.part)


def _advance(mark: Mark, batch: MicroBatch, part: tuple[SealedPart, ...]) -> Mark:
    """The mark after one more micro-batch; what is new in it has been published by now."""
    if part is not mark.part:
        at = max([batch.at, *(earlier.at for earlier in mark.part)])
        part = tuple(replace(file, at=at) for file in part)
    recent = remember(mark.recent, batch)
    return replace(mark, last=batch.number, part=part, recent=recent, publishing=None)
