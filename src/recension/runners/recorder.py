"""Recording a session: the elements on chosen edges of its plan, with the step that each came in.

A session that is not recorded pays nothing. What goes wrong here (a full disk) ends the recording, in words,
and not the session. `recording_files.py` says what is where, `recording.py` reads it.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self, TypeAlias

import pyarrow as pa

from recension.core.batch import Index
from recension.core.errors import RecensionError, suggest_name
from recension.core.formats.files import describe_file_error
from recension.core.wall_clock import Clock
from recension.lowering import PhysicalPlan, describe_choice
from recension.operators.pipeline import Flow
from recension.plan.node import Node
from recension.plan.properties import describe_properties
from recension.plan.schemas import describe_columns
from recension.runners.engine import elements
from recension.runners.metrics import Metrics
from recension.runners.recording_files import (
    FORMAT,
    Came,
    RecordingFiles,
    Step,
    require_limit,
    require_new,
    write_manifest,
)

# What came is written when it is so many elements, or so many seconds old.
_ROWS: Final = 1 << 16
_SECONDS: Final = 1.0
# To ask which state is held is not free.
_METRICS_SECONDS: Final = 10.0

# Which edges: sources and answers, all of them, or those of these names or numbers.
EdgeChoice: TypeAlias = Literal["ends", "all"] | Sequence[str | int]

log = logging.getLogger("recension.recording")


class StepObserver(Protocol):
    """Sees what comes on every edge of a session's plan."""

    def stage(self, flows: Mapping[int, Flow]) -> None:
        """What came in one step, by edge; it counts once the whole push has gone well."""

    def publish(self, time_type: pa.DataType) -> None:
        """What was staged is true."""

    def end(self, reason: str) -> None:
        """The streams do not go on from here."""

    def rewire(self) -> None:
        """A merge has got other inputs."""


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
        self._limit = require_limit(limit)
        self._asked: EdgeChoice = edges
        self.rewire()
        require_new(self.path)
        self.stopped: str | None = None
        """Why nothing is recorded any more, if so."""
        self._step = 0
        self._staged: list[tuple[int, int, Flow, Index | None]] = []
        self._arrived: dict[int, Index] = {}
        self._new_steps: list[Step] = []
        self._files = RecordingFiles(self.path)
        self._metrics = measure()
        self._flushed = self._measured = time.monotonic()
        self._stored: dict[str, Any] = {}
        self._write_manifest()
        # Whoever forgets to close it loses nothing.
        self._at_end = weakref.finalize(self, _close_files, self.path, self._files, self._stored)

    def rewire(self) -> None:
        """Look at the plan again: a merge may have got other inputs."""
        self._sources = {number: name for name, number in self._plan.source_vertices.items()}
        named = self._plan.sources
        self._dated = {number for number, name in self._sources.items() if named[name].arrival is not None}
        self._edges = choose_edges(self._plan, self._asked)

    def note_arrivals(self, edge: int, arrived: Index) -> None:
        """When the changes arrived that come on the edge of a source in the next step."""
        self._arrived[edge] = arrived

    def stage(self, flows: Mapping[int, Flow]) -> None:
        """What came on the edges in one step; it is recorded once the whole push has gone well."""
        arrived, self._arrived = self._arrived, {}
        if self.stopped is None:
            self._step += 1
            fed = next((self._sources[number] for number in flows if number in self._sources), None)
            self._new_steps.append(Step(self._step, self._clock(), fed))
            self._staged += [
                (self._step, n, flow, arrived.get(n)) for n, flow in flows.items() if n in self._edges
            ]

    def publish(self, time_type: pa.DataType) -> None:
        """What was staged is true. It is written if it is worth the while."""
        if self.stopped is not None or not self._new_steps:
            return
        for step, number, flow, arrived in self._staged:
            schema = self._plan.vertices[number].schema
            came = Came(step, elements(flow, schema), arrived)
            self._files.add(number, came, schema, time_type, has_arrivals=number in self._dated)
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
        self._files.rotate(self._limit)
        if time.monotonic() - self._measured >= _METRICS_SECONDS:
            self._metrics, self._measured = self._measure(), time.monotonic()
        self._write_manifest()
        self._flushed = time.monotonic()

    def _stop(self, reason: str, *, is_failure: bool) -> None:
        if self.stopped is not None:
            return
        self.stopped = reason
        self._at_end.detach()
        if is_failure:
            log.warning("the recording in %s has ended: %s", self.path, reason)
        try:
            self._files.close()
            self._metrics = self._measure()
            self._write_manifest()
        except (OSError, pa.ArrowException, RecensionError) as why:
            _warn_of_end(self.path, why)

    def _write_manifest(self) -> None:
        self._stored |= {
            "format": FORMAT,
            "is_whole": self._is_whole,
            "limit": self._limit,
            "ended": self.stopped,
            "queries": self._plan.query_vertices,
            "sources": self._plan.source_vertices,
            "edges": sorted(self._edges),
            "plan": describe_vertices(self._plan, self._metrics),
        }
        write_manifest(self.path, self._stored | self._files.describe())


def _close_files(path: Path, files: RecordingFiles, stored: Mapping[str, Any]) -> None:
    """The end of a recording that nobody has closed."""
    if stored["ended"] is not None:
        return
    try:
        files.close()
        write_manifest(path, {**stored, **files.describe()})
    except (OSError, pa.ArrowException, RecensionError) as why:
        _warn_of_end(path, why)


def _warn_of_end(path: Path, why: Exception) -> None:
    log.warning("the recording in %s has no proper end: %s", path, describe_file_error(why))


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
                "late": done.late,
                "seconds": round(done.seconds, 6),
                "warnings": done.warnings,
                "events_out": done.events_out,
                "retractions_out": done.retractions_out,
                "cti": done.cti,
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


def choose_edges(plan: PhysicalPlan, asked: EdgeChoice) -> set[int]:
    """The numbers of the edges that are asked for."""
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
