"""Recording a session: the elements on chosen edges of its plan, with the step that each came in.

    DIR/recording.json            the plan, the edges, what every step of the plan did, what is no longer here
    DIR/steps/00000001.arrows     of each step its number, the wall clock, and the source that was fed
    DIR/edges/3/00000001.arrows   the elements of edge 3, a stream like any other: `_batch` is the step

All edges begin a new file together. When the files are larger than the limit the oldest of every edge are
removed, and counted: what a recording lacks, it says. A session that is not recorded pays nothing. What goes
wrong here (a full disk) ends the recording, in words, and not the session. `recording.py` reads it.
"""

from __future__ import annotations

import json
import logging
import os
import time
import weakref
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, concat
from recension.core.errors import RecensionError, suggest_name
from recension.core.formats.columns import BATCH, SEQ
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.formats.files import describe_file_error
from recension.core.memory_pool import parse_size
from recension.core.time_kind import AWARE
from recension.core.wall_clock import Clock
from recension.lowering import PhysicalPlan, describe_choice
from recension.operators.pipeline import Flow
from recension.plan.node import Node
from recension.plan.properties import describe_properties
from recension.plan.schemas import describe_columns
from recension.runners.engine import elements
from recension.runners.metrics import Metrics

FORMAT: Final = "recension recording 1"
LIMIT: Final = 1 << 30
MANIFEST: Final = "recording.json"
STEPS: Final = "steps"
EDGES: Final = "edges"
STEP_COLUMNS: Final = pa.schema([("step", pa.int64()), ("at", AWARE), ("source", pa.string())])
_LEAST_LIMIT: Final = 1 << 16
# Every edge is in so many files; the oldest ones go together.
_FILES: Final = 8
# What came is written when it is so many elements, or so many seconds old.
_ROWS: Final = 1 << 16
_SECONDS: Final = 1.0
# To ask which state is held is not free.
_METRICS_SECONDS: Final = 10.0

# Which edges: sources and answers, all of them, or those of these names or numbers.
EdgeChoice: TypeAlias = Literal["ends", "all"] | Sequence[str | int]
# The elements of one step.
_Came: TypeAlias = tuple[int, list[EventBatch]]

log = logging.getLogger("recension")


class Recorder:
    """Records a session; `close` ends that, as does the end of a ``with`` block. The session goes on."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        edges: EdgeChoice,
        limit: str | int,
        clock: Clock,
        plan: PhysicalPlan,
        measure: Callable[[], list[Metrics]],
        *,
        is_whole: bool,
    ) -> None:
        """``is_whole``: does it begin with the session's first step?"""
        self.path = Path(path)
        self._plan, self._clock, self._measure, self._is_whole = plan, clock, measure, is_whole
        self._limit = _require_limit(limit)
        self._asked: EdgeChoice = edges
        self.rewire()
        _require_new(self.path)
        self.stopped: str | None = None
        """Why nothing is recorded any more, if so."""
        self._step = 0
        self._staged: list[tuple[int, int, Flow]] = []
        self._new_steps: list[tuple[int, int, str | None]] = []
        self._files = _Files(self.path)
        self._metrics = measure()
        self._flushed = self._measured = time.monotonic()
        self._write_manifest()
        # Whoever forgets to close it loses nothing.
        weakref.finalize(self, _Files.close, self._files)

    def rewire(self) -> None:
        """Look at the plan again: a merge may have got other inputs."""
        self._sources = {number: name for name, number in self._plan.source_vertices.items()}
        self._edges = _choose(self._plan, self._asked)

    def stage(self, flows: Mapping[int, Flow]) -> None:
        """What came on the edges in one step; it is recorded once the whole push has gone well."""
        if self.stopped is None:
            self._step += 1
            fed = next((self._sources[number] for number in flows if number in self._sources), None)
            self._new_steps.append((self._step, self._clock(), fed))
            self._staged += [(self._step, n, flow) for n, flow in flows.items() if n in self._edges]

    def publish(self, time_type: pa.DataType) -> None:
        """What was staged is true. It is written if it is worth the while."""
        if self.stopped is not None or not self._new_steps:
            return
        for step, number, flow in self._staged:
            schema = self._plan.vertices[number].schema
            self._files.add(number, step, elements(flow, schema), schema, time_type)
        self._files.add_steps(self._new_steps)
        self._staged, self._new_steps = [], []
        if self._files.waiting_rows >= _ROWS or time.monotonic() - self._flushed >= _SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what came so far: whoever reads the recording now has it."""
        if self.stopped is None:
            try:
                self._write()
            except (OSError, pa.ArrowException, RecensionError) as why:
                self._stop(f"it could not be written: {describe_file_error(why)}", is_failure=True)

    def close(self) -> None:
        """End the recording. The session goes on."""
        self.flush()
        self._stop("closed", is_failure=False)

    def end(self, reason: str) -> None:
        """End the recording since the streams do not go on from here; it is logged."""
        self._staged, self._new_steps = [], []
        self.flush()
        self._stop(reason, is_failure=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Recorder of {self._step:,} steps in {self.path}>"

    def _write(self) -> None:
        self._files.write()
        if self._files.open_bytes >= self._limit // _FILES:
            self._files.rotate(self._limit)
        if time.monotonic() - self._measured >= _METRICS_SECONDS:
            self._metrics, self._measured = self._measure(), time.monotonic()
        self._write_manifest()
        self._flushed = time.monotonic()

    def _stop(self, reason: str, *, is_failure: bool) -> None:
        if self.stopped is not None:
            return
        self.stopped = reason
        if is_failure:
            log.warning("the recording in %s has ended: %s", self.path, reason)
        try:
            self._files.close()
            self._metrics = self._measure()
            self._write_manifest()
        except (OSError, RecensionError) as why:
            log.warning("the recording in %s has no proper end: %s", self.path, describe_file_error(why))

    def _write_manifest(self) -> None:
        """A new manifest in the place of the old one, at once."""
        stored = {
            "format": FORMAT,
            "is_whole": self._is_whole,
            "limit": self._limit,
            "ended": self.stopped,
            "gone": {"steps": self._files.gone_steps, "elements": _by_name(self._files.gone)},
            "queries": self._plan.query_vertices,
            "sources": self._plan.source_vertices,
            "edges": sorted(self._edges),
            "plan": describe_vertices(self._plan, self._metrics),
        }
        beside = self.path / f".{MANIFEST}.{os.getpid()}"
        beside.write_text(json.dumps(stored, ensure_ascii=False, indent=1), encoding="utf-8")
        beside.replace(self.path / MANIFEST)


class _Files:
    """The files of a recording, and what waits to be written to them. It does not know the session."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 1
        self._waiting: dict[int, list[_Came]] = {}
        self._schemas: dict[int, pa.Schema] = {}
        self._steps: list[tuple[int, int, str | None]] = []
        self.waiting_rows = 0
        self._open: dict[str, tuple[pa.OSFile, Any, pa.Schema]] = {}
        # Of every set of files that is full: its number, bytes, steps and elements by edge.
        self._full: list[tuple[int, int, int, Counter[int]]] = []
        self._written_steps, self._written = 0, Counter[int]()
        self._numbered: Counter[int] = Counter()
        self.gone_steps, self.gone = 0, Counter[int]()

    @property
    def open_bytes(self) -> int:
        """How large the files are that are being written."""
        return sum(file.tell() for file, _, _ in self._open.values())

    def add(
        self, number: int, step: int, batches: list[EventBatch], payload: pa.Schema, time_type: pa.DataType
    ) -> None:
        """More elements of an edge."""
        self._waiting.setdefault(number, []).append((step, batches))
        self._schemas[number] = _edge_schema(payload, time_type)
        self.waiting_rows += sum(map(len, batches))

    def add_steps(self, steps: Iterable[tuple[int, int, str | None]]) -> None:
        """More steps."""
        self._steps += steps
        self.waiting_rows += 1

    def write(self) -> None:
        """Write everything that waits; readers see it."""
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

    def _rows(self, number: int, came: list[_Came]) -> pa.RecordBatch:
        """Elements as the rows of a stream that is numbered."""
        batches = [batch for _, several in came for batch in several]
        sizes = [sum(map(len, several)) for _, several in came]
        schema, whole = self._schemas[number], concat(batches)
        plain = stream_rows(whole, pa.schema(list(schema)[2:]))
        step = np.repeat(np.array([step for step, _ in came]), sizes)
        first = self._numbered[number]
        self._numbered[number] += len(whole)
        return pa.record_batch(
            [pa.array(step), pa.array(np.arange(first, first + len(whole))), *plain.columns], schema=schema
        )

    def _append(self, name: str, rows: pa.RecordBatch) -> None:
        if name in self._open and not self._open[name][2].equals(rows.schema):
            self.rotate(None)  # times are written otherwise from now on
        if name not in self._open:
            folder = self._path / name
            folder.mkdir(parents=True, exist_ok=True)
            file = pa.OSFile(str(folder / _file_name(self._number)), "wb")
            self._open[name] = file, pa.ipc.new_stream(file, rows.schema), rows.schema
        self._open[name][1].write_batch(rows)

    def rotate(self, limit: int | None) -> None:
        """Begin new files; the oldest go until all are within the limit."""
        size = self._close_open()
        self._full.append((self._number, size, self._written_steps, self._written))
        self._number, self._written_steps, self._written = self._number + 1, 0, Counter()
        while (
            limit is not None and sum(size for _, size, _, _ in self._full) > limit * (_FILES - 1) // _FILES
        ):
            number, _, steps, written = self._full.pop(0)
            for file in self._path.glob(f"*/**/{_file_name(number)}"):
                file.unlink()
            self.gone_steps += steps
            self.gone += written

    def _close_open(self) -> int:
        size = 0
        for file, writer, _ in self._open.values():
            writer.close()
            size += file.tell()
            file.close()
        self._open = {}
        return size

    def close(self) -> None:
        """Write what waits, and end all files."""
        self.write()
        self._close_open()


def describe_vertices(plan: PhysicalPlan, metrics: Sequence[Metrics]) -> list[dict[str, Any]]:
    """Every step of a plan as plain values, with what it has done."""
    nodes: dict[int, Node] = {number: node for node, number in plan.numbers.items()}
    described = []
    for number, vertex in enumerate(plan.vertices):
        node = nodes.get(number)
        done = metrics[number] if number < len(metrics) else Metrics(vertex.name)
        described.append(
            {
                "id": number,
                "label": vertex.name,
                "inputs": [i for i in vertex.inputs if i >= 0],
                "columns": describe_columns(vertex.schema),
                "schema": b64encode(vertex.schema.serialize().to_pybytes()).decode("ascii"),
                "known": describe_properties(node.properties) if node is not None else None,
                "chosen": describe_choice(node) if node is not None else None,
                "state_rows": done.state_rows,
                "state_bytes": done.state_bytes,
                "dropped": done.dropped,
                "seconds": round(done.seconds, 6),
                "warnings": done.warnings,
            }
        )
    return described


def edge_names(plan: PhysicalPlan) -> dict[int, list[str]]:
    """By number, the names that an edge may be called by: of its query, its source, its step."""
    names = {number: [vertex.name] for number, vertex in enumerate(plan.vertices)}
    for called in (plan.source_vertices, plan.query_vertices):
        for name, number in called.items():
            if name not in names[number]:
                names[number].append(name)
    return names


def _choose(plan: PhysicalPlan, asked: EdgeChoice) -> set[int]:
    ends = {*plan.source_vertices.values(), *plan.query_vertices.values()}
    if asked == "ends":
        return ends
    if asked == "all":
        return set(range(len(plan.vertices)))
    if isinstance(asked, str):
        raise RecensionError(f"record: edges are 'ends', 'all' or a list of names, not {asked!r}")
    names = edge_names(plan)
    chosen = set()
    for one in asked:
        found = [number for number, called in names.items() if one == number or one in called]
        if not found:
            every = [name for called in names.values() for name in called]
            raise RecensionError(
                f"record: the plan has no edge {one!r}{suggest_name(str(one), every)}; it has "
                f"{', '.join(map(repr, every))}"
            )
        chosen.update(found)
    return chosen


def _require_limit(limit: str | int) -> int:
    if (size := parse_size(limit)) < _LEAST_LIMIT:
        raise RecensionError(f"record: the limit is at least {_LEAST_LIMIT // 1024} KiB, not {limit!r}")
    return size


def _require_new(path: Path) -> None:
    """Make the directory; what is in one already might be of somebody else."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        is_empty = not any(path.iterdir())
    except OSError as why:
        raise RecensionError(f"record: {path}: {describe_file_error(why)}") from None
    if not is_empty:
        raise RecensionError(f"record: {path} is not empty: name a new directory")


def _edge_schema(payload: pa.Schema, time_type: pa.DataType) -> pa.Schema:
    numbers = [pa.field(BATCH, pa.int64()), pa.field(SEQ, pa.int64())]
    return pa.schema([*numbers, *stream_schema(payload, time_type)])


def _file_name(number: int) -> str:
    return f"{number:08}.arrows"


def _by_name(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(number): n for number, n in sorted(counts.items())}
