"""The files of a history table as its writer sees them, and where the events are that may still be retracted.

Assumes     files never change; a row is deleted at most once.
Guarantees  `RowIndex.count` and `RowIndex.take` answer for all rows that are not deleted, over all files.
State       13 bytes a row of the files that are not final, once the first retraction has come; none before.
Cost        O(k log n) a file for k questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recension.core.batch import Index, Mask
from recension.core.errors import RecensionError
from recension.core.formats.encode import history_rows
from recension.core.formats.files import format_errors, require_seal
from recension.core.formats.manifest import (
    DELETIONS,
    FILE,
    ROW,
    DataFile,
    DeletionFile,
    Manifest,
    deleted_rows,
    read_deletions,
)
from recension.core.history import History, concat_histories
from recension.core.rowhash import Hashes
from recension.runners.spark.sinks.files import write_parquet
from recension.runners.spark.sinks.micro_batch import require_same_columns

_NONE: Index = np.zeros(0, np.int64)


class TableFiles:
    """Reads and writes files of one folder, and knows which of their rows are deleted."""

    def __init__(self, folder: Path, manifest: Manifest, schema: pa.Schema) -> None:
        self._folder = folder
        self._schema = stored_schema(folder, manifest, schema)
        self._seals = {file.name: file.seal for file in manifest.files}
        self._deleted = {n: [rows] for n, rows in deleted_rows(folder.parent, manifest).items()}
        self.index = RowIndex(self._read, self.rows_deleted)
        for file in manifest.files:
            if not file.is_final(manifest.cti):
                self.index.add(file.name)

    def rows_deleted(self, name: str) -> Index:
        """The rows of a file that are deleted."""
        return np.concatenate([_NONE, *self._deleted.get(name, [])])

    def has_deletions(self, names: Iterable[str]) -> bool:
        """Is a row of any of these files deleted?"""
        return any(name in self._deleted for name in names)

    def forget(self, name: str) -> None:
        """A file has fallen out of use."""
        self._deleted.pop(name, None)
        self._seals.pop(name, None)

    def events(self, files: Iterable[DataFile]) -> History:
        """What is left in some files."""
        return concat_histories(self._read_undeleted(file.name) for file in files)

    def write(self, events: History, kind: str) -> DataFile:
        """Write a data file."""
        name = f"{kind}-{uuid4().hex}.parquet"
        rows = history_rows(events, self._schema, max(1, len(events)))
        seal = self._seals[name] = write_parquet(self._folder / name, rows, self._schema)
        half = np.partition(events.ve, len(events) // 2)[len(events) // 2]
        return DataFile(name, len(events), int(half), int(events.ve.max()), seal=seal)

    def delete(self, rows: Mapping[str, Index]) -> DeletionFile:
        """Write a deletion file."""
        for name, places in rows.items():
            self._deleted.setdefault(name, []).append(places)
        files = np.repeat(np.arange(len(rows)), [len(places) for places in rows.values()])
        table = pa.table(
            [pa.array(list(rows)).take(pa.array(files)), np.concatenate([*rows.values()])], DELETIONS
        )
        return self._write_deletions(table)

    def merge_deletions(self, files: Iterable[DeletionFile], of: set[str]) -> DeletionFile:
        """One deletion file for several, without what concerns data files that are gone."""
        table = pa.concat_tables(read_deletions(self._folder, file) for file in files)
        table = table.filter(pc.is_in(table[FILE], value_set=pa.array(sorted(of), pa.string())))
        return self._write_deletions(table.sort_by([(FILE, "ascending"), (ROW, "ascending")]))

    def _write_deletions(self, table: pa.Table) -> DeletionFile:
        name = f"deleted-{uuid4().hex}.parquet"
        seal = write_parquet(self._folder / name, table.to_batches(), DELETIONS)
        return DeletionFile(name, table.num_rows, seal)

    def _read(self, name: str) -> History:
        file = self._folder / name
        require_seal(file, self._seals.get(name, ""))
        with format_errors(str(file)):
            return History.from_arrow(pq.read_table(file, schema=self._schema, partitioning=None))

    def _read_undeleted(self, name: str) -> History:
        events, deleted = self._read(name), self.rows_deleted(name)
        if not len(deleted):
            return events
        keep = np.ones(len(events), np.bool_)
        keep[deleted] = False
        return events.filter(keep)


def stored_schema(folder: Path, manifest: Manifest, given: pa.Schema) -> pa.Schema:
    """The columns of a table, which it keeps; refuse others."""
    file = folder / manifest.schema
    require_seal(file, manifest.schema_seal)
    with format_errors(str(file)):
        stored: pa.Schema = pq.read_schema(file)
    require_same_columns(stored, given)
    return stored


@dataclass(frozen=True, slots=True)
class _FileIndex:
    """The rows of a file by identity, ascending."""

    keys: Hashes
    row: np.ndarray[tuple[int], np.dtype[np.int32]]
    alive: Mask

    def spans(self, keys: Hashes) -> tuple[Index, Index]:
        """For each undeleted row that has one of the (distinct) keys: which key, and its place in ``row``."""
        low = np.searchsorted(self.keys, keys)
        size = np.searchsorted(self.keys, keys, "right") - low
        key = np.repeat(np.arange(len(keys)), size)
        place = np.arange(len(key)) + np.repeat(low - np.cumsum(size) + size, size)
        alive = self.alive[place]
        return key[alive], place[alive]


def _index_file(keys: Hashes, deleted: Index) -> _FileIndex:
    order = np.argsort(keys).astype(np.int32)
    alive = np.ones(len(keys), np.bool_)
    alive[deleted] = False
    return _FileIndex(keys[order], order, alive[order])


class RowIndex:
    """From an event's identity to file and row. A file is read when the first question comes."""

    def __init__(self, read: Callable[[str], History], deleted: Callable[[str], Index]) -> None:
        self._read, self._deleted = read, deleted
        self._indexes: dict[str, _FileIndex | None] = {}

    def add(self, name: str, events: History | None = None) -> None:
        """Take in a file; ``events`` are its events if they are in memory."""
        self._indexes[name] = None
        if events is not None and any(index is not None for index in self._indexes.values()):
            self._indexes[name] = _index_file(events.identity(), self._deleted(name))

    def keep(self, names: Iterable[str]) -> None:
        """Forget all files but these."""
        wanted = set(names)
        self._indexes = {name: index for name, index in self._indexes.items() if name in wanted}

    def count(self, keys: Hashes) -> Index:
        """How often each of the (distinct) events is there."""
        order = np.argsort(keys)
        total = np.zeros(len(keys), np.int64)
        for index in self._load_all().values():
            key, _ = index.spans(keys[order])
            total[order] += np.bincount(key, minlength=len(keys))
        return total

    def take(self, keys: Hashes, times: Index) -> dict[str, Index]:
        """Remove each (distinct, ascending) event so many times: the rows to delete, by file."""
        left, found = times.copy(), {}
        for name, index in self._load_all().items():
            key, place = index.spans(keys)
            first = np.searchsorted(key, key)
            chosen = np.arange(len(key)) - first < left[key]
            left -= np.bincount(key[chosen], minlength=len(keys))
            index.alive[place[chosen]] = False
            if bool(chosen.any()):
                found[name] = np.sort(index.row[place[chosen]].astype(np.int64))
        if bool(left.any()):
            raise RecensionError("an event that was there a moment ago cannot be found; this is a defect")
        return found

    def _load_all(self) -> dict[str, _FileIndex]:
        loaded = {
            name: _index_file(self._read(name).identity(), self._deleted(name)) if index is None else index
            for name, index in self._indexes.items()
        }
        self._indexes = {**loaded}
        return loaded
