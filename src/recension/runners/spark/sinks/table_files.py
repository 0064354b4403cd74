"""The files of a history table as a writer sees them, and where the events are that may still be retracted.

Assumes     files never change, and no two have one name; a row is deleted at most once.
Guarantees  `RowIndex.count` and `RowIndex.take` answer for all rows of the writer's buckets that are not
            deleted and that may be asked for.
State       of files that were looked at, 12 bytes a row, up to `KEPT` rows in a process. It only saves
            reading: whoever has not seen a file reads it.
Cost        O(k log n) a file for k questions; files that by their times cannot hold what is asked for are not
            looked at.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recension.core.batch import RETRACT, EventBatch, Index, Mask
from recension.core.errors import RecensionError
from recension.core.formats.encode import history_rows
from recension.core.formats.files import format_errors, require_seal
from recension.core.formats.manifest import (
    ANY_BUCKET,
    DELETIONS,
    FILE,
    ROW,
    DataFile,
    DeletionFile,
    Manifest,
    read_deletions,
    require_deleted,
    split_deletions,
)
from recension.core.history import History, concat_histories
from recension.core.rowhash import Hashes
from recension.runners.spark.sinks.files import SealedName, write_named
from recension.runners.spark.sinks.micro_batch import require_same_columns

# Rows of files whose indexes a process keeps, and rows that deletion files name.
KEPT: Final = 1 << 24

_NONE: Index = np.zeros(0, np.int64)
T = TypeVar("T")


class _Kept(Generic[T]):
    """What was last read of files, up to so many rows in all."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[Path, str], tuple[int, T]] = OrderedDict()
        self._rows = 0

    def get(self, path: Path, seal: str, rows: int, read: Callable[[], T]) -> T:
        """What ``read`` gives of a file with so many rows, now or when it was called last."""
        if (key := (path, seal)) not in self._found:
            self._found[key] = rows, read()
            self._rows += rows
        self._found.move_to_end(key)
        while self._rows > KEPT and len(self._found) > 1:
            self._rows -= self._found.popitem(last=False)[1][0]
        return self._found[key][1]


@dataclass(frozen=True, slots=True)
class _FileIndex:
    """The rows of a file by identity, ascending."""

    keys: Hashes
    row: np.ndarray[tuple[int], np.dtype[np.int32]]

    def spans(self, keys: Hashes) -> tuple[Index, Index]:
        """For each row that has one of the (distinct) keys: which key, and the row."""
        low = np.searchsorted(self.keys, keys)
        size = np.searchsorted(self.keys, keys, "right") - low
        key = np.repeat(np.arange(len(keys)), size)
        place = np.arange(len(key)) + np.repeat(low - np.cumsum(size) + size, size)
        return key, self.row[place].astype(np.int64)


_indexes: _Kept[_FileIndex] = _Kept()
_deletions: _Kept[dict[str, Index]] = _Kept()
_schemas: _Kept[pa.Schema] = _Kept()


class TableFiles:
    """Reads and writes files of one folder, for one bucket or for all, and knows which rows are deleted.

    What it writes is named by ``number``, that of the micro-batch, by bucket, by how many files this writer
    has written before, and by content: the same in every attempt, and never that of another file.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, schema: pa.Schema, number: int, bucket: int = ANY_BUCKET
    ) -> None:
        self._folder, self._bucket, self._is_asked = folder, bucket, False
        self._number, self._written = number, 0
        self._schema = _schemas.get(
            folder / manifest.schema, manifest.schema_seal, 1, lambda: read_schema(folder, manifest)
        )
        require_same_columns(self._schema, schema)
        self.files = [file for file in manifest.files if self.concerns(file)]
        self.deletions = [file for file in manifest.deletions if self.concerns(file)]
        self._deleted: dict[str, list[Index]] = {}
        for file in self.deletions:
            read = partial(self._split, file)
            self._note_deleted(_deletions.get(folder / file.name, file.seal, file.rows, read))
        for data in self.files:
            if self.owns(data):
                require_deleted(folder / data.name, data, self._deleted.get(data.name, []))

    def concerns(self, file: DataFile | DeletionFile) -> bool:
        """May it have rows of this bucket?"""
        return self._bucket == ANY_BUCKET or file.bucket in (ANY_BUCKET, self._bucket)

    def owns(self, file: DataFile | DeletionFile) -> bool:
        """Has it only rows of this bucket, so that nobody else rewrites it?"""
        return self._bucket in (ANY_BUCKET, file.bucket)

    def index(self, events: EventBatch, cti: int) -> RowIndex:
        """Where the events are that some elements may retract."""
        retractions = events.kind == RETRACT
        starts, ends = events.vs[retractions], events.ve[retractions]
        if not len(starts):
            return RowIndex({}, self.is_deleted)
        self._is_asked = True
        named = [
            file
            for file in self.files
            if not file.is_final(cti)
            and file.first_start <= starts.max()
            and file.last_start >= starts.min()
            and file.last_end >= ends.min()
        ]
        return RowIndex({file.name: self._index_of(file) for file in named}, self.is_deleted)

    def is_deleted(self, name: str, rows: Index) -> Mask:
        """Which of these rows of a file are deleted?"""
        found = np.zeros(len(rows), np.bool_)
        for deleted in self._deleted.get(name, []):
            at = np.minimum(np.searchsorted(deleted, rows), len(deleted) - 1)
            found |= deleted[at] == rows
        return found

    def has_deletions(self, names: Iterable[str]) -> bool:
        """Is a row of any of these files deleted?"""
        return any(name in self._deleted for name in names)

    def events(self, files: Iterable[DataFile]) -> History:
        """What is left in some files."""
        return concat_histories(self._read_undeleted(file) for file in files)

    def write(self, events: History, kind: str, bucket: int) -> DataFile:
        """Write a data file."""
        rows = history_rows(events, self._schema, max(1, len(events)))
        name, seal = self._put(kind, rows, self._schema)
        half = np.partition(events.ve, len(events) // 2)[len(events) // 2]
        starts = int(events.vs.min()), int(events.vs.max())
        return DataFile(name, len(events), int(half), int(events.ve.max()), 0, seal, bucket, *starts)

    def remember(self, file: DataFile, events: History) -> None:
        """Spare the next micro-batch reading a file, if this one has asked where events are."""
        if self._is_asked:
            _indexes.get(self._folder / file.name, file.seal, file.rows, lambda: _sort(events))

    def delete(self, rows: Mapping[str, Index]) -> DeletionFile:
        """Write a deletion file; the rows of each file ascend."""
        self._note_deleted(rows)
        files = np.repeat(np.arange(len(rows)), [len(places) for places in rows.values()])
        table = pa.table(
            [pa.array(list(rows)).take(pa.array(files)), np.concatenate([*rows.values()])], DELETIONS
        )
        written = self._write_deletions(table)
        _deletions.get(self._folder / written.name, written.seal, written.rows, lambda: dict(rows))
        return written

    def merge_deletions(self, files: Iterable[DeletionFile], of: set[str]) -> DeletionFile:
        """One deletion file for several, without what concerns data files that are gone."""
        table = pa.concat_tables(read_deletions(self._folder, file) for file in files)
        table = table.filter(pc.is_in(table[FILE], value_set=pa.array(sorted(of), pa.string())))
        return self._write_deletions(table.sort_by([(FILE, "ascending"), (ROW, "ascending")]))

    def _write_deletions(self, table: pa.Table) -> DeletionFile:
        name, seal = self._put("deleted", table.combine_chunks().to_batches(), DELETIONS)
        return DeletionFile(name, table.num_rows, seal, self._bucket)

    def _put(self, kind: str, rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> SealedName:
        bucket = "all" if self._bucket == ANY_BUCKET else f"{self._bucket:04}"
        self._written += 1
        prefix = f"{kind}-{self._number:012}-{bucket}-{self._written}"
        return write_named(self._folder, prefix, rows, schema)

    def _note_deleted(self, rows: Mapping[str, Index]) -> None:
        for name, places in rows.items():
            self._deleted.setdefault(name, []).append(places)

    def _split(self, file: DeletionFile) -> dict[str, Index]:
        return split_deletions(read_deletions(self._folder, file))

    def _index_of(self, file: DataFile) -> _FileIndex:
        return _indexes.get(self._folder / file.name, file.seal, file.rows, lambda: _sort(self._read(file)))

    def _read(self, data: DataFile) -> History:
        file = self._folder / data.name
        require_seal(file, data.seal)
        with format_errors(str(file)):
            return History.from_arrow(pq.read_table(file, schema=self._schema, partitioning=None))

    def _read_undeleted(self, file: DataFile) -> History:
        events = self._read(file)
        deleted = np.concatenate([_NONE, *self._deleted.get(file.name, [])])
        if not len(deleted):
            return events
        keep = np.ones(len(events), np.bool_)
        keep[deleted] = False
        return events.filter(keep)


def _sort(events: History) -> _FileIndex:
    keys = events.identity()
    order = np.argsort(keys).astype(np.int32)
    return _FileIndex(keys[order], order)


def read_schema(folder: Path, manifest: Manifest) -> pa.Schema:
    """The columns of a table, which it keeps."""
    file = folder / manifest.schema
    require_seal(file, manifest.schema_seal)
    with format_errors(str(file)):
        return pq.read_schema(file)


class RowIndex:
    """From an event's identity to file and row."""

    def __init__(self, files: Mapping[str, _FileIndex], is_deleted: Callable[[str, Index], Mask]) -> None:
        self._files, self._is_deleted = files, is_deleted

    def count(self, keys: Hashes) -> Index:
        """How often each of the (distinct) events is there."""
        order = np.argsort(keys)
        total = np.zeros(len(keys), np.int64)
        for name in self._files:
            key, _ = self._find(name, keys[order])
            total[order] += np.bincount(key, minlength=len(keys))
        return total

    def take(self, keys: Hashes, times: Index) -> dict[str, Index]:
        """The rows to delete, by file, for each (distinct, ascending) event that goes so many times."""
        left, found = times.copy(), {}
        for name in self._files:
            key, row = self._find(name, keys)
            first = np.searchsorted(key, key)
            chosen = np.arange(len(key)) - first < left[key]
            left -= np.bincount(key[chosen], minlength=len(keys))
            if bool(chosen.any()):
                found[name] = np.sort(row[chosen])
        if bool(left.any()):
            raise RecensionError("an event that was there a moment ago cannot be found; this is a defect")
        return found

    def _find(self, name: str, keys: Hashes) -> tuple[Index, Index]:
        """The undeleted rows of a file that have one of the (distinct, ascending) keys: which, and where."""
        key, row = self._files[name].spans(keys)
        there = ~self._is_deleted(name, row)
        return key[there], row[there]
