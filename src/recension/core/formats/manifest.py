"""The manifest of a history table: which rows of which files are the history now.

A table is a directory with a folder ``_history`` of Parquet files and numbered manifests; the greatest number
counts. Data files hold events (``_vs``, ``_ve``, payload) and are never changed; deletion files name rows of
data files, counted from 0, that are no longer part of the history. A manifest is replaced as a whole, so that
a reader sees the table between two commits and never within one (docs/design/006-history-table.md).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recension.core.batch import Index
from recension.core.errors import FormatError
from recension.core.formats.place import reading
from recension.core.ticks import BEGINNING

FOLDER: Final = "_history"
FORMAT: Final = "recension history 1"
FILE: Final = "file"
ROW: Final = "row"
# A manifest is there for at least two commits after it was listed.
_PATIENCE: Final = 20


@dataclass(frozen=True, slots=True)
class DataFile:
    """Events; half of them end at or before ``half_end``, all at or before ``last_end``."""

    name: str
    rows: int
    half_end: int
    last_end: int
    deleted: int = 0

    def is_final(self, cti: int) -> bool:
        """May no retraction name any of its events any more?"""
        return self.last_end < cti

    def without(self, rows: int) -> DataFile:
        """The same file with so many rows more deleted."""
        return replace(self, deleted=self.deleted + rows)


@dataclass(frozen=True, slots=True)
class DeletionFile:
    """Rows that are no longer part of the history."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """A file that earlier manifests list, and when (in seconds of the epoch) it fell out of use."""

    name: str
    at: float


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of a table: the history after micro-batch ``batch`` of the query ``query``."""

    number: int
    query: str
    schema: str
    batch: int = -1
    cti: int = BEGINNING
    files: tuple[DataFile, ...] = ()
    deletions: tuple[DeletionFile, ...] = ()
    dropped: tuple[Dropped, ...] = ()

    @property
    def previous(self) -> int | None:
        """The manifest this one takes over from."""
        return self.number - 1 if self.number else None

    def used(self) -> set[str]:
        """The data and deletion files of this version."""
        return {file.name for file in self.files} | {file.name for file in self.deletions}

    def names(self) -> set[str]:
        """Every file that a reader of this version or an earlier one may need."""
        return {self.schema, *self.used(), *(file.name for file in self.dropped)}

    def to_json(self) -> str:
        """The manifest as it is stored."""
        return json.dumps({"format": FORMAT, "previous": self.previous, **asdict(self)}, indent=1)

    @staticmethod
    def from_json(text: str, file: str) -> Manifest:
        """The manifest in a file."""
        try:
            stored: dict[str, Any] = json.loads(text)
            if stored.pop("format") != FORMAT:
                raise FormatError(f"not a manifest of the format {FORMAT!r}", file=file)
            stored.pop("previous")
            lists = {"files": DataFile, "deletions": DeletionFile, "dropped": Dropped}
            made = {name: tuple(kind(**entry) for entry in stored[name]) for name, kind in lists.items()}
            return Manifest(**{**stored, **made})
        except (ValueError, KeyError, TypeError, AttributeError) as why:
            if isinstance(why, FormatError):
                raise
            raise FormatError("a damaged manifest", file=file) from None


def is_table(path: Path) -> bool:
    """Is the directory a history table?"""
    return (path / FOLDER).is_dir()


def manifest_path(path: Path, number: int) -> Path:
    """Where a table keeps the manifest of that number."""
    return path / FOLDER / f"{number:012}.json"


def current_manifest(path: Path) -> Manifest | None:
    """The manifest that counts now, if the table has one."""
    for _ in range(_PATIENCE):
        numbers = [int(f.stem) for f in (path / FOLDER).glob("*.json") if f.stem.isdigit()]
        if not numbers:
            return None
        file = manifest_path(path, max(numbers))
        try:
            with reading(str(file)):
                return Manifest.from_json(file.read_text(encoding="utf-8"), str(file))
        except FormatError:
            if file.exists():
                raise
    raise FormatError("the manifest is replaced faster than it can be read", file=str(path))


def deleted_rows(path: Path, manifest: Manifest) -> dict[str, Index]:
    """The rows of each data file that are no longer part of the history, in ascending order."""
    parts = [_deletions(path / FOLDER / file.name) for file in manifest.deletions]
    if not parts:
        return {}
    table = pa.concat_tables(parts)
    files = table[FILE].combine_chunks().dictionary_encode()
    code, row = files.indices.to_numpy(), table[ROW].to_numpy()
    order = np.lexsort((row, code))
    cuts = np.searchsorted(code[order], np.arange(len(files.dictionary) + 1))
    rows = {
        name: row[order[a:b]]
        for name, a, b in zip(files.dictionary.to_pylist(), cuts, cuts[1:], strict=False)
    }
    return {file.name: rows[file.name] for file in manifest.files if file.name in rows}


def _deletions(file: Path) -> pa.Table:
    with reading(str(file)):
        return pq.read_table(file, schema=DELETIONS, partitioning=None)


DELETIONS: Final = pa.schema([(FILE, pa.string()), (ROW, pa.int64())])
