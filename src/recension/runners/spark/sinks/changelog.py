"""The changelog: every element a query put out, one Parquet file per micro-batch.

Assumes     a query's micro-batches come in the order of their numbers, the last ones perhaps again.
Guarantees  a file has a micro-batch's rows in the order of ``(_batch, _seq)``; it appears complete, under a
            name that only its number decides, and is never changed, so that a directory read at any time is
            a prefix of the stream, and another streaming query may read it as it grows. A part that is
            missing or exchanged is noticed; a micro-batch made of other input than one of its number that is
            there is refused.
State       the mark: how far the changelog has come (`core.formats.changelog`).
Cost        O(n) for n rows, and four fsyncs; when it is opened, a look at every part.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from recension.core.errors import RecensionError
from recension.core.formats.changelog import (
    FORMAT,
    LINK,
    MARK,
    OLD_FORMAT,
    Link,
    Mark,
    SealedPart,
    changelog_parts,
    part_path,
    read_link,
    read_mark,
)
from recension.core.formats.files import format_errors, seal_of
from recension.core.formats.manifest import FOLDER
from recension.runners.spark.sinks.files import (
    old_format_error,
    publish,
    publish_text,
    require_new_table,
    write_parquet,
    writer_lock,
)
from recension.runners.spark.sinks.micro_batch import (
    MicroBatch,
    is_next,
    remember,
    require_same_columns,
    require_same_part,
)


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
        if (mark := self._read_mark(query or "", is_begun)).part is not None:
            first, *_ = changelog_parts(self._path, mark)
            with format_errors(str(first.path)):
                require_same_columns(pq.read_schema(first.path), schema)

    def apply(self, batch: MicroBatch) -> None:
        """Write a micro-batch, unless it is there already."""
        with writer_lock(self._partial, self._path):
            mark = self._read_mark(batch.query, is_begun=batch.number > 0)
            if not self._is_open:
                self._open(mark)
            if self._is_new(mark, batch):
                self._append(mark, batch)

    def _append(self, mark: Mark, batch: MicroBatch) -> None:
        part = mark.part
        # Without rows there is nothing to write, but the first file gives readers the columns.
        if len(batch.rows) or not batch.number:
            part = SealedPart(batch.number, self._write_part(mark, batch))
        recent = remember(mark.recent, batch)
        publish_text(self._path / MARK, replace(mark, last=batch.number, part=part, recent=recent).to_json())

    def _write_part(self, mark: Mark, batch: MicroBatch) -> str:
        """Write the part, unless a writer that was killed has left it there; give its seal."""
        target = part_path(self._path, batch.number)
        if target.exists():
            return seal_of(target)
        link = Link(batch.number, batch.content, mark.part)
        partial = self._partial / f"{uuid4().hex}.parquet"
        rows = batch.rows.replace_schema_metadata({LINK: link.to_json()})
        seal = write_parquet(partial, [rows], rows.schema)
        publish(partial, target)
        return seal

    def _is_new(self, mark: Mark, batch: MicroBatch) -> bool:
        target = part_path(self._path, batch.number)
        is_new = is_next(self._path, batch, mark.last, mark.recent)
        if is_new and target.exists():
            link = read_link(target)
            require_same_part(self._path, batch, link.content if link else "")
        return is_new

    def _open(self, mark: Mark) -> None:
        """Begin to write: clear away what failed attempts have left, and see that all parts are there."""
        for leftover in self._partial.glob("*.parquet"):
            with suppress(FileNotFoundError):
                leftover.unlink()
        if mark.part is None:
            publish_text(self._path / MARK, mark.to_json())
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
