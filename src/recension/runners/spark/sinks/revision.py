"""What a micro-batch changes in a history table: the net effect, and the files that say so.

One writer does it for all buckets (the driver), or each task for its own. Neither is seen before the next
manifest: what a writer gives back are its `Edits`, which the driver puts together and commits.

A revision writes the events that are added and deletes those that are no longer there by their rows. Then
files are merged with others of their size and bucket, or rewritten once half of their rows are final: a row
takes part in one merge per size class, and no step rewrites more than a few full files.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, RETRACT, EventBatch, Index
from recension.core.errors import StreamError
from recension.core.event_bag import BagChanges, EventCounts, bag_changes, find_orphans
from recension.core.formats.encode import history_schema
from recension.core.formats.manifest import (
    ANY_BUCKET,
    FOLDER,
    FORMAT,
    DataFile,
    DeletionFile,
    Manifest,
    UnusedFile,
)
from recension.core.history import History
from recension.core.netting import group_sizes
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING
from recension.core.validity import UNKNOWN, Checker
from recension.runners.spark.sinks.micro_batch import MicroBatch, remember
from recension.runners.spark.sinks.table_files import TableFiles

# Numbers of rows: files as large as this are not merged, and smaller ones are all of one class.
FULL: Final = 1 << 20
SMALLEST: Final = 1 << 12
FAN_IN: Final = 8
TICKS_A_SECOND: Final = 1_000_000

F = TypeVar("F", DataFile, DeletionFile)


@dataclass(frozen=True, slots=True)
class Changes:
    """The net effect: events to add; identities to remove, each so many times."""

    added: History
    removed: Hashes
    times: Index


@dataclass(frozen=True, slots=True)
class Edits:
    """What a writer has done: files it wrote, rows it deleted in others, files that it has replaced."""

    cti: int
    files: tuple[DataFile, ...]
    deletions: tuple[DeletionFile, ...]
    deleted: Mapping[str, int]
    gone: frozenset[str]


def revise(path: Path, manifest: Manifest, batch: MicroBatch, bucket: int = ANY_BUCKET) -> Edits:
    """Write what a micro-batch, or a bucket's part of it, changes."""
    table = TableFiles(path / FOLDER, manifest, schema_of(batch), batch.number, bucket)
    events = check_elements(batch, manifest.cti)
    cti = max(manifest.cti, int(events.vs[events.kind == CTI].max(initial=BEGINNING)))
    index = table.index(events, manifest.cti)
    changes = changes_of(batch, events, index)
    revision = TableRevision(table, cti)
    revision.delete(index.take(changes.removed, changes.times) if len(changes.removed) else {})
    revision.add(changes.added, "added", bucket)
    revision.rewrite()
    return revision.edits()


def schema_of(batch: MicroBatch) -> pa.Schema:
    """The columns of the history of such micro-batches."""
    return history_schema(batch.layout.payload, batch.layout.time_type)


def changes_of(batch: MicroBatch, events: EventBatch, live: EventCounts) -> Changes:
    """The net effect of a micro-batch's elements."""
    if not bool((events.kind == RETRACT).any()):
        data = events.filter(events.is_data())
        return Changes(_make_history(data, data.ve), np.zeros(0, np.uint64), np.zeros(0, np.int64))
    changes = bag_changes(events, events.is_data())
    orphans = find_orphans(changes, live, len(events))
    if bool(orphans.any()):
        at = int(np.argmax(orphans))
        raise StreamError(
            f"{batch.name}: {UNKNOWN}: {events.slice(at, at + 1).to_elements(batch.layout.kind)[0]}"
        )
    added, removed, times = _net_changes(changes)
    return Changes(_make_history(events.take(changes.row[added]), changes.end[added]), removed, times)


def check_elements(batch: MicroBatch, cti: int) -> EventBatch:
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
    """Every method writes files that nobody sees before the next manifest."""

    def __init__(self, table: TableFiles, cti: int) -> None:
        self._table, self._cti = table, cti
        self._files = {file.name: file for file in table.files}
        self._deletions = {file.name: file for file in table.deletions}
        self._before = {*self._files, *self._deletions}
        self._deleted: Counter[str] = Counter()

    def delete(self, rows: Mapping[str, Index]) -> None:
        """Take rows out of the history."""
        if not rows:
            return
        for name, places in rows.items():
            self._files[name] = self._files[name].with_deleted(len(places))
            self._deleted[name] = len(places)
        written = self._table.delete(rows)
        self._deletions[written.name] = written

    def add(self, events: History, kind: str, bucket: int) -> None:
        """Put events into the history."""
        if len(events):
            written = self._table.write(events, kind, bucket)
            self._files[written.name] = written
            if not written.is_final(self._cti):
                self._table.remember(written, events)

    def rewrite(self) -> None:
        """Merge files that are small and many; put what is final into files that stay."""
        for group in choose_rewrites([f for f in self._files.values() if self._table.owns(f)], self._cti):
            self._merge(group)
        mine = [file for file in self._deletions.values() if self._table.owns(file)]
        if not self._table.has_deletions(self._files):
            self._forget(mine)
        elif small := pick_mergeable(mine):
            merged = self._table.merge_deletions(small, set(self._files))
            self._forget(small)
            self._deletions |= {merged.name: merged} if merged.rows else {}

    def edits(self) -> Edits:
        """What was done."""
        gone = self._before - {*self._files, *self._deletions}
        return Edits(
            self._cti,
            tuple(file for name, file in self._files.items() if name not in self._before),
            tuple(file for name, file in self._deletions.items() if name not in self._before),
            {name: rows for name, rows in self._deleted.items() if name in self._files},
            frozenset(gone),
        )

    def _merge(self, group: list[DataFile]) -> None:
        events = self._table.events(group)
        for file in group:
            del self._files[file.name]
        final = events.ve < self._cti
        self.add(events.filter(final), "final", group[0].bucket)
        self.add(events.filter(~final), "merged", group[0].bucket)

    def _forget(self, deletions: Iterable[DeletionFile]) -> None:
        for file in deletions:
            del self._deletions[file.name]


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
    """What to rewrite in one commit: of each bucket a group of live and one of final files, or a worn one."""
    tiers: defaultdict[tuple[int, bool], list[DataFile]] = defaultdict(list)
    for file in files:
        tiers[file.bucket, file.is_final(cti)].append(file)
    groups = [group for tier in tiers.values() if (group := pick_mergeable(tier))]
    worn = [[file] for file in files if is_worn(file, cti)]
    return groups or worn[:1]


def next_manifest(
    old: Manifest, edits: Sequence[Edits], batch: MicroBatch, keep: float
) -> tuple[Manifest, list[str]]:
    """The manifest after a micro-batch, and the files that nobody needs once it is there.

    Its time is that of the micro-batch, which every attempt has. Times never go back, whatever clocks do.
    """
    at = max(batch.at, old.at)
    gone = {name for one in edits for name in one.gone}
    deleted = sum((Counter(one.deleted) for one in edits), Counter())
    files = [f.with_deleted(deleted[f.name]) for f in old.files if f.name not in gone]
    deletions = [file for file in old.deletions if file.name not in gone]
    # What the last commit dropped is still in the manifest before this one.
    before = [_date(file, old.at, at) for file in old.dropped]
    dropped = [*before, *(UnusedFile(name, at / TICKS_A_SECOND) for name in sorted(gone))]
    expired = [file.name for file in before if file.at + keep <= at / TICKS_A_SECOND]
    manifest = replace(
        old,
        number=old.number + 1,
        batch=batch.number,
        recent=remember(old.recent, batch),
        cti=max([old.cti, *(one.cti for one in edits)]),
        files=(*files, *(file for one in edits for file in one.files)),
        deletions=(*deletions, *(file for one in edits for file in one.deletions)),
        dropped=tuple(file for file in dropped if file.name not in expired),
        at=at,
        format=FORMAT,
    )
    return manifest, expired


def _date(file: UnusedFile, dropped: int, at: int) -> UnusedFile:
    """A file that is not used any more, with the time from which its readers have ``keep`` seconds.

    A micro-batch is committed after the time that it bears, perhaps an hour later, if it was large or its
    driver died. It was there when the next one was planned: so what it dropped counts from then on. One tick
    less tells such a time from that of a file that this micro-batch drops.
    """
    if round(file.at * TICKS_A_SECOND) != dropped:
        return file
    return replace(file, at=(at - 1) / TICKS_A_SECOND)
