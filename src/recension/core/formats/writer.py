"""Writing streams and histories: all or nothing, in the format that the file's name announces."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from os import PathLike
from pathlib import Path
from typing import Final

import pyarrow as pa

from recension.core.batch import EventBatch
from recension.core.errors import FormatError
from recension.core.formats.encode import history_rows, history_schema, stream_rows, stream_schema
from recension.core.formats.files import format_errors
from recension.core.formats.listing import format_of
from recension.core.history import History

_HISTORY_BATCH: Final = 1 << 16


def write_stream(
    path: str | PathLike[str],
    batches: Iterable[EventBatch],
    schema: pa.Schema,
    time_type: pa.DataType | None = None,
    *,
    escape_formulas: bool = False,
) -> int:
    """Write the elements to a file as they come; the number written.

    ``schema`` is the payload, ``time_type`` int64 or a microsecond timestamp. The file appears under its
    name when it is complete; until then, and after a failure, what was there before stays. With
    ``escape_formulas`` texts in a CSV that a spreadsheet would take for a formula get a ``'`` in front.
    """
    columns = stream_schema(schema, time_type or pa.int64())
    rows = (stream_rows(batch, columns) for batch in batches)
    return _write(Path(path), rows, columns, escape_formulas)


def write_history(
    path: str | PathLike[str],
    history: History,
    time_type: pa.DataType | None = None,
    *,
    escape_formulas: bool = False,
) -> int:
    """Write a history to a file, in the order it has; the number of events.

    With ``escape_formulas`` texts in a CSV that a spreadsheet would take for a formula get a ``'`` in front.
    """
    columns = history_schema(history.schema, time_type or history.time_type)
    return _write(Path(path), history_rows(history, columns, _HISTORY_BATCH), columns, escape_formulas)


def print_stream(
    file: BufferedIOBase, form: str, batches: Iterable[EventBatch], schema: pa.Schema, time_type: pa.DataType
) -> None:
    """Write the elements to an open file as they come: ``jsonl``, ``csv`` or ``arrow``, which is a stream."""
    columns = stream_schema(schema, time_type)
    _print(file, form, (stream_rows(batch, columns) for batch in batches), columns)


def print_history(file: BufferedIOBase, form: str, history: History, time_type: pa.DataType) -> None:
    """Write a history to an open file."""
    columns = history_schema(history.schema, time_type)
    _print(file, form, history_rows(history, columns, _HISTORY_BATCH), columns)


def _print(file: BufferedIOBase, form: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    path = Path(f"standard output.{form}")
    sink = format_of(path).open_sink(path, schema, file, False)
    for batch in batches:
        sink.write(batch)
    sink.close()


def _write(path: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema, escape_formulas: bool) -> int:
    refuse_unwritable(path, schema)
    with replacement_of(path) as partial:
        with format_errors(str(path)):
            sink = format_of(path).open_sink(partial, schema, None, escape_formulas)
        try:
            written = 0
            for batch in batches:
                with _target_errors(path):
                    sink.write(batch)
                written += len(batch)
            with _target_errors(path):
                sink.close()
        except BaseException:
            with suppress(OSError, ValueError, pa.ArrowException):
                sink.close()
            raise
    return written


def refuse_unwritable(path: Path, schema: pa.Schema) -> None:
    """Refuse columns that the format of a file has no form for."""
    form = format_of(path)
    for field in schema:
        if not form.has_form(field.type):
            reason = f"{field.type} cannot be written as {form.name.upper()}; use Parquet or Arrow"
            raise FormatError(f"column {field.name}: {reason}", file=str(path))


@contextmanager
def _target_errors(path: Path) -> Iterator[None]:
    """Errors name the file that was asked for, not the partial one beside it."""
    try:
        with format_errors(str(path)):
            yield
    except FormatError as why:
        raise FormatError(why.reason, file=str(path), row=why.row) from None


@contextmanager
def replacement_of(path: Path) -> Iterator[Path]:
    """A hidden file beside ``path``, which takes its place if all goes well."""
    target = Path(os.path.realpath(path))
    # Short, since a name may be as long as the file system allows. The extension is that of the path given,
    # even if it is a link to a file with another.
    name = f".{target.stem[:40]}."
    partial = target.with_name(f"{name}{os.getpid()}.partial{path.suffix}")
    _remove_abandoned(target.parent, name, path.suffix)
    try:
        with _locked(partial, str(path)):
            yield partial
            with format_errors(str(path)):
                partial.replace(target)
    finally:
        with suppress(OSError):
            partial.unlink()


@contextmanager
def _locked(partial: Path, name: str) -> Iterator[None]:
    """Others see by the lock that this file is being written."""
    with format_errors(name):
        handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _remove_abandoned(folder: Path, name: str, suffix: str) -> None:
    """Remove what runs that were killed have left of this file: nobody holds it, and its process is gone."""
    pattern = re.compile(rf"{re.escape(name)}([0-9]+)\.partial{re.escape(suffix)}")
    with suppress(OSError):
        for entry in os.scandir(folder):
            found = pattern.fullmatch(entry.name)
            if found and not _is_alive(int(found[1])) and entry.is_file(follow_symlinks=False):
                _remove_unlocked(Path(entry.path))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _remove_unlocked(file: Path) -> None:
    with suppress(OSError):
        handle = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.unlink()
        finally:
            os.close(handle)
