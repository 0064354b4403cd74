"""Where results go: a file, whose name gives the format, or standard output.

All that could stop the writing is checked before any work is done: nobody should wait for an answer that
cannot be written.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import pyarrow as pa
import typer

from recension.cli.root import STANDARD_OUTPUT, name_standard_output
from recension.cli.show import csv_history, show_history
from recension.core.batch import EventBatch
from recension.core.errors import RecensionError
from recension.core.formats import write_history, write_stream
from recension.core.formats.encode import stream_schema
from recension.core.formats.listing import format_of
from recension.core.formats.manifest import is_table
from recension.core.formats.writer import print_history, print_stream, refuse_unwritable
from recension.core.history import History

STANDARD: Final = "-"


class TextFormat(StrEnum):
    """Formats for standard output."""

    JSONL = "jsonl"
    CSV = "csv"
    ARROW = "arrow"


FormatOption: TypeAlias = Annotated[
    TextFormat | None,
    typer.Option("--format", help="The format of -: JSON Lines by default."),
]


@dataclass(frozen=True, slots=True)
class OutputTarget:
    """Where a stream or a history goes: to a file, or to standard output in a format."""

    path: Path
    form: TextFormat = TextFormat.JSONL

    @property
    def is_standard(self) -> bool:
        """Does it go to standard output?"""
        return str(self.path) == STANDARD

    def check(self, inputs: Iterable[Path] = ()) -> None:
        """Refuse what cannot be written, or would overwrite what is read."""
        if self.is_standard:
            # The root command has put another file in place of a closed one.
            if sys.__stdout__ is None:
                raise RecensionError("-: standard output is closed")
            return
        check_file(self.path)
        _refuse_input(self.path, inputs)

    def check_columns(self, schema: pa.Schema) -> None:
        """Refuse columns that the format cannot represent."""
        name = Path(f"standard output.{self.form}") if self.is_standard else self.path
        refuse_unwritable(name, stream_schema(schema, pa.int64()))

    def write_stream(self, batches: Iterable[EventBatch], schema: pa.Schema, time_type: pa.DataType) -> None:
        """Write the elements as they come."""
        if self.is_standard:
            print_stream(StandardOutput(), self.form, batches, schema, time_type)
        else:
            write_stream(self.path, batches, schema, time_type)

    def write_history(self, history: History, time_type: pa.DataType) -> None:
        """Write a history, in its order."""
        if self.is_standard:
            print_history(StandardOutput(), self.form, history, time_type)
        else:
            write_history(self.path, history, time_type)


@dataclass(frozen=True, slots=True)
class ResultTargets:
    """Where the stream and the history of a command go; without an output the history is shown."""

    output: OutputTarget | None
    history: OutputTarget | None

    @staticmethod
    def from_options(output: Path | None, history: Path | None, form: TextFormat | None) -> ResultTargets:
        """The outputs that the options name."""
        written = form or TextFormat.JSONL
        results = ResultTargets(
            None if output is None else OutputTarget(output, written),
            None if history is None else OutputTarget(history, written),
        )
        if form is not None and not any(output.is_standard for output in results.outputs):
            raise RecensionError(
                f"--format {form} is for standard output (--output -): a file's name says its format"
            )
        return results

    @property
    def outputs(self) -> list[OutputTarget]:
        """Those that were given."""
        return [output for output in (self.output, self.history) if output is not None]

    def check(self, inputs: Iterable[Path]) -> None:
        """Refuse outputs that cannot be written, and two outputs to one file."""
        inputs = list(inputs)
        for output in self.outputs:
            output.check(inputs)
        if len({_real(output.path) for output in self.outputs}) < len(self.outputs):
            raise RecensionError(f"--output and --history are both {self.outputs[0].path}")

    def check_columns(self, schema: pa.Schema) -> None:
        """Refuse columns that a format cannot represent."""
        for output in self.outputs:
            output.check_columns(schema)

    @property
    def needs_history(self) -> bool:
        """Is the history written or shown?"""
        return self.history is not None or self.output is None

    def put_history(self, history: History, time_type: pa.DataType) -> None:
        """Write the history, or show it: its first rows on a terminal, otherwise all of it."""
        if self.history is not None:
            self.history.write_history(history, time_type)
        elif sys.stdout.isatty():
            show_history(history, time_type)
        else:
            print_history(StandardOutput(), "csv", csv_history(history), time_type)


def check_file(path: Path) -> None:
    """Refuse a file that cannot be made or replaced, or whose name has no known format."""
    if path.is_dir():
        what = "a history table" if is_table(path) else "a directory"
        raise RecensionError(f"{path}: is {what}; name a file to write")
    format_of(path)
    if path.exists() and not path.is_file():
        raise RecensionError(f"{path}: not a regular file")
    folder = _real(path).parent
    if not folder.is_dir():
        raise RecensionError(f"{path}: no such directory {folder}: make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RecensionError(f"{path}: files cannot be written in {folder}: permission denied")


def check_made_file(path: Path) -> None:
    """The same for a file in a format of its own, whose folder is created if it is missing."""
    if path.is_dir():
        raise RecensionError(f"{path}: is a directory; name a file to write")
    check_folder(path.parent)


def check_folder(path: Path) -> None:
    """Refuse a folder that cannot be made or written in."""
    if path.exists() and not path.is_dir():
        raise RecensionError(f"{path}: is a file; name a folder")
    nearest = next(folder for folder in (_real(path), *_real(path).parents) if folder.exists())
    if not nearest.is_dir():
        raise RecensionError(f"{path}: {nearest} is not a directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise RecensionError(f"{path}: cannot be written in: permission denied")


def _refuse_input(path: Path, inputs: Iterable[Path]) -> None:
    for source in inputs:
        if _real(path) == _real(source):
            raise RecensionError(f"{path}: is also read: write to another file")
        if source.is_dir() and _real(path).parent == _real(source):
            raise RecensionError(f"{path}: is inside {source}, which is read: write to another directory")


def is_within(path: Path, folder: Path) -> bool:
    """Is it this folder, or anything in it?"""
    return _real(path).is_relative_to(_real(folder))


def _real(path: Path) -> Path:
    # Path.resolve would raise where links go round in a circle.
    return Path(os.path.realpath(path))


class StandardOutput(io.BufferedIOBase):
    """Standard output as a file for results: always UTF-8, written at once, and named in errors.

    Closing it leaves standard output open.
    """

    name = STANDARD_OUTPUT

    def __init__(self) -> None:
        with name_standard_output():
            # What was printed before comes first.
            sys.stdout.flush()
        self._file = sys.stdout.buffer

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        # At once: a reader such as `head` waits for the first lines, not for the last.
        with name_standard_output():
            written = self._file.write(data)
            self._file.flush()
        return written
