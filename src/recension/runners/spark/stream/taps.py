"""Recording inside the tasks: what came on the edges of a plan in one micro-batch, a part from every shard.

The driver asks for it by a setting of its session, which tasks get with the micro-batch; so a query that is
not recorded pays one look. A part appears complete, under a name that its micro-batch, edge and shard decide:
an attempt that is repeated writes the same files again. The driver takes them up (`sinks/recording.py`) when
the tables have the micro-batch.

    DIR/parts/42/3-1.arrows    what shard 1 gave on edge 3 in micro-batch 42
    DIR/parts/42/1-1.json      level 1, shard 1: it is done; the CTIs of its edges, and what its steps did

Edges are numbered as the local engine numbers the steps of the whole query. Most steps of a query are steps
of one fragment too; one that runs in several is looked at where it is first.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias
from uuid import uuid4

import pyarrow as pa

from recension.core.batch import EventBatch, concat, empty
from recension.core.errors import RecensionError
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.formats.files import describe_file_error
from recension.lowering import PhysicalPlan, lower
from recension.operators.pipeline import Flow
from recension.plan.fragments import Fragment
from recension.plan.node import Node
from recension.plan.parts import OfOnePart
from recension.runners.local import Session
from recension.runners.spark.stream.topology import Topology

PARTS: Final = "parts"
SETTING: Final = "spark.recension.record"
# What is said of a step: what it holds, what it did since the last micro-batch, how far it is.
HELD: Final = ("state_rows", "state_bytes")
DONE: Final = ("dropped", "late", "seconds", "events_out", "retractions_out")

# Of every fragment of a host, what its steps did in a micro-batch.
Reports: TypeAlias = Sequence[Mapping[str, Any]]

log = logging.getLogger("recension")


@dataclass(frozen=True)
class RecordRequest:
    """What the driver asks the tasks of a pipeline to record: of a micro-batch, so many bytes at most."""

    path: str
    pipeline: str
    edges: tuple[int, ...]
    limit: int

    def to_json(self) -> str:
        """As a setting has it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | None) -> Self | None:
        """The same again; none if nothing is recorded."""
        if not text:
            return None
        stored = json.loads(text)
        return cls(**{**stored, "edges": tuple(stored["edges"])})


class EdgePlace(NamedTuple):
    """Where an edge of the whole query can be seen: a fragment, and the number of the step there."""

    fragment: int
    vertex: int


def whole_plan(plan: Topology) -> PhysicalPlan:
    """The query as the local engine would run it; its numbers are those of edges."""
    return lower({"query": plan.queries[0]})


def edge_places(plan: Topology, whole: PhysicalPlan) -> dict[int, EdgePlace]:
    """By the number of an edge, where it can be seen; an edge that cannot is not there."""
    found: dict[int, EdgePlace] = {}
    asked = dict(_asked_steps(plan.roots[0], plan.queries[0]))
    for number, fragment in enumerate(plan.fragments):
        inside = lower({str(n): steps for n, (_, steps) in enumerate(fragment.outputs)})
        for step, node in _pairs(fragment, inside):
            edge, vertex = whole.numbers.get(asked.get(node, node)), inside.numbers.get(step)
            if edge is not None and vertex is not None:
                columns, wanted = inside.vertices[vertex].schema, whole.vertices[edge].schema
                if all(field in list(columns) for field in wanted):
                    found.setdefault(edge, EdgePlace(number, vertex))
    return found


def _asked_steps(root: Node, query: Node) -> Iterator[tuple[Node, Node]]:
    """Steps that run, each with the step of the query that it is: an aggregate of parts gives the answer."""
    waiting, seen = [(root, query)], set[Node]()
    while waiting:
        step, asked = waiting.pop()
        if step is asked or step in seen:
            continue
        seen.add(step)
        yield step, asked
        below = [child.inputs[0] if isinstance(child, OfOnePart) else child for child in step.inputs]
        waiting += zip(below, asked.inputs, strict=True)


def _pairs(fragment: Fragment, inside: PhysicalPlan) -> Iterator[tuple[Node, Node]]:
    """Steps of a fragment, each with the step of the whole query that it is."""
    origins = {edge.source.name: edge.origin for edge in fragment.edges}
    waiting: list[tuple[Node, Node]] = [
        (inside.queries[str(n)], node) for n, (node, _) in enumerate(fragment.outputs)
    ]
    yield from ((inside.sources[name], node) for name, node in origins.items() if name in inside.sources)
    yield from waiting
    while waiting:
        step, node = waiting.pop()
        if step.structure == node.structure and len(step.inputs) == len(node.inputs):
            yield step, node
            waiting += zip(step.inputs, node.inputs, strict=True)


@dataclass
class Tap:
    """Sees what comes on every edge of one session in a micro-batch."""

    batches: dict[int, list[EventBatch]] = field(default_factory=dict)
    ctis: dict[int, int] = field(default_factory=dict)
    time_type: pa.DataType = field(default_factory=pa.int64)

    def stage(self, flows: Mapping[int, Flow]) -> None:
        """What came in one step; an error would end the attempt, and with it the part."""
        for number, flow in flows.items():
            self.batches.setdefault(number, []).extend(flow.batches)
            if flow.cti is not None:
                self.ctis[number] = max(flow.cti, self.ctis.get(number, flow.cti))

    def publish(self, time_type: pa.DataType) -> None:
        """How times are written."""
        self.time_type = time_type

    def end(self, reason: str) -> None:
        """An engine that is restored has given nothing by that."""

    def rewire(self) -> None:
        """Merges whose inputs come and go are not recorded."""


@dataclass(frozen=True)
class _Watched:
    """An edge of the whole query as one host sees it."""

    session: int
    vertex: int
    schema: pa.Schema


class HostRecorder:
    """Records what the engines of one shard at one level give, a part for each micro-batch."""

    def __init__(self, plan: Topology, fragments: Sequence[Fragment], level: int, shard: int) -> None:
        whole = whole_plan(plan)
        here = {plan.fragments.index(fragment): at for at, fragment in enumerate(fragments)}
        self._edges = {
            edge: _Watched(here[place.fragment], place.vertex, whole.vertices[edge].schema)
            for edge, place in edge_places(plan, whole).items()
            if place.fragment in here
        }
        self._name, self._shard = f"{level}-{shard}.json", shard
        self._taps: list[Tap] = []

    def begin(self, sessions: Sequence[Session]) -> None:
        """See what comes in one micro-batch."""
        self._taps = [Tap() for _ in sessions]
        for session, tap in zip(sessions, self._taps, strict=True):
            session.observe(tap)

    def write(
        self, request: RecordRequest, batch: int, sessions: Sequence[Session], reports: Reports
    ) -> None:
        """Write the part; ``reports`` say what the sessions did.

        What goes wrong is said in it, and the query goes on.
        """
        folder = Path(request.path) / PARTS / str(batch)
        for session in sessions:
            session.observe(None)
        try:
            # The folder of all parts is there as long as anybody wants them.
            folder.mkdir(exist_ok=True)
            told = self._write_edges(request, folder, reports)
        except FileNotFoundError:
            return
        except (OSError, pa.ArrowException, RecensionError) as why:
            told = {"failed": describe_file_error(why)}
            log.warning("micro-batch %s is not recorded: %s", batch, told["failed"])
        with suppress(OSError):
            _publish(folder / self._name, json.dumps(told).encode())

    def _write_edges(self, request: RecordRequest, folder: Path, reports: Reports) -> dict[str, Any]:
        """The elements of the edges that are wanted, unless they are too many; gives what is to be said."""
        told: dict[str, Any] = {"ctis": {}, "measured": {}, "counts": {}}
        files = dict[str, pa.RecordBatch]()
        for edge, seen in self._edges.items():
            tap, done = self._taps[seen.session], reports[seen.session]["operators"][seen.vertex]
            told["measured"][edge] = {name: done[name] for name in (*HELD, *DONE, "cti", "warnings")}
            if edge in request.edges:
                came = self._elements(tap.batches.get(seen.vertex, []), seen.schema)
                told["counts"][edge] = len(came)
                if seen.vertex in tap.ctis:
                    told["ctis"][edge] = tap.ctis[seen.vertex]
                name = f"{edge}-{self._shard}.arrows"
                files[name] = stream_rows(came, stream_schema(seen.schema, tap.time_type))
        told["bytes"] = sum(rows.nbytes for rows in files.values())
        if told["bytes"] <= request.limit:
            for name, rows in files.items():
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, rows.schema) as writer:
                    writer.write_batch(rows)
                _publish(folder / name, sink.getvalue())
        return told

    def _elements(self, batches: list[EventBatch], schema: pa.Schema) -> EventBatch:
        """What came on an edge. Of external CTIs, which come to all shards, the first one tells."""
        if not batches:
            return empty(schema)
        came = concat(batches)
        if came.schema.names != schema.names:
            came = replace(came, payload=came.payload.select(schema.names))
        return came if self._shard == 0 else came.filter(came.is_data())


def add_measured(plan: Sequence[dict[str, Any]], told: Iterable[Mapping[int, Mapping[str, Any]]]) -> None:
    """What shards say of their steps in one micro-batch, added to what is known of the steps of a plan."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for number, measured in (item for words in told for item in words.items()):
        found.setdefault(number, []).append(measured)
    for number, shards in found.items():
        step = plan[number]
        step |= {name: sum(one[name] for one in shards) for name in HELD}
        step |= {name: step.get(name, 0) + sum(one[name] for one in shards) for name in DONE}
        # An engine that was loaded knows no CTI until the next one.
        step["cti"] = max(step["cti"], min(one["cti"] for one in shards))
        said = (text for one in shards for text in one["warnings"])
        step["warnings"] = list(dict.fromkeys([*step["warnings"], *said]))


def _publish(file: Path, content: Any) -> None:
    """Write a file as a whole; another attempt may write the same at the same time."""
    # Executors of several machines may have the same numbers of processes.
    beside = file.with_name(f".{file.name}.{uuid4().hex}")
    beside.write_bytes(content)
    os.replace(beside, file)
