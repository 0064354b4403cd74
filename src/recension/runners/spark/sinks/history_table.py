"""The history table: a query's current history, kept by one commit per micro-batch.

Assumes     a query's micro-batches come in the order of their numbers, the last one perhaps again.
Guarantees  each manifest is the history after a whole number of micro-batches; a micro-batch counts once;
            whatever fails, whenever it is killed, the last manifest and its files stay.
State       the manifest, and where the events are that may still be retracted (`live`).
Cost        O(n log n) for n changes, amortised O(log n) rewrites a row; a few fsyncs.
Source      docs/design/006-history-table.md
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from recension.core.errors import RecensionError
from recension.core.formats.encode import history_schema
from recension.core.formats.manifest import FOLDER, Manifest, current_manifest, manifest_path
from recension.runners.spark.sinks.changes import changes_of
from recension.runners.spark.sinks.durable import locked, publish_text, sync_folder, write_parquet
from recension.runners.spark.sinks.micro_batch import MicroBatch
from recension.runners.spark.sinks.revision import Revision
from recension.runners.spark.sinks.stored import StoredEvents


class HistoryTable:
    """Writes one table. Files that fall out of use stay for ``keep`` seconds, for those who read them."""

    def __init__(self, path: Path, keep: float) -> None:
        self._path, self._folder, self._keep = path, path / FOLDER, keep
        self._known: tuple[Manifest, StoredEvents] | None = None

    def apply(self, batch: MicroBatch) -> None:
        """Commit a micro-batch, unless that was done already."""
        with locked(self._folder, self._path):
            manifest, stored = self._opened(batch)
            # Whatever goes wrong from here on, the next attempt looks at the disk again.
            self._known = None
            self._refuse_foreign(manifest, batch)
            if batch.number > manifest.batch:
                manifest = self._commit(manifest, stored, batch)
            self._known = manifest, stored

    def _commit(self, manifest: Manifest, stored: StoredEvents, batch: MicroBatch) -> Manifest:
        changes = changes_of(batch, stored.live, manifest.cti)
        revision = Revision(manifest, stored, changes.cti)
        revision.delete(stored.live.take(changes.removed, changes.times) if len(changes.removed) else {})
        revision.add(changes.added)
        revision.rewrite()
        fresh, expired = revision.manifest(batch.number, time.time(), self._keep)
        sync_folder(self._folder)
        publish_text(manifest_path(self._path, fresh.number), fresh.to_json())
        stored.live.keep(file.name for file in fresh.files if not file.is_final(fresh.cti))
        self._remove({*expired, manifest_path(self._path, fresh.number - 2).name})
        return fresh

    def _opened(self, batch: MicroBatch) -> tuple[Manifest, StoredEvents]:
        """The table as the last commit left it."""
        found = current_manifest(self._path)
        if self._known is not None and found is not None and found.number == self._known[0].number:
            return self._known
        manifest = found or self._created(batch)
        self._clean(manifest)
        schema = history_schema(batch.layout.payload, batch.layout.time_type)
        return manifest, StoredEvents(self._folder, manifest, schema)

    def _created(self, batch: MicroBatch) -> Manifest:
        if foreign := [f.name for f in self._path.iterdir() if f.name[0] not in "_."]:
            raise RecensionError(
                f"{self._path}: not a history table, but not empty either: it has {foreign[0]}"
            )
        schema = history_schema(batch.layout.payload, batch.layout.time_type)
        name = f"schema-{uuid4().hex}.parquet"
        write_parquet(self._folder / name, [], schema)
        return Manifest(-1, batch.query, name)

    def _refuse_foreign(self, manifest: Manifest, batch: MicroBatch) -> None:
        if manifest.query != batch.query:
            raise RecensionError(
                f"{self._path}: the table of another query; use that query's checkpoint, or give a new path"
            )
        if batch.number > manifest.batch + 1:
            raise RecensionError(
                f"{self._path}: has {manifest.batch + 1} micro-batches, and now comes number {batch.number}; "
                "a table must see all that its query puts out: use a new checkpoint"
            )

    def _clean(self, manifest: Manifest) -> None:
        """Remove what failed attempts have left; no manifest has ever named it."""
        numbers = (manifest.number, manifest.number - 1)
        wanted = manifest.names() | {manifest_path(self._path, n).name for n in numbers} | {".lock"}
        self._remove({file.name for file in self._folder.iterdir()} - wanted)

    def _remove(self, names: set[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                (self._folder / name).unlink()
