"""The history table: a query's current history, kept by one commit per micro-batch.

Assumes     a query's micro-batches come in the order of their numbers, the last ones perhaps again.
Guarantees  each manifest is the history after a whole number of micro-batches; a micro-batch counts once, and
            one made of other input than that of its number which counts is refused;
            whatever fails, whenever it is killed, the last manifest and its files stay.
State       the manifest, and where the events are that may still be retracted (`table_files`).
Cost        O(n log n) for n changes, amortised O(log n) rewrites a row; a few fsyncs.
Source      docs/design/006-history-table.md
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.core.formats.changelog import MARK
from recension.core.formats.columns import TimeColumns, layout_of
from recension.core.formats.encode import history_schema
from recension.core.formats.files import require_size
from recension.core.formats.manifest import (
    FOLDER,
    FORMAT,
    OLD_FORMAT,
    Manifest,
    current_manifest,
    is_plain_name,
    manifest_path,
)
from recension.runners.spark.sinks.files import (
    old_format_error,
    publish_text,
    require_new_table,
    sync_folder,
    write_parquet,
    writer_lock,
)
from recension.runners.spark.sinks.micro_batch import MicroBatch, is_next, remember
from recension.runners.spark.sinks.revision import Revision, changes_of
from recension.runners.spark.sinks.table_files import TableFiles, stored_schema


class HistoryTable:
    """Writes one table. Files that fall out of use stay for ``keep`` seconds, for those who read them."""

    def __init__(self, path: Path, keep: float) -> None:
        self._path, self._folder, self._keep = path, path / FOLDER, keep
        self._known: tuple[Manifest, TableFiles] | None = None

    def check(self, batch: MicroBatch) -> None:
        """Refuse what `apply` would refuse for its number or its query, and write nothing."""
        self._judge(batch)

    def check_owner(self, query: str | None, is_begun: bool, schema: pa.Schema) -> None:
        """Refuse, before anything runs, a table that is another query's, of other columns, or incomplete."""
        if (manifest := self._read_manifest(query or "", is_begun)) is not None:
            layout = layout_of(schema, TimeColumns(), "the DataFrame")
            stored_schema(self._folder, manifest, history_schema(layout.payload, layout.time_type))
            for name, seal in manifest.seals().items():
                require_size(self._folder / name, seal)

    def apply(self, batch: MicroBatch) -> None:
        """Commit a micro-batch, unless that was done already."""
        with writer_lock(self._folder, self._path):
            found, is_new = self._judge(batch)
            manifest, table = self._open(found or self._create(batch), batch)
            # Whatever goes wrong from here on, the next attempt looks at the disk again.
            self._known = None
            if is_new:
                manifest = self._commit(manifest, table, batch)
            self._known = manifest, table

    def _judge(self, batch: MicroBatch) -> tuple[Manifest | None, bool]:
        """The manifest, if there is one, and whether the micro-batch is the next."""
        found = self._read_manifest(batch.query, is_begun=batch.number > 0)
        last, recent = (found.batch, found.recent) if found else (-1, ())
        return found, is_next(self._path, batch, last, recent)

    def _commit(self, manifest: Manifest, table: TableFiles, batch: MicroBatch) -> Manifest:
        changes = changes_of(batch, table.index, manifest.cti)
        revision = Revision(manifest, table, changes.cti)
        revision.delete(table.index.take(changes.removed, changes.times) if len(changes.removed) else {})
        revision.add(changes.added)
        revision.rewrite()
        recent = remember(manifest.recent, batch)
        fresh, expired = revision.manifest(batch.number, recent, time.time(), self._keep)
        sync_folder(self._folder)
        publish_text(manifest_path(self._path, fresh.number), fresh.to_json())
        table.index.keep(file.name for file in fresh.files if not file.is_final(fresh.cti))
        self._remove({*expired, manifest_path(self._path, fresh.number - 2).name})
        return fresh

    def _open(self, manifest: Manifest, batch: MicroBatch) -> tuple[Manifest, TableFiles]:
        """The table as the last commit left it."""
        if self._known is not None and manifest.number == self._known[0].number:
            return self._known
        self._clean(manifest)
        return manifest, TableFiles(self._folder, manifest, schema_of(batch))

    def _create(self, batch: MicroBatch) -> Manifest:
        """A table without micro-batches: of every later manifest there are two from now on."""
        name = f"schema-{uuid4().hex}.parquet"
        seal = write_parquet(self._folder / name, [], schema_of(batch))
        manifest = Manifest(0, batch.query, name, schema_seal=seal)
        publish_text(manifest_path(self._path, 0), manifest.to_json())
        return manifest

    def _read_manifest(self, query: str, is_begun: bool) -> Manifest | None:
        """The manifest of this query's table; none where a table may begin."""
        manifest = current_manifest(self._path)
        if manifest is None:
            reason = "a table must see all that its query puts out"
            require_new_table(self._path, "history table", MARK, is_begun, reason)
        elif manifest.format == OLD_FORMAT:
            raise old_format_error(self._path, "table", OLD_FORMAT, FORMAT)
        elif manifest.query != query:
            raise RecensionError(
                f"{self._path}: the table of another query; use that query's checkpoint, or give a new path"
            )
        return manifest

    def _clean(self, manifest: Manifest) -> None:
        """Remove what failed attempts have left; no manifest has ever named it."""
        numbers = (manifest.number, manifest.number - 1)
        wanted = manifest.all_files() | {manifest_path(self._path, n).name for n in numbers} | {".lock"}
        self._remove({file.name for file in self._folder.iterdir() if not file.is_dir()} - wanted)

    def _remove(self, names: set[str]) -> None:
        for name in filter(is_plain_name, names):
            with suppress(FileNotFoundError):
                (self._folder / name).unlink()


def schema_of(batch: MicroBatch) -> pa.Schema:
    """The columns of the history of such micro-batches."""
    return history_schema(batch.layout.payload, batch.layout.time_type)
