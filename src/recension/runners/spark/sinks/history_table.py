"""The history table: a query's current history, kept by one commit per micro-batch.

Assumes     a query's micro-batches come in the order of their numbers, the last ones perhaps again.
Guarantees  each manifest is the history after a whole number of micro-batches; a micro-batch counts once, and
            one made of other input than that of its number which counts is refused;
            whatever fails, whenever it is killed, the last manifest and its files stay.
State       the manifest, and where the events are that may still be retracted (`table_files`).
Cost        O(n log n) for n changes, amortised O(log n) rewrites a row; a few fsyncs. It does not grow with
            the table.
Source      docs/design/006-history-table.md

A commit computes the net effect of the micro-batch: events that are added, and events that are no longer
there. It writes the files that say so. Then files are merged with others of their size, or rewritten once
half of their rows are final: a row takes part in one merge per size class, and no step rewrites more than a
few full files.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, RETRACT, EventBatch, Index
from recension.core.errors import RecensionError, StreamError
from recension.core.event_bag import BagChanges, EventCounts, bag_changes, find_orphans
from recension.core.formats.changelog import MARK
from recension.core.formats.columns import TimeColumns, layout_of
from recension.core.formats.encode import history_schema
from recension.core.formats.files import require_size
from recension.core.formats.manifest import (
    FOLDER,
    FORMAT,
    OLD_FORMAT,
    DataFile,
    DeletionFile,
    Manifest,
    UnusedFile,
    current_manifest,
    is_plain_name,
    manifest_path,
)
from recension.core.history import History
from recension.core.netting import group_sizes
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING
from recension.core.validity import UNKNOWN, Checker
from recension.runners.spark.sinks.files import (
    old_format_error,
    publish_text,
    require_new_table,
    sync_folder,
    write_parquet,
    writer_lock,
)
from recension.runners.spark.sinks.micro_batch import MicroBatch, Recent, is_next, remember
from recension.runners.spark.sinks.table_files import TableFiles, stored_schema

# Numbers of rows: files as large as this are not merged, and smaller ones are all of one class.
FULL: Final = 1 << 20
SMALLEST: Final = 1 << 12
FAN_IN: Final = 8

F = TypeVar("F", DataFile, DeletionFile)


@dataclass(frozen=True, slots=True)
class Changes:
    """The net effect: events to add; identities to remove, each so many times; and the last CTI."""

    added: History
    removed: Hashes
    times: Index
    cti: int


def changes_of(batch: MicroBatch, live: EventCounts, cti: int) -> Changes:
    """The net effect of a micro-batch on a history that was final up to ``cti``."""
    events = _check_elements(batch, cti)
    cti = max(cti, int(events.vs[events.kind == CTI].max(initial=BEGINNING)))
    if not bool((events.kind == RETRACT).any()):
        data = events.filter(events.is_data())
        return Changes(_make_history(data, data.ve), np.zeros(0, np.uint64), np.zeros(0, np.int64), cti)
    changes = bag_changes(events, events.is_data())
    orphans = find_orphans(changes, live, len(events))
    if bool(orphans.any()):
        at = int(np.argmax(orphans))
        raise StreamError(
            f"{batch.name}: {UNKNOWN}: {events.slice(at, at + 1).to_elements(batch.layout.kind)[0]}"
        )
    added, removed, times = _net_changes(changes)
    return Changes(_make_history(events.take(changes.row[added]), changes.end[added]), removed, times, cti)


def _check_elements(batch: MicroBatch, cti: int) -> EventBatch:
    """The elements, or an error that names the first which no valid stream may hold."""
    checker = Checker(orphans=False)
    checker.restore({"frontier": pa.table({"frontier": [cti], "no_effect_before": [BEGINNING]})})
    try:
        return checker.check(batch.events(), kind=batch.layout.kind)
    except StreamError as why:
        raise StreamError(f"{batch.name}: {why.reason}") from None


def _net_changes(changes: BagChanges) -> tuple[Index, Hashes, Index]:
    """The additions that remain, and the identities that were taken away more often than they were added."""
    order = np.lexsort((changes.delta, changes.key))
    group, size = group_sizes(changes.key[order])
    first = np.cumsum(size) - size
    net = np.add.reduceat(changes.delta[order], first)
    # The additions stand last in their group.
    from_end = (first + size)[group] - np.arange(len(order))
    added: Index = order[from_end <= net[group]]
    return added, changes.key[order][first[net < 0]], -net[net < 0]


def _make_history(events: EventBatch, ends: Index) -> History:
    return History(events.vs, ends, pa.Table.from_batches([events.payload]))


class TableRevision:
    """Starts from a manifest; every method writes files that nobody sees before the next manifest."""

    def __init__(self, manifest: Manifest, table: TableFiles, cti: int) -> None:
        self._manifest, self._table, self._cti = manifest, table, cti
        self._files = {file.name: file for file in manifest.files}
        self._deletions = {file.name: file for file in manifest.deletions}

    def delete(self, rows: Mapping[str, Index]) -> None:
        """Take rows out of the history."""
        if not rows:
            return
        for name, places in rows.items():
            self._files[name] = self._files[name].with_deleted(len(places))
        written = self._table.delete(rows)
        self._deletions[written.name] = written

    def add(self, events: History, kind: str = "added") -> None:
        """Put events into the history."""
        if not len(events):
            return
        written = self._table.write(events, kind)
        self._files[written.name] = written
        if not written.is_final(self._cti):
            self._table.index.add(written.name, events)

    def rewrite(self) -> None:
        """Merge files that are small and many; put what is final into files that stay."""
        for group in choose_rewrites(list(self._files.values()), self._cti):
            self._merge(group)
        if not self._table.has_deletions(self._files):
            self._deletions = {}
        if small := pick_mergeable(list(self._deletions.values())):
            merged = self._table.merge_deletions(small, set(self._files))
            self._deletions = {n: f for n, f in self._deletions.items() if f not in small}
            self._deletions |= {merged.name: merged} if merged.rows else {}

    def _merge(self, group: list[DataFile]) -> None:
        events = self._table.events(group)
        for file in group:
            del self._files[file.name]
            self._table.forget(file.name)
        final = events.ve < self._cti
        self.add(events.filter(final), "final")
        self.add(events.filter(~final), "merged")

    def manifest(self, batch: int, recent: Recent, now: float, keep: float) -> tuple[Manifest, list[str]]:
        """The next manifest, and the files that nobody needs once it is there."""
        old = self._manifest
        gone = old.used_files() - {*self._files, *self._deletions}
        dropped = [*old.dropped, *(UnusedFile(name, now) for name in sorted(gone))]
        # What the last commit dropped is still in the manifest before this one.
        expired = [file.name for file in old.dropped if file.at + keep < now]
        manifest = replace(
            old,
            number=old.number + 1,
            batch=batch,
            recent=recent,
            cti=self._cti,
            files=tuple(self._files.values()),
            deletions=tuple(self._deletions.values()),
            dropped=tuple(file for file in dropped if file.name not in expired),
        )
        return manifest, expired


def pick_mergeable(files: Sequence[F]) -> list[F]:
    """Files of about one size that are worth merging now; none if there are too few."""
    classes: defaultdict[int, list[F]] = defaultdict(list)
    for file in files:
        if file.rows < FULL:
            members = classes[_size_class(file.rows)]
            members.append(file)
            if len(members) == FAN_IN or (len(members) > 1 and sum(f.rows for f in members) >= FULL):
                return members
    return []


def _size_class(rows: int) -> int:
    size, limit = 0, SMALLEST
    while rows >= limit:
        size, limit = size + 1, limit * FAN_IN
    return size


def is_worn(file: DataFile, cti: int) -> bool:
    """Is it worth rewriting a file that is too large to merge? Yes if half of it is deleted or final."""
    if file.rows < FULL:
        return False
    if file.is_final(cti):
        return file.deleted > 0
    return 2 * file.deleted >= file.rows or file.half_end < cti


def choose_rewrites(files: Sequence[DataFile], cti: int) -> list[list[DataFile]]:
    """What to rewrite in one commit: a group of live files, one of final files, or else a worn one."""
    tiers = [[f for f in files if f.is_final(cti) == final] for final in (False, True)]
    groups = [group for tier in tiers if (group := pick_mergeable(tier))]
    worn = [[file] for file in files if is_worn(file, cti)]
    return groups or worn[:1]


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
        revision = TableRevision(manifest, table, changes.cti)
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
