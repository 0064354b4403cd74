"""The files of a recording: of every edge its elements, and the steps that they came in.

    DIR/recording.json            the plan, the edges, what every step of the plan did, what is no longer here
    DIR/steps/00000001.arrows     of each step its number, the wall clock, and the source that was fed
    DIR/edges/3/00000001.arrows   the elements of edge 3, a stream like any other: `_batch` is the step

All edges begin a new file together. When the files are larger than the limit the oldest of every edge are
removed, and counted: what a recording lacks, it says. The manifest, which is exchanged as a whole, says how
far the files count: what a writer that was killed has written after it is not read, and is cut off when the
recording goes on.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, concat
from recension.core.errors import FormatError, RecensionError
from recension.core.formats.columns import BATCH, SEQ
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.formats.files import describe_file_error
from recension.core.memory_pool import parse_size
from recension.core.ticks import BEGINNING, Ticks
from recension.core.time_kind import AWARE

FORMAT: Final = "recension recording 2"
LIMIT: Final = 1 << 30
MANIFEST: Final = "recording.json"
SUM: Final = "sum"
ARRIVED: Final = "_arrived"
STEPS: Final = "steps"
EDGES: Final = "edges"
STEP_COLUMNS: Final = pa.schema([("step", pa.int64()), ("at", AWARE), ("source", pa.string())])
_LEAST_LIMIT: Final = 1 << 16
# Every edge is in so many files; the oldest ones go together.
_FILES: Final = 8


class Came(NamedTuple):
    """The elements of one step; for a source that says it, when each change arrived."""

    step: int
    batches: list[EventBatch]
    arrived: Index | None = None

    def arrivals(self) -> Ticks:
        """When each element arrived; BEGINNING where it is not known, as of CTIs."""
        size = sum(map(len, self.batches))
        known = np.zeros(0, np.int64) if self.arrived is None else self.arrived[:size]
        return np.append(known, np.full(size - len(known), BEGINNING))


class Step(NamedTuple):
    """A step of a recording, when it was, and what was fed; none if the clock alone moved."""

    number: int
    at: int
    source: str | None


class _Full(NamedTuple):
    """A set of files that is full: its bytes, steps, and elements by edge."""

    number: int
    bytes: int
    steps: int
    written: Counter[int]


class RecordingFiles:
    """Writes the files of a recording, and holds what waits to be written. It does not know the plan."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 1
        self._waiting: dict[int, list[Came]] = {}
        self._schemas: dict[int, pa.Schema] = {}
        self._steps: list[Step] = []
        self.waiting_rows = 0
        self._open: dict[str, tuple[pa.OSFile, Any, pa.Schema]] = {}
        self._full: list[_Full] = []
        self._written_steps, self._written = 0, Counter[int]()
        self._numbered: Counter[int] = Counter()
        self.gone_steps, self.gone = 0, Counter[int]()

    @classmethod
    def resume(cls, path: Path, manifest: Mapping[str, Any]) -> Self:
        """Go on where a manifest ends: what was written after it is cut off; new files begin."""
        files, stored = cls(path), manifest["files"]
        files._full = [_Full(full[0], full[1], full[2], _by_number(full[3])) for full in stored["full"]]
        files._numbered = _by_number(stored["numbered"])
        files.gone_steps, files.gone = manifest["gone"]["steps"], _by_number(manifest["gone"]["elements"])
        for name, size in stored["open"].items():
            file = path / name / file_name(stored["number"])
            if not file.is_file() or file.stat().st_size < size:
                raise FormatError("not all of it is there any more", file=str(file))
            os.truncate(file, size)
        if stored["open"]:
            steps, written = stored["steps"], _by_number(stored["written"])
            size = sum(stored["open"].values())
            files._full.append(_Full(stored["number"], size, steps, written))
        kept = {file_name(full.number) for full in files._full}
        for file in [file for file in files._find("*.arrows") if file.name not in kept]:
            file.unlink()
        files._number = stored["number"] + 1
        return files

    def describe(self) -> dict[str, Any]:
        """For the manifest: how far the files count, and what is gone."""
        return {
            "files": {
                "number": self._number,
                "open": {name: file.tell() for name, (file, _, _) in self._open.items()},
                "steps": self._written_steps,
                "written": _by_name(self._written),
                "full": [[*full[:3], _by_name(full.written)] for full in self._full],
                "numbered": _by_name(self._numbered),
            },
            "gone": {"steps": self.gone_steps, "elements": _by_name(self.gone)},
        }

    def add(
        self,
        number: int,
        came: Came,
        payload: pa.Schema,
        time_type: pa.DataType,
        *,
        has_arrivals: bool = False,
    ) -> None:
        """More elements of an edge; a step may have none."""
        if not came.batches:
            return
        self._waiting.setdefault(number, []).append(came)
        self._schemas[number] = edge_schema(payload, time_type, has_arrivals=has_arrivals)
        self.waiting_rows += sum(map(len, came.batches))

    def add_steps(self, steps: Iterable[Step]) -> None:
        """More steps."""
        self._steps += steps
        self.waiting_rows += 1

    def write(self) -> None:
        """Write everything that waits; readers see it once the manifest says so."""
        waiting, steps = self._waiting, self._steps
        self._waiting, self._steps, self.waiting_rows = {}, [], 0
        for number, came in waiting.items():
            rows = self._rows(number, came)
            self._append(f"{EDGES}/{number}", rows)
            self._written[number] += len(rows)
        if steps:
            columns = [pa.array(column) for column in zip(*steps, strict=True)]
            rows = pa.record_batch(
                [c.cast(f.type) for c, f in zip(columns, STEP_COLUMNS, strict=True)], schema=STEP_COLUMNS
            )
            self._append(STEPS, rows)
            self._written_steps += len(rows)
        for file, _, _ in self._open.values():
            file.flush()

    def _rows(self, number: int, came: list[Came]) -> pa.RecordBatch:
        """Elements as the rows of a stream that is numbered."""
        batches = [batch for one in came for batch in one.batches]
        sizes = [sum(map(len, one.batches)) for one in came]
        schema, whole = self._schemas[number], concat(batches)
        own = [field for field in list(schema)[2:] if field.name != ARRIVED]
        plain = stream_rows(whole, pa.schema(own))
        step = np.repeat(np.array([one.step for one in came]), sizes)
        first = self._numbered[number]
        self._numbered[number] += len(whole)
        columns = [pa.array(step), pa.array(np.arange(first, first + len(whole))), *plain.columns]
        if ARRIVED in schema.names:
            arrived = np.concatenate([one.arrivals() for one in came])
            columns.append(pa.array(arrived, mask=arrived == BEGINNING))
        return pa.record_batch(columns, schema=schema)

    def _append(self, name: str, rows: pa.RecordBatch) -> None:
        if name in self._open and not self._open[name][2].equals(rows.schema):
            self._begin_new_files()  # times are written otherwise from now on
        if name not in self._open:
            folder = self._path / name
            folder.mkdir(parents=True, exist_ok=True)
            file = pa.OSFile(str(folder / file_name(self._number)), "wb")
            self._open[name] = file, pa.ipc.new_stream(file, rows.schema), rows.schema
        self._open[name][1].write_batch(rows)

    def rotate(self, limit: int) -> None:
        """Begin new files if these are large enough; the oldest go until all are within the limit."""
        if sum(file.tell() for file, _, _ in self._open.values()) >= limit // _FILES:
            self._begin_new_files()
            while sum(full.bytes for full in self._full) > limit * (_FILES - 1) // _FILES:
                self._forget(self._full.pop(0))

    def forget_all(self, steps: int, elements: Mapping[int, int]) -> None:
        """Remove what was written, and count it as gone, with so much that is not written at all."""
        self._begin_new_files()
        while self._full:
            self._forget(self._full.pop(0))
        self.gone_steps += steps
        self.gone += Counter(elements)
        self._numbered += Counter(elements)

    def _forget(self, full: _Full) -> None:
        for file in self._find(file_name(full.number)):
            file.unlink()
        self.gone_steps += full.steps
        self.gone += full.written

    def _find(self, pattern: str) -> list[Path]:
        return [*self._path.glob(f"{EDGES}/*/{pattern}"), *self._path.glob(f"{STEPS}/{pattern}")]

    def _begin_new_files(self) -> None:
        size = self._close_open()
        self._full.append(_Full(self._number, size, self._written_steps, self._written))
        self._number, self._written_steps, self._written = self._number + 1, 0, Counter()

    def _close_open(self) -> int:
        size, found = 0, self._open
        self._open = {}
        with ExitStack() as held:
            for file, _, _ in found.values():
                held.callback(file.close)  # of each, even if another cannot be ended
            for file, writer, _ in found.values():
                writer.close()
                size += file.tell()
        return size

    def close(self) -> None:
        """Write what waits, and end all files."""
        self.write()
        if self._open:
            self._begin_new_files()


def write_manifest(path: Path, stored: Mapping[str, Any]) -> None:
    """A new manifest in the place of the old one, at once."""
    whole = {**stored, SUM: manifest_sum(json.loads(json.dumps(stored)))}
    beside = path / f".{MANIFEST}.partial"
    try:
        beside.write_text(json.dumps(whole, ensure_ascii=False, indent=1), encoding="utf-8")
        beside.replace(path / MANIFEST)
    finally:
        beside.unlink(missing_ok=True)


def manifest_sum(stored: Mapping[str, Any]) -> str:
    """A checksum of all that a manifest says; those of before have none."""
    content = json.dumps({name: value for name, value in stored.items() if name != SUM}, sort_keys=True)
    return blake2b(content.encode(), digest_size=8).hexdigest()


def counted_files(manifest: Mapping[str, Any], folder: str) -> dict[int, tuple[int | None, int]]:
    """The files of an edge, or of the steps, that must be there; bytes (None: all) and rows that count."""

    def rows(steps: int, written: Mapping[str, int]) -> int:
        return steps if folder == STEPS else written.get(folder.removeprefix(f"{EDGES}/"), 0)

    stored = manifest["files"]
    found: dict[int, tuple[int | None, int]] = {
        number: (None, rows(steps, written)) for number, _, steps, written in stored["full"]
    }
    if folder in stored["open"]:
        found[stored["number"]] = stored["open"][folder], rows(stored["steps"], stored["written"])
    return {number: counted for number, counted in found.items() if counted[1]}


def require_limit(limit: str | int) -> int:
    """The limit of a recording in bytes."""
    if (size := parse_size(limit)) < _LEAST_LIMIT:
        raise RecensionError(f"record: the limit is at least {_LEAST_LIMIT // 1024} KiB, not {limit!r}")
    return size


def require_new(path: Path) -> None:
    """Make the directory; what is in one already might be of somebody else."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        is_empty = not any(path.iterdir())
    except OSError as why:
        raise RecensionError(f"record: {path}: {describe_file_error(why)}") from None
    if not is_empty:
        raise RecensionError(f"record: {path} is not empty: name a new directory")


def file_name(number: int) -> str:
    """The files of an edge are numbered."""
    return f"{number:08}.arrows"


def edge_schema(payload: pa.Schema, time_type: pa.DataType, *, has_arrivals: bool) -> pa.Schema:
    """The columns of the elements of an edge."""
    numbers = [pa.field(BATCH, pa.int64()), pa.field(SEQ, pa.int64())]
    arrived = [pa.field(ARRIVED, pa.int64())] if has_arrivals else []
    return pa.schema([*numbers, *stream_schema(payload, time_type), *arrived])


def _by_name(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(number): n for number, n in sorted(counts.items())}


def _by_number(counts: Mapping[str, int]) -> Counter[int]:
    return Counter({int(number): n for number, n in counts.items()})
