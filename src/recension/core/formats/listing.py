"""Which files make up a stream, in which order, and in which format.

A directory is its data files in name order; names that start with ``_`` or ``.`` are not data. Where
Spark's file sink has left its log, the log decides: it knows which files belong to failed attempts, and
lists the others in the order in which they were committed. In a history table its manifest decides, down to
the rows; in a changelog its mark and the parts themselves tell whether one is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlparse

import pyarrow as pa

from recension.core.batch import Index
from recension.core.errors import FormatError
from recension.core.formats.arrow_ipc import ArrowRows, ArrowSink
from recension.core.formats.changelog import OLD_FORMAT, changelog_parts, parts_of_version, read_mark
from recension.core.formats.columns import TimeColumns
from recension.core.formats.csv_files import CsvRows, CsvSink
from recension.core.formats.files import format_errors, is_packed, is_plain_name, require_regular
from recension.core.formats.json_lines import JsonRows, JsonSink
from recension.core.formats.json_schema import has_json_form
from recension.core.formats.manifest import (
    FOLDER,
    deleted_rows,
    find_manifest,
    is_table,
)
from recension.core.formats.parquet import ParquetRows, ParquetSink
from recension.core.formats.stream_files import FileRows
from recension.core.formats.text import is_scalar
from recension.core.formats.versions import NEWEST, Version
from recension.core.placement import name_of

SPARK_LOG: Final = "_spark_metadata"
# What is wrong with an empty directory; a stream may go on with one, whose files were taken and archived.
NO_FILES: Final = "a directory without data files"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file, its deleted rows (from 0, ascending), and its seal and number of rows if known."""

    path: Path
    without: Index | None = None
    seal: str = ""
    rows: int | None = None


class FileSink(Protocol):
    """A file of any format being written."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""

    def close(self) -> None:
        """Finish the file."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format: the endings of its files' names, and how they are read and written.

    ``open_sink`` is given a path, the columns, an open file that goes by this path if there is one, and
    whether formulas are escaped. A text may be packed by gzip, and be a file without bytes: so Spark writes a
    part without rows. ``has_form`` says which types of columns can be written.
    """

    name: str
    endings: tuple[str, ...]
    open_rows: Callable[[StoredFile, TimeColumns, pa.Schema | None], FileRows]
    open_sink: Callable[[Path, pa.Schema, BufferedIOBase | None, bool], FileSink]
    is_text: bool = False
    has_form: Callable[[pa.DataType], bool] = lambda kind: True


FORMATS: Final = (
    FileFormat(
        "parquet",
        (".parquet", ".pq"),
        lambda file, times, declared: ParquetRows(file.path, file.without, file.seal, file.rows),
        lambda path, schema, file, escape: ParquetSink(path, schema),
    ),
    FileFormat(
        "json",
        (".jsonl", ".ndjson", ".json"),
        lambda file, times, declared: JsonRows(file.path, times, declared),
        lambda path, schema, file, escape: JsonSink(path, schema, file),
        is_text=True,
        has_form=has_json_form,
    ),
    FileFormat(
        "csv",
        (".csv",),
        lambda file, times, declared: CsvRows(file.path, times, declared),
        lambda path, schema, file, escape: CsvSink(path, schema, file, escape_formulas=escape),
        is_text=True,
        has_form=is_scalar,
    ),
    FileFormat(
        "arrow",
        (".arrow", ".arrows", ".ipc", ".feather"),
        lambda file, times, declared: ArrowRows(file.path),
        lambda path, schema, file, escape: ArrowSink(path, schema, file),
    ),
)
_BY_ENDING: Final = {ending: one for one in FORMATS for ending in one.endings}


def format_of(path: Path) -> FileFormat:
    """The format that a file's name announces."""
    inner = path.with_suffix("") if is_packed(path) else path
    found = _BY_ENDING.get(inner.suffix.lower())
    if found is None:
        packed = [f"{ending}.gz" for ending, one in _BY_ENDING.items() if one.is_text]
        known = ", ".join([*_BY_ENDING, *packed])
        raise FormatError(f"unknown format {inner.suffix or path.name!r}; known are {known}", file=str(path))
    if inner != path and not found.is_text:
        raise FormatError(
            f"{found.name} has its own compression and cannot be in gzip: decompress it", file=str(path)
        )
    return found


def is_data_file(file: Path) -> bool:
    """Is it a file of a stream, by its name?"""
    inner = file.stem if is_packed(file) else file.name
    return file.name[0] not in "_." and Path(inner).suffix.lower() in _BY_ENDING


def stored_files(path: Path, version: Version = NEWEST) -> list[StoredFile]:
    """What a stream or a history is made of; of a table, in some version."""
    with format_errors(str(path)):
        has_manifest = is_table(path)
        mark = read_mark(path) if path.is_dir() else None
    if has_manifest:
        return _table_files(path, version)
    if mark is not None and mark.format != OLD_FORMAT:
        # Pieces that are there before the mark counts any are no stream yet.
        if not (parts := changelog_parts(path, mark)):
            raise FormatError("a changelog to which nothing was written yet", file=str(path))
        chosen = parts_of_version(path, parts, mark, version)
        return [StoredFile(part.path, seal=part.seal) for part in chosen]
    if not version.is_newest:
        raise FormatError(
            "only history tables and changelogs, as rc.spark.write writes them, have versions", file=str(path)
        )
    return [StoredFile(file) for file in _files_of(path)]


def partition_folders(path: Path, columns: Sequence[str]) -> dict[Path, str]:
    """The directories in a directory that are partitions, a level for each column, and their names.

    A directory is called by the value of the column, or by both, as in ``region=eu``. There are none where
    the directory has no directories in it.
    """
    found: dict[Path, tuple[str, ...]] = {path: ()}
    with format_errors(str(path)):
        for column in columns:
            found = {
                folder: (*values, _value_in_name(folder.name, column))
                for parent, values in found.items()
                for folder in _folders_in(parent)
            }
    return {folder: name_of(values) for folder, values in found.items()} if columns else {}


def partition_of(file: Path, path: Path, columns: Sequence[str]) -> str | None:
    """The partition of a file under a directory, by the directories between; None if there are none."""
    between = file.relative_to(path).parts[:-1]
    if not between:
        return None
    if len(between) != len(columns):
        reason = f"partitions are distinguished by {', '.join(columns)}: a directory for each, or none at all"
        raise FormatError(reason, file=str(file))
    return name_of(tuple(map(_value_in_name, between, columns)))


def _folders_in(path: Path) -> list[Path]:
    return sorted(f for f in path.iterdir() if f.is_dir() and f.name[0] not in "_.") if path.is_dir() else []


def _value_in_name(name: str, column: str) -> str:
    return unquote(name.removeprefix(f"{column}="))


def _table_files(path: Path, version: Version) -> list[StoredFile]:
    manifest = find_manifest(path, version)
    if manifest is None or manifest.batch < 0:
        raise FormatError("a history table to which nothing was committed yet", file=str(path))
    without = deleted_rows(path, manifest)
    seals = manifest.seals()
    rows = {manifest.schema: None} | {file.name: file.rows for file in manifest.files}
    for name in rows:
        require_regular(path / FOLDER / name)
    return [StoredFile(path / FOLDER / name, without.get(name), seals[name], n) for name, n in rows.items()]


def _files_of(path: Path) -> list[Path]:
    with format_errors(str(path)):
        size, is_directory = path.stat().st_size, path.is_dir()
    if not is_directory:
        require_regular(path)
        if not size:
            raise FormatError("the file is empty", file=str(path))
        return [path]
    with format_errors(str(path)):
        listed = _committed_files(path) if (path / SPARK_LOG).is_dir() else _data_files(path)
    for file in listed:
        require_regular(file)
    if not listed:
        raise FormatError(NO_FILES, file=str(path))
    with format_errors(str(path)):
        return [f for f in listed if f.stat().st_size or not format_of(f).is_text]


def _data_files(path: Path) -> list[Path]:
    found = sorted((f for f in path.iterdir() if f.name[0] not in "_."), key=lambda f: f.name)
    for file in found:
        if file.is_dir():
            raise FormatError("a directory inside a stream's directory", file=str(file))
        format_of(file)
    return found


def _committed_files(path: Path) -> list[Path]:
    """What the log adds and never deletes: the last compacted log and those after it."""
    logs = {int(f.stem): f for f in (path / SPARK_LOG).iterdir() if _is_log(f)}
    compacted = [n for n, f in logs.items() if f.suffix == ".compact"]
    added: dict[str, None] = {}
    for number in sorted(n for n in logs if n >= max(compacted, default=0)):
        for name, is_deleted in _entries(logs[number]):
            if is_deleted:
                added.pop(name, None)
            else:
                added[name] = None
    return [path / name for name in added]


def _is_log(file: Path) -> bool:
    return file.stem.isascii() and file.stem.isdecimal() and file.suffix in ("", ".compact")


def _entries(log: Path) -> list[tuple[str, bool]]:
    """The files that a log names, and whether it takes them away."""
    require_regular(log)
    version, *lines = log.read_text(encoding="utf-8").splitlines() or [""]
    if version != "v1":
        raise FormatError(f"version {version!r} of Spark's log is not known", file=str(log))
    try:
        entries = [json.loads(line) for line in lines if line.strip()]
        return [(_entry_file(entry["path"]), entry.get("action", "add") == "delete") for entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FormatError("not a log of Spark's file sink", file=str(log)) from None


def _entry_file(address: str) -> str:
    """The file of a log's entry. The directory may have been moved since: only the name counts."""
    name = unquote(Path(urlparse(address).path).name)
    if not is_plain_name(name):
        raise ValueError(name)
    return name
