"""Reading recordings, also one that is still being written; `recording_files.py` says what is where."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import EventBatch
from recension.core.errors import FormatError, RecensionError, suggest_name
from recension.core.formats.columns import BATCH, VS, TimeColumns, layout_of
from recension.core.formats.decode import Decoder
from recension.core.formats.files import describe_file_error, format_errors, validate_batch
from recension.core.time_kind import TICKS, kind_of_column
from recension.plan.properties import NOTHING_KNOWN
from recension.runners.recording_files import (
    EDGES,
    MANIFEST,
    STEP_COLUMNS,
    STEPS,
    counted_files,
    edge_schema,
    file_name,
)
from recension.runners.recording_manifest import find_fault
from recension.runners.result import Result


@dataclass(frozen=True)
class Recording:
    """What was recorded of a session.

    >>> import recension as rc, tempfile
    >>> s = rc.source("s", {"user": "string"})
    >>> live = rc.session(s.agg(n=rc.count(), speculate="eager"))
    >>> folder = tempfile.mkdtemp()
    >>> with rc.record(live, folder):
    ...     live.push("s", [rc.Insert({"user": "ann"}, 1, 5)])
    ...     live.push("s", [rc.Insert({"user": "bob"}, 3, 5)])
    >>> recording = rc.read_recording(folder)
    >>> recording.names
    ['s', 'query']
    >>> [str(element) for element in recording.stream("query", after=1).elements()]
    ["retract [1, 5) -> 3 {'n': 1}", "insert [3, 5) {'n': 2}"]
    """

    path: Path
    manifest: dict[str, Any]

    def __repr__(self) -> str:
        return f"<Recording of {', '.join(self.names)} in {self.path}>"

    @property
    def sources(self) -> dict[str, int]:
        """The sources, and which edges they are."""
        return dict(self.manifest["sources"])

    @property
    def queries(self) -> dict[str, int]:
        """The queries, and which edges their answers are."""
        return dict(self.manifest["queries"])

    @property
    def edges(self) -> list[int]:
        """The edges that are recorded, inputs before the steps that read them."""
        return list(self.manifest["edges"])

    @property
    def names(self) -> list[str]:
        """What the recorded edges are called."""
        return [self.name_of(number) for number in self.edges]

    @property
    def is_whole(self) -> bool:
        """Does it begin with the first step of the session, and is nothing of it gone?"""
        return bool(self.manifest["is_whole"]) and not self.manifest["gone"]["steps"]

    def name_of(self, edge: int) -> str:
        """What an edge is called: as its source or its query, else as its step."""
        called = {number: name for name, number in [*self.queries.items(), *self.sources.items()]}
        return called.get(edge) or str(self.manifest["plan"][edge]["label"])

    @property
    def is_by_micro_batch(self) -> bool:
        """Is a step a micro-batch of Spark, whose number is one less?"""
        return "spark" in self.manifest

    def describe(self) -> list[str]:
        """What a reader should know of it, in words."""
        return [*self.manifest.get("notes", []), *self.describe_gaps()]

    def describe_gaps(self) -> list[str]:
        """What is not in it, in words."""
        gone, said = self.manifest["gone"], list[str]()
        if not self.manifest["is_whole"]:
            said.append("the recording begins after the session: what came before is not in it")
        if gone["steps"]:
            elements = sum(gone["elements"].values())
            said.append(
                f"the first {gone['steps']:,} steps ({elements:,} elements) are gone: the recording has "
                f"reached its limit of {self.manifest['limit']:,} bytes"
            )
        if hidden := self.manifest.get("hidden"):
            said.append(f"not recorded, since Spark computes it in another way: {', '.join(hidden)}")
        if self.manifest["ended"] not in (None, "closed"):
            said.append(f"the recording has ended early: {self.manifest['ended']}")
        return said

    def steps(self, after: int = 0) -> pa.Table:
        """The steps after one of them: number, wall clock, and the source that was fed (null: the clock)."""
        batches = list(self._rows(STEPS, "step", after))
        return pa.Table.from_batches(batches, STEP_COLUMNS)

    def rows(self, edge: str | int, after: int = 0) -> pa.Table | None:
        """The elements of an edge as a table with control columns, `_batch` the step; None if none came."""
        batches = list(self._rows(f"{EDGES}/{self._number(edge)}", BATCH, after))
        if not batches:
            return None
        # How times are written is known once one has come: until then they are ticks.
        return pa.Table.from_batches([batch.cast(batches[-1].schema) for batch in batches])

    def stream(self, edge: str | int, after: int = 0) -> Result:
        """The elements of an edge that came after a step, as a result; it may begin in the middle."""
        table = self.rows(edge, after)
        if table is None:
            return Result([], self.schema_of(edge), NOTHING_KNOWN)
        layout = layout_of(table.schema, TimeColumns(), self.name_of(self._number(edge)))
        decoder = Decoder(layout.payload, "raise")
        batches = [decoder.decode(rows, layout, str(self.path), 1).batch for rows in table.to_batches()]
        return Result(batches, layout.payload, NOTHING_KNOWN, layout.time_type)

    def schema_of(self, edge: str | int) -> pa.Schema:
        """The payload's columns on an edge, also if nothing came there."""
        stored = b64decode(self.manifest["plan"][self._number(edge)]["schema"])
        with format_errors(str(self.path / MANIFEST)):
            return pa.ipc.read_schema(pa.py_buffer(stored))

    def by_step(self, edge: str | int) -> dict[int, EventBatch]:
        """The elements of an edge, by the step that they came in."""
        table = self.rows(edge)
        if table is None:
            return {}
        batch = self.stream(edge).batch()
        starts = pc.value_counts(table[BATCH].combine_chunks())
        found, at = dict[int, EventBatch](), 0
        for step, size in zip(starts.field(0).to_pylist(), starts.field(1).to_pylist(), strict=True):
            found[step] = batch.slice(at, at + size)
            at += size
        return found

    def _number(self, edge: str | int) -> int:
        if edge in self.edges:
            return int(edge)
        called = [*self.queries.items(), *self.sources.items()]
        called += [(self.name_of(number), number) for number in self.edges]
        found = [number for name, number in called if name == edge and number in self.edges]
        if not found:
            raise RecensionError(
                f"no edge {edge!r} was recorded{suggest_name(str(edge), self.names)}; there are "
                f"{', '.join(map(repr, self.names))}"
            )
        return found[0]

    def _rows(self, folder: str, column: str, after: int) -> Iterator[pa.RecordBatch]:
        """The rows of an edge whose step is later, as far as the manifest counts them."""
        counted = counted_files(self.manifest, folder)
        for number, (size, rows) in counted.items():
            file = self.path / folder / file_name(number)
            # What ended a recording early may have cut off the files that were being written.
            may_end_early = self.manifest["ended"] not in (None, "closed") and number == max(counted)
            found = 0
            try:
                for batch in _read(file, size, may_end_early=may_end_early):
                    if not (found or self._was_written(folder, batch.schema)):
                        raise FormatError("its columns are not those that were written", file=str(file))
                    found += len(batch)
                    steps = batch.column(column)
                    if len(batch) and steps[-1].as_py() > after:
                        yield batch if steps[0].as_py() > after else batch.filter(pc.greater(steps, after))
            except FileNotFoundError:
                if number not in counted_files(read_recording(self.path).manifest, folder):
                    continue  # the limit was reached while this was read
                raise _part_missing(file, "the file is not there any more") from None
            if found != rows and not may_end_early:
                raise _part_missing(file, f"{found:,} rows where {rows:,} were written")

    def _was_written(self, folder: str, schema: pa.Schema) -> bool:
        """Are the columns those of such a file?"""
        if folder == STEPS:
            return bool(schema.equals(STEP_COLUMNS))
        times = schema.field(VS).type if VS in schema.names else TICKS
        own = self.schema_of(int(folder.removeprefix(f"{EDGES}/")))
        return bool(times == kind_of_column(times) and schema.equals(edge_schema(own, times)))


def _part_missing(file: Path, what: str) -> FormatError:
    return FormatError(f"{what}: a part of the recording is missing", file=str(file))


def _read(file: Path, size: int | None, *, may_end_early: bool) -> Iterator[pa.RecordBatch]:
    """The batches in the first bytes of a file, or in all of it."""
    try:
        with pa.memory_map(str(file)) as source:
            if size is not None and source.size() < size:
                raise _part_missing(file, f"{source.size():,} bytes where {size:,} were written")
            with pa.ipc.open_stream(source.read_buffer(size)) as reader:
                for batch in reader:
                    yield validate_batch(batch)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as why:
        if not may_end_early:
            raise FormatError(describe_file_error(why), file=str(file)) from None


def is_recording(path: Path) -> bool:
    """Is there a recording, finished or not?"""
    return (path / MANIFEST).is_file()


def read_recording(path: str | PathLike[str]) -> Recording:
    """The recording in a directory; it may still be being written, and what came so far is read.

    `rc.record` shows how it is made.
    """
    folder = Path(path)
    file = folder / MANIFEST
    if not file.is_file():
        raise RecensionError(f"{folder}: no recording: there is no {MANIFEST} in it")
    with format_errors(str(file)):
        text = file.read_text(encoding="utf-8")
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError):
        manifest = None
    if (fault := find_fault(manifest)) is not None:
        raise FormatError(fault, file=str(file))
    return Recording(folder, manifest)
