"""Files that survive a kill: complete and on the disk before anyone can see them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.core.formats.files import describe_error, seal_of
from recension.core.formats.parquet import ParquetSink
from recension.runners.spark.failures import is_full, no_space


def write_parquet(path: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> str:
    """Write a file to the disk, and its seal; its name is safe after `sync_folder`."""
    sink = ParquetSink(path, schema)
    try:
        for batch in batches:
            sink.write(batch)
    finally:
        sink.close()
    _sync(path, os.O_RDONLY)
    return seal_of(path)


def publish(partial: Path, path: Path) -> None:
    """Give a complete file its name, at once and for good."""
    os.replace(partial, path)
    sync_folder(path.parent)


def publish_text(path: Path, text: str) -> None:
    """Write a small file that is either there as a whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    _sync(partial, os.O_RDONLY)
    publish(partial, path)


def sync_folder(path: Path) -> None:
    """Make the names in a folder safe."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def writing(table: Path) -> Iterator[None]:
    """What the disk refuses becomes one line that names the table."""
    try:
        yield
    except OSError as why:
        raise RecensionError(
            no_space(str(table)) if is_full(str(why)) else f"{table}: {describe_error(why)}"
        ) from None


@contextmanager
def locked(folder: Path, table: Path) -> Iterator[None]:
    """Keep a second writer out, in this process or another; a killed one leaves no lock behind."""
    with writing(table):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RecensionError(
                    f"{table}: another query is writing there; each needs its own path"
                ) from None
            yield
