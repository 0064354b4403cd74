"""What a checkpoint says: of which query it is, and what each micro-batch was made of.

Whose it is     A file of ours in the checkpoint's folder names the query. Another query is refused before
                anything runs: the state would refuse it only later, and Spark's own message would not help.
What it took    Spark writes the offsets of a micro-batch into its checkpoint before it runs, and takes them
                from there when it runs again. For Kafka and most sources the offsets name the input. A file
                source only counts (``{"logOffset":3}``); which files that were is in a log of its own,
                ``sources/I/3``, and older entries in a compacted one, ``9.compact``.

A checkpoint on a disk is read by Python, any other by the file systems of Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import fspath
from pathlib import Path, PurePath
from typing import Any, Final, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from recension.core.errors import FormatError, RecensionError
from recension.core.formats.files import digest_of, format_errors
from recension.core.time_kind import AWARE, NAIVE, TICKS, TimeKind
from recension.runners.spark.failures import reason_of
from recension.runners.spark.session import is_connect
from recension.runners.spark.sinks.files import (
    AnyPath,
    disk_errors,
    escape_wildcards,
    is_local,
    local_path,
    publish_text,
)
from recension.runners.spark.stream.topology import TIMES, require_same

NAME: Final = "recension.json"
TABLES: Final = "recension.tables.json"
_PLANS: Final = "offsets"
# Spark writes a file under such a name and then renames it; Hadoop keeps a checksum beside it.
_UNFINISHED: Final = re.compile(r"\.{1,2}0\.[0-9a-f-]+\.tmp(?:\.crc)?")
# The lines of a log of offsets: its version, the settings and the time of the micro-batch, then the sources.
_PLANNED: Final = 1
_FIRST_SOURCE: Final = 2
# A file source counts once or twice a micro-batch.
_MOST: Final = 10_000


class CheckpointFiles(Protocol):
    """Small text files by their names under the checkpoint, such as ``offsets/12``."""

    def text(self, name: str) -> str | None:
        """The text of a file; none if it is not there."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it is not there."""

    def put(self, name: str, text: str) -> None:
        """Write a file; one that is there is replaced."""

    def remove(self, name: str) -> None:
        """Remove a file."""


def files_of(spark: SparkSession, checkpoint: AnyPath) -> CheckpointFiles:
    """The files of a checkpoint, wherever it is."""
    if is_local(checkpoint):
        return LocalFiles(local_path(checkpoint))
    return (ConnectFiles if is_connect(spark) else HadoopFiles)(spark, fspath(checkpoint))


class LocalFiles:
    """On a file system that Python sees."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def text(self, name: str) -> str | None:
        """The text of a file; none if it is not there."""
        file = self._folder / name
        with format_errors(str(file)):
            return file.read_text(encoding="utf-8") if file.is_file() else None

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it is not there."""
        place = self._folder / folder
        with format_errors(str(place)):
            return [file.name for file in place.iterdir()] if place.is_dir() else []

    def put(self, name: str, text: str) -> None:
        """Write a file; one that is there is replaced."""
        with disk_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            publish_text(self._folder / name, text)

    def remove(self, name: str) -> None:
        """Remove a file."""
        with disk_errors(self._folder):
            (self._folder / name).unlink(missing_ok=True)


class HadoopFiles:
    """On any other that Spark knows."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._folder = folder
        with self._one_line_errors():
            self._system = self._path("").getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    def text(self, name: str) -> str | None:
        """The text of a file; none if it is not there."""
        with self._one_line_errors():
            if not self._system.exists(self._path(name)):
                return None
            stream = self._system.open(self._path(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it is not there."""
        with self._one_line_errors():
            if not self._system.exists(self._path(folder)):
                return []
            return [str(found.getPath().getName()) for found in self._system.listStatus(self._path(folder))]

    def put(self, name: str, text: str) -> None:
        """Write a file; one that is there is replaced."""
        with self._one_line_errors():
            stream = self._system.create(self._path(name), True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()

    def remove(self, name: str) -> None:
        """Remove a file."""
        with self._one_line_errors():
            self._system.delete(self._path(name), False)

    @contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        """Errors of the file system become one line."""
        try:
            yield
        except Py4JJavaError as why:
            reason = " ".join(str(why.java_exception.getMessage()).split())
            raise RecensionError(f"{self._folder}: the checkpoint cannot be read: {reason}") from None

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._folder}/{name}".rstrip("/"))


class ConnectFiles:
    """The same for a client of Spark Connect, which has no file system at hand: a DataFrame reads them."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark, self._folder = spark, folder

    def text(self, name: str) -> str | None:
        """The text of a file; none if it is not there."""
        found = self._collect(name, "content")
        return bytes(found[0]).decode() if found else None

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder; none if it is not there."""
        return [PurePath(path).name for path in self._collect(folder, "path")]

    def put(self, name: str, text: str) -> None:
        """Nothing: a DataFrame writes no file of a given name. Whose state it is, the state says as well."""

    def remove(self, name: str) -> None:
        """Nothing, for the same reason."""

    def _collect(self, name: str, column: str) -> list[Any]:
        found = self._spark.read.format("binaryFile").load(escape_wildcards(f"{self._folder}/{name}"))
        try:
            return [row[column] for row in found.select(column).collect()]
        except AnalysisException as why:
            if why.getCondition() == "PATH_NOT_FOUND":
                return []
            raise RecensionError(f"{self._folder}: the checkpoint cannot be read: {reason_of(why)}") from None


def require_owner(files: CheckpointFiles, owner: str) -> None:
    """Refuse a checkpoint with which another query has finished a micro-batch."""
    if (made_by := _owner_of(files)) is not None:
        with _damage_errors():
            require_same(made_by, owner)


def shards_of(files: CheckpointFiles) -> int | None:
    """The number of shards with which a query has finished a micro-batch; none if it is new."""
    if (made_by := _owner_of(files)) is None:
        return None
    with _damage_errors():
        return int(json.loads(made_by)["shards"])


def times_of(files: CheckpointFiles) -> TimeKind:
    """The kind of times with which a query has finished a micro-batch; None if that was not noted."""
    if (made_by := _owner_of(files)) is None:
        return None
    with _damage_errors():
        noted = json.loads(made_by).get(TIMES)
    return next((kind for kind in (TICKS, NAIVE, AWARE) if str(kind) == noted), None)


def _owner_of(files: CheckpointFiles) -> str | None:
    return files.text(NAME) if is_begun(files) else None


@contextmanager
def _damage_errors() -> Iterator[None]:
    """Whatever fails while our file is read, the file is damaged."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise FormatError(
            f"the checkpoint's {NAME} is damaged: restore checkpoint and tables from one backup, or remove "
            "that file: the state names its query too"
        ) from None


def claim(files: CheckpointFiles, owner: str) -> None:
    """Write into the folder whose it is; refuse one with which another query has finished a micro-batch."""
    require_owner(files, owner)
    if not is_begun(files):
        files.put(NAME, owner)


def clear_unfinished_plan(files: CheckpointFiles) -> None:
    """Remove what a driver left that was killed while it wrote down what its first micro-batch is made of.

    Spark takes that for a checkpoint whose beginning is lost, and refuses every later start.
    """
    names = files.names(_PLANS)
    if not any(name.isdigit() for name in names):
        for name in filter(_UNFINISHED.fullmatch, names):
            files.remove(f"{_PLANS}/{name}")


def note_tables(files: CheckpointFiles, tables: Mapping[str, AnyPath | None]) -> None:
    """Write into the folder where the query writes to, for whoever looks at it."""

    def address(place: AnyPath | None) -> str | None:
        return None if place is None else str(local_path(place) if is_local(place) else place)

    files.put(TABLES, json.dumps({name: address(place) for name, place in tables.items()}))


def is_begun(files: CheckpointFiles) -> bool:
    """Has a query finished a micro-batch with this checkpoint?"""
    return any(name.isdigit() for name in files.names("commits"))


def query_of(files: CheckpointFiles) -> str | None:
    """The query that Spark has named in a checkpoint; none if it is new."""
    text = files.text("metadata")
    if text is None:
        return None
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError):
        raise FormatError(
            "the file 'metadata' of the checkpoint is damaged: restore checkpoint and tables from one backup"
        ) from None


class InputLog:
    """What the micro-batches of one query were made of.

    ``sources`` has for each line of offsets the number of its source: one that a plan reads twice has two
    lines and one log.
    """

    def __init__(self, files: CheckpointFiles, query: str, sources: Sequence[int]) -> None:
        self._files, self.query, self._sources = files, query, sources
        self._last: tuple[int, str] | None = None
        self._logs: dict[int, list[str]] = {}

    def contents(self, number: int) -> tuple[str, str | None]:
        """A digest of what a micro-batch is made of, and that of the one before if the checkpoint has it."""
        before = self._content_before(number)
        self._last = number, self._content(number)
        return self._last[1], before

    def _content_before(self, number: int) -> str | None:
        if self._last is not None and self._last[0] == number - 1:
            return self._last[1]
        # Two sets of offsets enclose it; of the first micro-batch, one.
        needed = [n for n in (number - 2, number - 1) if n >= 0]
        is_known = number > 0 and all(self._files.text(f"offsets/{n}") is not None for n in needed)
        return self._content(number - 1) if is_known else None

    def _content(self, number: int) -> str:
        taken = [entry for entries in self.files_taken(number) for entry in entries]
        return digest_of(self.query, str(number), *self.offsets(number), *taken)

    def files_taken(self, number: int) -> list[list[str]]:
        """For each line of offsets the files that a micro-batch took, with their times."""
        until = self.offsets(number)
        since = self.offsets(number - 1) if number else []
        return [
            self._files_taken(line, since[line] if line < len(since) else None, offset)
            for line, offset in enumerate(until)
        ]

    def offsets(self, number: int) -> list[str]:
        """Where every source was when a micro-batch had its input."""
        return self._lines(number)[_FIRST_SOURCE:]

    def planned_at(self, number: int) -> int:
        """When Spark planned a micro-batch, in microseconds since 1970: the same whenever it is run."""
        planned = _parse_json(self._lines(number)[_PLANNED])
        at = planned.get("batchTimestampMs", 0) if isinstance(planned, dict) else 0
        return 1000 * at if isinstance(at, int) and at > 0 else 0

    def _lines(self, number: int) -> list[str]:
        """The log of a micro-batch, which never changes; those of the last two are kept."""
        if number not in self._logs:
            text = self._files.text(f"{_PLANS}/{number}")
            if text is None:
                raise FormatError(f"the checkpoint lacks the offsets of micro-batch {number}")
            lines = text.splitlines()
            if len(lines) < _FIRST_SOURCE:
                raise FormatError(f"the checkpoint's offsets of micro-batch {number} are damaged")
            self._logs = {n: log for n, log in self._logs.items() if n >= number - 1} | {number: lines}
        return self._logs[number]

    def _files_taken(self, line: int, since: str | None, until: str) -> list[str]:
        """The files that a file source took from one offset to another."""
        first, last = _log_offset(since), _log_offset(until)
        if last is None or line >= len(self._sources):
            return []
        numbers = range(-1 if first is None else first, last + 1)[1:]
        folder = f"sources/{self._sources[line]}"
        if len(numbers) > _MOST:
            raise FormatError(f"the checkpoint's offsets of {folder} go from {first} to {last}: damaged")
        return [entry for number in numbers for entry in self._read_log(folder, number)]

    def _read_log(self, folder: str, number: int) -> list[str]:
        text = self._files.text(f"{folder}/{number}")
        if text is None:
            compacted = [
                int(name.stem) for name in map(PurePath, self._files.names(folder)) if _is_compact(name)
            ]
            later = min((n for n in compacted if n >= number), default=None)
            text = None if later is None else self._files.text(f"{folder}/{later}.compact")
        if text is None:
            return []
        # Most lines of a compacted log have other numbers: only those that may have this one are parsed.
        lines = (line for line in text.splitlines()[1:] if f'"batchId":{number}' in line)
        return sorted(entry for line in lines for entry in _log_entry(line, number))


def _is_compact(name: PurePath) -> bool:
    return name.suffix == ".compact" and name.stem.isdigit()


def _log_offset(offset: str | None) -> int | None:
    """How far a file source has counted; none for other sources."""
    stored = _parse_json(offset) if offset is not None else None
    counted = stored.get("logOffset") if isinstance(stored, dict) and len(stored) == 1 else None
    return counted if isinstance(counted, int) else None


def _log_entry(line: str, number: int) -> list[str]:
    stored = _parse_json(line)
    if not isinstance(stored, dict) or stored.get("batchId") != number:
        return []
    return [f"{stored.get('path')} {stored.get('timestamp')}"]


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def source_numbers(execution: Any) -> list[int]:
    """For each line of offsets the number of its source, as Spark's running query has them.

    Spark numbers its sources in the order of the plan, each once, and writes a line each time.
    """
    sources = execution.sources()
    identity = [_identity(sources.apply(i)) for i in range(sources.size())]
    found = {key: i for i, key in enumerate(dict.fromkeys(identity))}
    return [found[key] for key in identity]


def listed_sources(files: CheckpointFiles, number: int) -> list[int]:
    """The same where the running query cannot be asked: as the checkpoint lists them.

    A plan that reads a source twice has more lines than sources, and which is which is not known: then the
    offsets alone say what a micro-batch was made of.
    """
    text = files.text(f"offsets/{number}") or ""
    lines = len(text.splitlines()[_FIRST_SOURCE:])
    return list(range(lines)) if len(files.names("sources")) == lines else []


def _identity(source: Any) -> str:
    # Two streams of Spark's are equal only if they are one: Java's own `equals` and `hashCode`.
    return f"{source.getClass().getName()}@{source.hashCode()}"
