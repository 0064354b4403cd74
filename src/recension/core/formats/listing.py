"""Which files make up a stream, in which order, and in which format.

A directory is its data files in name order; names that start with ``_`` or ``.`` are not data. Where
Spark's file sink has left its log, the log decides: it knows which files belong to failed attempts, and
lists the others in the order in which they were committed. In a history table its manifest decides, down to
the rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from recension.core.batch import Index
from recension.core.errors import FormatError
from recension.core.formats.manifest import FOLDER, current_manifest, deleted_rows, is_table
from recension.core.formats.place import reading

FORMATS: Final = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
SPARK_LOG: Final = "_spark_metadata"
# Spark writes a part without rows as a file without bytes; Parquet and Arrow parts are never empty.
_MAY_BE_EMPTY: Final = ("json", "csv")


def format_of(path: Path) -> str:
    """The format that a file's name announces."""
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        known = ", ".join(FORMATS)
        raise FormatError(f"unknown format {path.suffix or path.name!r}; known are {known}", file=str(path))
    return found


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file, and the rows of it (from 0, ascending) that do not count."""

    path: Path
    without: Index | None = None


def stored_files(path: Path) -> list[StoredFile]:
    """What a stream or a history is made of."""
    with reading(str(path)):
        has_manifest = is_table(path)
    return _table_files(path) if has_manifest else [StoredFile(file) for file in _files_of(path)]


def _table_files(path: Path) -> list[StoredFile]:
    manifest = current_manifest(path)
    if manifest is None:
        raise FormatError("a history table to which nothing was committed yet", file=str(path))
    without = deleted_rows(path, manifest)
    names = [manifest.schema, *(file.name for file in manifest.files)]
    return [StoredFile(path / FOLDER / name, without.get(name)) for name in names]


def _files_of(path: Path) -> list[Path]:
    with reading(str(path)):
        size, is_directory = path.stat().st_size, path.is_dir()
    if not is_directory:
        if not path.is_file():
            raise FormatError("not a regular file", file=str(path))
        if not size:
            raise FormatError("the file is empty", file=str(path))
        return [path]
    with reading(str(path)):
        listed = _committed(path) if (path / SPARK_LOG).is_dir() else _data_files(path)
        files = [f for f in listed if f.stat().st_size or format_of(f) not in _MAY_BE_EMPTY]
    if not files:
        raise FormatError("a directory without data files", file=str(path))
    return files


def _data_files(path: Path) -> list[Path]:
    found = sorted((f for f in path.iterdir() if f.name[0] not in "_."), key=lambda f: f.name)
    for file in found:
        if file.is_dir():
            raise FormatError("a directory inside a stream's directory", file=str(file))
        format_of(file)
    return found


def _committed(path: Path) -> list[Path]:
    """What the log adds and never deletes: the last compacted log and those after it."""
    logs = {int(f.stem): f for f in (path / SPARK_LOG).iterdir() if f.stem.isdigit() and _is_log(f)}
    compacted = [n for n, f in logs.items() if f.suffix == ".compact"]
    added: dict[str, None] = {}
    for number in sorted(n for n in logs if n >= max(compacted, default=0)):
        for entry in _entries(logs[number]):
            # The directory may have been moved since: only the name counts.
            name = unquote(Path(urlparse(entry["path"]).path).name)
            if entry.get("action") == "delete":
                added.pop(name, None)
            else:
                added[name] = None
    return [path / name for name in added]


def _is_log(file: Path) -> bool:
    return file.suffix in ("", ".compact")


def _entries(log: Path) -> list[dict[str, str]]:
    version, *lines = log.read_text(encoding="utf-8").splitlines() or [""]
    if version != "v1":
        raise FormatError(f"version {version!r} of Spark's log is not known", file=str(log))
    try:
        entries = [json.loads(line) for line in lines if line.strip()]
        return [{"path": entry["path"], "action": entry.get("action", "add")} for entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FormatError("not a log of Spark's file sink", file=str(log)) from None
