"""The history table: a query's current history, kept by one commit per micro-batch.

Assumes     a query's micro-batches come in the order of their numbers, the last ones perhaps again.
Guarantees  each manifest is the history after a whole number of micro-batches; a micro-batch counts once, and
            one made of other input than that of its number which counts is refused;
            whatever fails, whenever it is killed, the last manifest and its files stay.
State       the manifest; what is in memory only saves reading (`table_files`).
Cost        O(n log n) for n changes, amortised O(log n) rewrites a row; a few fsyncs. It does not grow with
            the table.
Source      docs/design/006-history-table.md

A micro-batch is written by the driver (`apply`), or by tasks, each of which writes for one bucket (`hold`,
`commit`). A task that fails or runs twice leaves files that no manifest names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from recension.core.errors import FormatError, RecensionError
from recension.core.formats.changelog import MARK
from recension.core.formats.columns import TimeColumns, layout_of
from recension.core.formats.encode import history_schema
from recension.core.formats.files import is_plain_name, require_size
from recension.core.formats.manifest import (
    FOLDER,
    FORMAT,
    LAST,
    OLD_FORMAT,
    Manifest,
    current_manifest,
    least_number,
    manifest_numbers,
    manifest_path,
    read_manifest,
)
from recension.runners.spark.sinks.files import (
    old_format_error,
    publish_text,
    require_new_table,
    sync_folder,
    write_named,
    writer_lock,
)
from recension.runners.spark.sinks.micro_batch import MicroBatch, is_next, require_same_columns
from recension.runners.spark.sinks.revision import TICKS_A_SECOND, Edits, next_manifest, revise, schema_of
from recension.runners.spark.sinks.table_files import read_schema


@dataclass(frozen=True, slots=True)
class BucketWriter:
    """For tasks: writes what the rows of one bucket change in the version that it starts from."""

    path: Path
    version: int
    buckets: int

    def write(self, batch: MicroBatch, bucket: int, buckets: int) -> Edits:
        """Write the files of a bucket, as every attempt names them."""
        if buckets != self.buckets:
            raise RecensionError(f"{self.path}: {buckets} tasks for {self.buckets} buckets; this is a defect")
        return revise(self.path, read_manifest(manifest_path(self.path, self.version)), batch, bucket)


class HistoryTable:
    """Writes one table. Versions, and the files that only they use, stay for ``keep`` seconds.

    A table that is new gets so many ``buckets``.
    """

    def __init__(self, path: Path, keep: float, buckets: int = 1) -> None:
        self._path, self._folder, self._keep = path, path / FOLDER, keep
        self._buckets = buckets
        self._is_open = False

    def check(self, batch: MicroBatch) -> None:
        """Refuse what `apply` would refuse for its number or its query, and write nothing."""
        self._judge(batch)

    def check_owner(self, query: str | None, is_begun: bool, schema: pa.Schema) -> None:
        """Refuse, before anything runs, a table that is another query's, of other columns, or incomplete."""
        if (manifest := self._read_manifest(query or "", is_begun)) is not None:
            layout = layout_of(schema, TimeColumns(), "the DataFrame")
            columns = history_schema(layout.payload, layout.time_type)
            require_same_columns(read_schema(self._folder, manifest), columns)
            for name, seal in manifest.seals().items():
                require_size(self._folder / name, seal)

    def apply(self, batch: MicroBatch) -> None:
        """Commit a micro-batch, unless that was done already."""
        with self._next(batch) as manifest:
            if manifest is not None:
                self._commit(manifest, batch, [revise(self._path, manifest, batch)])

    @contextmanager
    def hold(self, batch: MicroBatch) -> Iterator[BucketWriter | None]:
        """What tasks write a micro-batch with, until `commit`; none if it is there already."""
        with self._next(batch) as manifest:
            if manifest is None:
                yield None
            else:
                yield BucketWriter(self._path, manifest.number, manifest.buckets or self._buckets)

    def commit(self, batch: MicroBatch, written: Sequence[Edits]) -> None:
        """Commit what the tasks have written; `hold` must hold the table."""
        manifest = current_manifest(self._path)
        assert manifest is not None
        self._commit(replace(manifest, buckets=manifest.buckets or self._buckets), batch, written)

    @contextmanager
    def _next(self, batch: MicroBatch) -> Iterator[Manifest | None]:
        """Hold the table, and the manifest that the micro-batch follows; none if it is there already."""
        with writer_lock(self._folder, self._path):
            found, is_new = self._judge(batch)
            manifest = found or self._create(batch)
            if not self._is_open:
                self._clean(manifest)
            # After a failure there may be something to clean again.
            self._is_open = False
            yield manifest if is_new else None
            self._is_open = True

    def _judge(self, batch: MicroBatch) -> tuple[Manifest | None, bool]:
        """The manifest, if there is one, and whether the micro-batch is the next."""
        found = self._read_manifest(batch.query, is_begun=batch.number > 0)
        last, recent = (found.batch, found.recent) if found else (-1, ())
        return found, is_next(self._path, batch, last, recent)

    def _commit(self, manifest: Manifest, batch: MicroBatch, edits: Sequence[Edits]) -> None:
        fresh, expired = next_manifest(manifest, edits, batch, self._keep)
        sync_folder(self._folder)
        publish_text(manifest_path(self._path, fresh.number), fresh.to_json())
        publish_text(self._folder / LAST, f"{fresh.number}\n")
        # First the manifests: one that is there has its files.
        self._remove(self._expired_manifests(fresh))
        self._remove(expired)

    def _expired_manifests(self, fresh: Manifest) -> list[str]:
        """The manifests of versions that were replaced longer ago than files stay; never the last two.

        A version was there at the latest when the micro-batch after it was planned, whose time the next one
        bears: so a version was replaced at the latest at the time of the second one after it.
        """
        numbers = sorted(manifest_numbers(self._path))
        expired = list[str]()
        for number, second in zip(numbers, numbers[2:], strict=False):
            if second > fresh.number or self._planned_at(second) + self._keep > _seconds(fresh):
                break
            expired.append(manifest_path(self._path, number).name)
        return expired

    def _planned_at(self, number: int) -> float:
        """The time of a version; one that cannot be read need not be kept."""
        with suppress(FormatError):
            return _seconds(read_manifest(manifest_path(self._path, number)))
        return 0.0

    def _create(self, batch: MicroBatch) -> Manifest:
        """A table without micro-batches: of every later manifest there are two from now on."""
        name, seal = write_named(self._folder, "schema", [], schema_of(batch))
        manifest = Manifest(0, batch.query, name, schema_seal=seal, buckets=self._buckets, at=batch.at)
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
        """Finish what a failed attempt has committed, and remove what failed ones have left."""
        if least_number(self._path) < manifest.number:
            publish_text(self._folder / LAST, f"{manifest.number}\n")
        self._remove(self._expired_manifests(manifest))
        numbers = manifest_numbers(self._path)
        wanted = manifest.all_files() | {manifest_path(self._path, n).name for n in numbers} | {LAST, ".lock"}
        self._remove({file.name for file in self._folder.iterdir() if not file.is_dir()} - wanted)

    def _remove(self, names: Iterable[str]) -> None:
        for name in filter(is_plain_name, names):
            with suppress(FileNotFoundError):
                (self._folder / name).unlink()


def _seconds(manifest: Manifest) -> float:
    return manifest.at / TICKS_A_SECOND
