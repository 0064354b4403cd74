"""The directories of tables, and files in them that survive a kill (durable_files.py)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote, urlparse
from uuid import uuid4

import pyarrow as pa

from recension.core.errors import FormatError, RecensionError
from recension.core.formats.files import describe_file_error, format_errors, seal_of
from recension.core.formats.parquet import ParquetSink
from recension.runners.durable_files import hold_lock, sync_file
from recension.runners.durable_files import publish as publish
from recension.runners.durable_files import publish_text as publish_text
from recension.runners.durable_files import sync_folder as sync_folder
from recension.runners.spark.failures import is_full, no_space

AnyPath: TypeAlias = str | PathLike[str]
# Of a file's digest, in its name: no two files of a table agree in so many.
_DIGITS: Final = 20


class SealedName(NamedTuple):
    """A file as the one that lists it names it."""

    name: str
    seal: str


def local_path(path: AnyPath) -> Path:
    """The directory that a path or a ``file:`` address names."""
    text = fspath(path)
    named = urlparse(text)
    if not named.scheme:
        return Path(text).absolute()
    if named.scheme == "file" and named.netloc in ("", "localhost"):
        return Path(unquote(named.path))
    raise RecensionError(
        f"{text}: this is kept in a directory (a path or file:/...), since a commit is an atomic rename; see "
        f"the guide, object-stores.md, for what may be on {named.scheme}:"
    )


def is_local(path: AnyPath) -> bool:
    """Is it in a file system that Python sees as well?"""
    return urlparse(fspath(path)).scheme in ("", "file")


def spark_address(path: AnyPath) -> str:
    """The address by which Spark finds a path: it has another working directory, and decodes nothing."""
    return f"file:{local_path(path)}" if is_local(path) else fspath(path)


def spark_pattern(path: Path) -> str:
    """The same for calls where Spark expands wildcards: those in the path are escaped."""
    return "file:" + escape_wildcards(str(path))


def escape_wildcards(text: str) -> str:
    """A path or an address, or a part of one, that Spark takes for what it says."""
    return "".join(f"\\{letter}" if letter in "*?[]{}\\" else letter for letter in text)


def require_new_table(path: Path, noun: str, other: str, is_begun: bool, reason: str) -> None:
    """Refuse to begin a table in a directory with files in it, or when its query has already begun.

    ``other`` is the hidden name that a table of the other kind has in its directory.
    """
    with format_errors(str(path)):
        there = [file.name for file in path.iterdir()] if path.exists() else []
    if foreign := [name for name in there if name[0] not in "_." or name == other]:
        raise RecensionError(f"{path}: not a {noun}, but not empty either: it has {min(foreign)}")
    if is_begun:
        raise RecensionError(
            f"{path}: this checkpoint has already written micro-batches elsewhere; "
            f"{reason}: use a new checkpoint"
        )


def old_format_error(path: Path, noun: str, old: str, new: str) -> FormatError:
    """For a table of an older format, which can be read but not written to."""
    return FormatError(
        f"a {noun} of the format {old!r}, to which this version (format {new!r}) adds "
        "nothing; start with a new path and a new checkpoint",
        file=str(path),
    )


def write_parquet(path: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> str:
    """Write a file to the disk and give its seal; its name is safe after `sync_folder`."""
    sink = ParquetSink(path, schema)
    try:
        for batch in batches:
            sink.write(batch)
    finally:
        sink.close()
    sync_file(path)
    return seal_of(path)


def write_named(
    folder: Path, prefix: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> SealedName:
    """Write a file whose name follows from its bytes: ``PREFIX-DIGEST.parquet``; `sync_folder` keeps it.

    Another attempt at the same micro-batch, which may run at the same time, writes the same file under the
    same name, or another one under another name: it appears as a whole, and nobody writes into it.
    """
    partial = folder / f".{uuid4().hex}.parquet"
    seal = write_parquet(partial, batches, schema)
    name = f"{prefix}-{seal.rpartition(':')[2][:_DIGITS]}.parquet"
    os.replace(partial, folder / name)
    return SealedName(name, seal)


@contextmanager
def disk_errors(table: Path) -> Iterator[None]:
    """Errors of the disk become one line that names the table."""
    try:
        yield
    except OSError as why:
        raise RecensionError(
            no_space(str(table)) if is_full(str(why)) else f"{table}: {describe_file_error(why)}"
        ) from None


@contextmanager
def writer_lock(folder: Path, table: Path) -> Iterator[None]:
    """Keep a second writer out, in this process or another; a killed one leaves no lock behind."""
    with (
        disk_errors(table),
        hold_lock(folder, f"{table}: another query is writing there; each needs its own path"),
    ):
        yield
