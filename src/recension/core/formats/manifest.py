"""The manifest of a history table: which rows of which files are the history now.

A table is a directory with a folder ``_history`` of Parquet files and numbered manifests; the greatest number
counts. Data files hold events (``_vs``, ``_ve``, payload) and are never changed; deletion files name rows of
data files, counted from 0, that are no longer part of the history. A manifest is replaced as a whole, so that
a reader sees the table between two commits and never within one (docs/design/006-history-table.md).

A table may be written by several tasks at once. Its events are spread over a fixed number of buckets by start
and payload, so that an event stays in its bucket when its end moves. A file holds the events of one bucket,
or of any (`ANY_BUCKET`) if one writer has written for all.

A manifest carries its own digest and the seals of the files it names. The one before it stays as well: but
for the first, there are always two. Older ones stay as long as the files that they name: they are the
versions that can still be read (`find_manifest`). A mark beside them has the number of the newest, written
after it, so that a table without its newest manifest is noticed. Older tables get one with the next commit.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from os.path import lexists
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recension.core.batch import Index
from recension.core.errors import FormatError
from recension.core.formats.files import (
    format_errors,
    from_sealed_json,
    is_plain_name,
    is_seal,
    require_regular,
    require_seal,
    to_sealed_json,
)
from recension.core.formats.versions import Version, describe_clock
from recension.core.ticks import BEGINNING, FOREVER

FOLDER: Final = "_history"
LAST: Final = "last"
FORMAT: Final = "recension history 3"
# Without buckets: the next commit goes on with it, as a table of which every file is for any bucket.
_UNDIVIDED: Final = "recension history 2"
# Without seals, and without what its micro-batches were made of: read, but no longer written.
OLD_FORMAT: Final = "recension history 1"
ANY_BUCKET: Final = -1
FILE: Final = "file"
ROW: Final = "row"
# How often the listing is repeated while commits replace manifests; each stays for two more commits.
_PATIENCE: Final = 20
_TIMES: Final = ("half_end", "last_end", "first_start", "last_start")
_NUMBER: Final = re.compile("[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class DataFile:
    """Events of a bucket; half of them end at or before ``half_end``, all at or before ``last_end``."""

    name: str
    rows: int
    half_end: int
    last_end: int
    deleted: int = 0
    seal: str = ""
    bucket: int = ANY_BUCKET
    first_start: int = BEGINNING
    last_start: int = FOREVER

    def is_final(self, cti: int) -> bool:
        """Can no retraction name any of its events any more?"""
        return self.last_end < cti

    def with_deleted(self, rows: int) -> DataFile:
        """The same file with so many more rows deleted."""
        return replace(self, deleted=self.deleted + rows)


@dataclass(frozen=True, slots=True)
class DeletionFile:
    """Rows that are no longer part of the history: of data files of the same bucket, or of any."""

    name: str
    rows: int
    seal: str = ""
    bucket: int = ANY_BUCKET


@dataclass(frozen=True, slots=True)
class UnusedFile:
    """A file that earlier manifests list, and when (in seconds of the epoch) it fell out of use."""

    name: str
    at: float


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of a table: the history after micro-batch ``batch`` of the query ``query``.

    ``recent`` holds, for the last micro-batches, what they were made of. The number of ``buckets`` never
    changes. ``at`` is when its micro-batch was planned, in microseconds since 1970 and never before the one
    before it; 0 if the version that wrote it kept no times.
    """

    number: int
    query: str
    schema: str
    batch: int = -1
    cti: int = BEGINNING
    files: tuple[DataFile, ...] = ()
    deletions: tuple[DeletionFile, ...] = ()
    dropped: tuple[UnusedFile, ...] = ()
    schema_seal: str = ""
    recent: tuple[tuple[int, str], ...] = ()
    buckets: int = 0
    at: int = 0
    format: str = FORMAT

    @property
    def previous(self) -> int | None:
        """The manifest this one takes over from."""
        return self.number - 1 if self.number else None

    def used_files(self) -> set[str]:
        """The data and deletion files of this version."""
        return {file.name for file in self.files} | {file.name for file in self.deletions}

    def seals(self) -> dict[str, str]:
        """The seals of all files of this version; the file with the columns comes first."""
        return {self.schema: self.schema_seal} | {f.name: f.seal for f in self.files + self.deletions}

    def all_files(self) -> set[str]:
        """Every file that a reader of this version or an earlier one may need."""
        return {self.schema, *self.used_files(), *(file.name for file in self.dropped)}

    def to_json(self) -> str:
        """The manifest as it is stored."""
        return to_sealed_json({"format": self.format, "previous": self.previous, **asdict(self)})

    @staticmethod
    def from_json(text: str, file: str) -> Manifest:
        """The manifest in a file; one with a wrong value is refused."""
        try:
            stored: dict[str, Any] = from_sealed_json(text, FORMAT, _UNDIVIDED)
            if stored["format"] not in (FORMAT, _UNDIVIDED, OLD_FORMAT):
                raise FormatError(f"not a manifest of the format {FORMAT!r}", file=file)
            stored.pop("previous")
            lists = {"files": DataFile, "deletions": DeletionFile, "dropped": UnusedFile}
            made = {name: tuple(kind(**entry) for entry in stored[name]) for name, kind in lists.items()}
            recent = tuple((int(number), str(content)) for number, content in stored.get("recent", ()))
            manifest = Manifest(**{**stored, **made, "recent": recent})
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as why:
            if isinstance(why, FormatError):
                raise
            raise FormatError("a damaged manifest", file=file) from None
        if fault := next(_find_faults(manifest), None):
            raise FormatError(f"a damaged manifest: {fault}", file=file)
        return manifest


def _find_faults(manifest: Manifest) -> Iterator[str]:
    """What is wrong in a manifest: files of other folders, and values that are no numbers or too small."""
    used = [*(file.name for file in manifest.files), *(file.name for file in manifest.deletions)]
    for name in (manifest.schema, *used, *(file.name for file in manifest.dropped)):
        if not is_plain_name(name):
            yield f"{name!r} is not the name of a file in its folder"
            return
    if len(set(used)) < len(used):
        yield "it names a file twice"
    for name, seal in manifest.seals().items():
        if not is_seal(seal) and (seal != "" or manifest.format != OLD_FORMAT):
            yield f"the seal of {name} is {seal!r}"
    if not isinstance(manifest.query, str):
        yield f"query is {manifest.query!r}"
    whole = [("number", manifest.number, 0), ("batch", manifest.batch, -1), ("cti", manifest.cti, BEGINNING)]
    whole += [("buckets", manifest.buckets, 0), ("at", manifest.at, 0)]
    for file in manifest.files:
        whole += [("rows", file.rows, 0), ("deleted", file.deleted, 0)]
        whole += [(name, getattr(file, name), BEGINNING) for name in _TIMES]
    whole += [("rows", file.rows, 0) for file in manifest.deletions]
    whole += [("bucket", file.bucket, ANY_BUCKET) for file in manifest.files + manifest.deletions]
    for what, number, least in whole:
        # Python's True is a number, JSON's is not.
        if type(number) is not int or not least <= number <= FOREVER:
            yield f"{what} is {number!r}"
    for gone in manifest.dropped:
        if type(gone.at) not in (int, float) or not math.isfinite(gone.at):
            yield f"at is {gone.at!r}"


def is_table(path: Path) -> bool:
    """Is the directory a history table?"""
    return (path / FOLDER).is_dir()


def manifest_path(path: Path, number: int) -> Path:
    """Where a table keeps the manifest of that number."""
    return path / FOLDER / f"{number:012}.json"


def read_manifest(file: Path) -> Manifest:
    """The manifest in a file."""
    require_regular(file)
    with format_errors(str(file)):
        return Manifest.from_json(file.read_text(encoding="utf-8"), str(file))


def manifest_numbers(path: Path) -> set[int]:
    """The numbers of the manifests that are there."""
    return {int(f.stem) for f in (path / FOLDER).glob("*.json") if _NUMBER.fullmatch(f.stem)}


def least_number(path: Path) -> int:
    """The newest manifest has at least this number."""
    file = path / FOLDER / LAST
    if not lexists(file):
        return 0
    require_regular(file)
    with format_errors(str(file)):
        text = file.read_text(encoding="utf-8").strip()
    if not _NUMBER.fullmatch(text):
        raise FormatError("damaged: it is not the number of a manifest", file=str(file))
    return int(text)


def current_manifest(path: Path) -> Manifest | None:
    """The manifest that counts now, if the table has one."""
    least = least_number(path)  # before the listing, which then has it
    seen: set[int] = set()
    for _ in range(_PATIENCE):
        before, seen = seen, manifest_numbers(path)
        if max(seen, default=0) < least:
            reason = "the newest manifest is missing; restore the table from a backup"
            raise FormatError(reason, file=str(manifest_path(path, least)))
        if not seen:
            return None
        file = manifest_path(path, max(seen))
        try:
            manifest = read_manifest(file)
        except FormatError:
            if lexists(file):
                raise
            continue
        if manifest.number != max(seen):
            raise FormatError(f"the manifest of another commit, number {manifest.number}", file=str(file))
        if manifest.previous is None or manifest.previous in seen:
            return manifest
        # Perhaps a commit has replaced one meanwhile: it is missing only if two listings in a row agree.
        if seen == before:
            raise FormatError(
                "the manifest before or after this one is missing; restore the table from a backup",
                file=str(file),
            )
    raise FormatError("the manifest is replaced faster than it can be read", file=str(path))


def find_manifest(path: Path, version: Version) -> Manifest | None:
    """The manifest of a version; none if the table has none at all. One that is gone is refused."""
    current = current_manifest(path)
    if current is None or version.is_newest:
        return current
    found = current
    if version.number is not None and version.number != current.number:
        if version.number > current.number:
            reason = f"there is no version {version.number} yet: the last is {current.number}"
            raise FormatError(reason, file=str(path))
        found = _read_kept(path, version.number)
    elif version.as_of is not None:
        found = _manifest_as_of(path, current, version.as_of)
    if found.batch < 0:
        raise FormatError("nothing was committed to that version: the first is 1", file=str(path))
    if not all(lexists(path / FOLDER / name) for name in found.seals()):
        raise _gone_error(path, f"version {found.number}")
    return found


def _manifest_as_of(path: Path, current: Manifest, as_of: int) -> Manifest:
    """The last manifest that was there at a time."""
    numbers = sorted(manifest_numbers(path) | {current.number})

    def read(number: int) -> Manifest:
        found = current if number == current.number else _read_kept(path, number)
        if not found.at:
            reason = (
                f"version {number} was written by an earlier release, which kept no times: name a version"
            )
            raise FormatError(reason, file=str(path))
        return found

    after = bisect_right(numbers, as_of, key=lambda number: read(number).at)
    if after:
        return read(numbers[after - 1])
    if numbers[0]:
        raise _gone_error(path, f"what was there at {describe_clock(as_of)}")
    raise FormatError(f"at {describe_clock(as_of)} there was no such table yet", file=str(path))


def _read_kept(path: Path, number: int) -> Manifest:
    file = manifest_path(path, number)
    try:
        return read_manifest(file)
    except FormatError:
        if lexists(file):
            raise
        raise _gone_error(path, f"version {number}") from None


def _gone_error(path: Path, what: str) -> FormatError:
    oldest = min(number for number in manifest_numbers(path) if number)
    since = read_manifest(manifest_path(path, oldest)).at
    when = f", of {describe_clock(since)}" if since else ""
    return FormatError(
        f"{what} is gone: the oldest version that is left is {oldest}{when}; the writer's keep= says for how "
        "long they stay",
        file=str(path),
    )


def deleted_rows(path: Path, manifest: Manifest) -> dict[str, Index]:
    """The rows of each data file that are no longer part of the history, in ascending order."""
    parts = [split_deletions(read_deletions(path / FOLDER, file)) for file in manifest.deletions]
    names = {name for part in parts for name in part}
    rows = {name: np.sort(np.concatenate([p[name] for p in parts if name in p])) for name in names}
    for file in manifest.files:
        require_deleted(path / FOLDER / file.name, file, [rows[file.name]] if file.name in rows else [])
    return {file.name: rows[file.name] for file in manifest.files if file.name in rows}


def require_deleted(path: Path, file: DataFile, deleted: Sequence[Index]) -> None:
    """Refuse a data file of which other rows are deleted than the manifest says."""
    if any(not 0 <= rows[0] <= rows[-1] < file.rows for rows in deleted):
        raise FormatError("rows are deleted that it does not have", file=str(path))
    if file.deleted != (there := sum(map(len, deleted))):
        reason = f"{there:,} rows of it are deleted, where the manifest says {file.deleted:,}"
        raise FormatError(reason, file=str(path))


def split_deletions(table: pa.Table) -> dict[str, Index]:
    """The rows that a table of deletions names, in ascending order, by data file."""
    files = table[FILE].combine_chunks().dictionary_encode()
    code, row = files.indices.to_numpy(), table[ROW].to_numpy()
    order = np.lexsort((row, code))
    cuts = np.searchsorted(code[order], np.arange(len(files.dictionary) + 1))
    return {
        name: row[order[a:b]]
        for name, a, b in zip(files.dictionary.to_pylist(), cuts, cuts[1:], strict=False)
    }


def read_deletions(folder: Path, file: DeletionFile) -> pa.Table:
    """The rows that a deletion file names."""
    path = folder / file.name
    require_regular(path)
    require_seal(path, file.seal)
    with format_errors(str(path)):
        table = pq.read_table(path, schema=DELETIONS, partitioning=None)
        table.validate(full=True)
        if len(table) != file.rows:
            raise FormatError(f"{len(table):,} rows, where the manifest says {file.rows:,}", file=str(path))
        if any(column.null_count for column in table.columns):
            raise FormatError("a deletion without file or row", file=str(path))
        return table


DELETIONS: Final = pa.schema([(FILE, pa.string()), (ROW, pa.int64())])
