"""The files of a history table as its writer sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recension.core.batch import Index
from recension.core.errors import SchemaError
from recension.core.formats.columns import plain_type
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
from recension.runners.spark.sinks.durable import write_parquet
from recension.runners.spark.sinks.live import LiveEvents

_NONE: Index = np.zeros(0, np.int64)


class StoredEvents:
    """Reads and writes files of one folder, and knows which of their rows are deleted."""

    def __init__(self, folder: Path, manifest: Manifest, schema: pa.Schema) -> None:
        self._folder = folder
        self._schema = stored_schema(folder, manifest, schema)
        self._seals = {file.name: file.seal for file in manifest.files}
        self._deleted = {n: [rows] for n, rows in deleted_rows(folder.parent, manifest).items()}
        self.live = LiveEvents(self._read, self.deleted)
        for file in manifest.files:
            if not file.is_final(manifest.cti):
                self.live.add(file.name)

    def deleted(self, name: str) -> Index:
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
        return concat_histories(self._left(file.name) for file in files)

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

    def _left(self, name: str) -> History:
        events, deleted = self._read(name), self.deleted(name)
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


def require_same_columns(stored: pa.Schema, given: pa.Schema) -> None:
    """A table keeps its columns."""
    for old, new in zip(stored, given, strict=False):
        if old.name != new.name or not _is_same(old.type, new.type):
            raise SchemaError(
                f"the table has a column {old.name} {old.type} where now {new.name} {new.type} comes"
            )
    if len(stored) != len(given):
        raise SchemaError(
            f"the table has the columns {', '.join(stored.names)}, not {', '.join(given.names)}"
        )


def _is_same(old: pa.DataType, new: pa.DataType) -> bool:
    """Equal but for the time zone in which instants are shown, which follows the session."""
    if pa.types.is_timestamp(old) and pa.types.is_timestamp(new):
        return bool(old.unit == new.unit and (old.tz is None) == (new.tz is None))
    return bool(plain_type(old) == plain_type(new))
