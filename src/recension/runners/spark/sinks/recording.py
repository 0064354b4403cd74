"""Recording a streaming query: the driver takes up what its tasks have seen (`stream/taps.py`).

Assumes     the parts of a micro-batch are there when its rows are in the tables.
Guarantees  a micro-batch is a step of the recording, once: the manifest says which was the last, and how far
            the files count; what a driver that was killed wrote after that is cut off. A step has, of each
            edge, what every shard gave, in its order, then one CTI, the least of all shards, if it advanced.
            What goes wrong ends the recording, in words, and not the query.
State       the manifest: the last micro-batches by number and content, the CTI of every shard on every edge.
Cost        a second write of what is on the edges, by the tasks, and a third by the driver.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, concat, cti
from recension.core.errors import RecensionError
from recension.core.formats.columns import TimeColumns, layout_of
from recension.core.formats.decode import Decoder
from recension.core.formats.files import describe_file_error
from recension.core.ticks import BEGINNING
from recension.runners.recorder import EdgeChoice, choose_edges, describe_vertices, edge_names
from recension.runners.recording import read_recording
from recension.runners.recording_files import (
    FORMAT,
    MANIFEST,
    Came,
    RecordingFiles,
    Step,
    require_limit,
    require_new,
    write_manifest,
)
from recension.runners.spark.sinks.checkpoint import CheckpointFiles, query_of
from recension.runners.spark.sinks.files import AnyPath, local_path
from recension.runners.spark.sinks.micro_batch import MicroBatch, is_next, remember
from recension.runners.spark.stream.taps import PARTS, RecordRequest, add_measured, edge_places, whole_plan
from recension.runners.spark.stream.topology import Topology, built_as, fingerprint_of

SPARK: Final = "spark"
# A micro-batch that alone has so much of the limit is not kept.
_LARGEST: Final = 2

log = logging.getLogger("recension")


@dataclass(frozen=True)
class RecordedEdge:
    """An edge that is recorded: how many shards give its elements, and whether these are in order."""

    number: int
    shards: int
    is_ordered: bool


def open_recorder(
    path: AnyPath, owner: str | None, asked: EdgeChoice, limit: str | int, checkpoint: CheckpointFiles
) -> MicroBatchRecorder:
    """Begin a recording, or go on with that of this query; refuse, before anything runs, any other."""
    plan = _require_plan(owner)
    pipeline = fingerprint_of(str(owner))
    whole = whole_plan(plan)
    places = edge_places(plan, whole)
    chosen, names = choose_edges(whole, asked), edge_names(whole)
    hidden = [names[number][-1] for number in sorted(chosen - places.keys())]
    if hidden and not isinstance(asked, str):
        raise RecensionError(
            f"record: {hidden[0]!r} cannot be recorded on Spark, where that step is computed in another way; "
            "leave it out, or record the local engine over the same inputs"
        )
    edges = [
        RecordedEdge(
            number,
            1 if plan.fragments[places[number].fragment].is_single else plan.shards,
            any(n == number and node.properties.is_ordered for node, n in whole.numbers.items()),
        )
        for number in sorted(chosen & places.keys())
    ]
    folder, size = local_path(path), require_limit(limit)
    committed = max((int(name) for name in checkpoint.names("commits") if name.isdigit()), default=-1)
    stored: dict[str, Any] = {
        "format": FORMAT,
        "is_whole": committed < 0,
        "limit": size,
        "ended": None,
        "queries": whole.query_vertices,
        "sources": whole.source_vertices,
        "edges": [edge.number for edge in edges],
        "hidden": hidden,
        "plan": describe_vertices(whole, []),
        SPARK: {"pipeline": pipeline, "query": None, "last": committed, "recent": [], "ctis": {}},
    }
    if (folder / MANIFEST).is_file():
        _require_same(folder, stored, query_of(checkpoint))
    else:
        require_new(folder)
        write_manifest(folder, stored | RecordingFiles(folder).describe())
    (folder / PARTS).mkdir(exist_ok=True)
    shards = [plan.shards_at(level) for level in range(1, plan.levels + 1)]
    return MicroBatchRecorder(folder, pipeline, size, edges, shards)


def _require_plan(owner: str | None) -> Topology:
    plan = None if owner is None else built_as(fingerprint_of(owner))
    if plan is None:
        raise RecensionError("record: only what rc.spark.stream gives can be recorded, in the same program")
    if any(inlet.is_root for inlet in plan.inlets.values()):
        raise RecensionError(
            "record: the inputs of a merge over a root come and go; its changelog has what it put out, and "
            "recension inspect shows that"
        )
    return plan


def _require_same(folder: Path, asked: Mapping[str, Any], query: str | None) -> None:
    """Refuse to go on with a recording of something else, or with one that would have a gap."""
    manifest = read_recording(folder).manifest
    there, new = manifest.get(SPARK), asked[SPARK]
    if there is None or there["pipeline"] != new["pipeline"] or there["query"] not in (None, query):
        reason = "it has the recording of another query"
    elif manifest["ended"] is not None:
        reason = f"the recording has ended: {manifest['ended']}"
    elif manifest["edges"] != asked["edges"]:
        reason = "it was begun with other edges"
    elif not new["last"] <= there["last"] <= new["last"] + 1:
        reason = f"it ends with micro-batch {there['last']}, and the checkpoint with {new['last']}"
    else:
        return
    raise RecensionError(f"record: {folder}: {reason}; name a new directory")


@dataclass
class MicroBatchRecorder:
    """Makes each micro-batch of a query a step of a recording."""

    path: Path
    pipeline: str
    limit: int
    edges: list[RecordedEdge]
    shards: list[int]
    """How many shards have anything to do, by level."""
    _manifest: dict[str, Any] = field(default_factory=dict)
    _files: RecordingFiles | None = None

    @property
    def request(self) -> RecordRequest:
        """What the tasks are asked for."""
        edges = tuple(edge.number for edge in self.edges)
        return RecordRequest(str(self.path), self.pipeline, edges, self.limit // _LARGEST)

    def commit(self, batch: MicroBatch, rows: int) -> None:
        """Take up what the tasks saw of a micro-batch, which gave so many rows, unless that was done."""
        try:
            if self._files is None:
                self._manifest = dict(read_recording(self.path).manifest)
                self._files = RecordingFiles.resume(self.path, self._manifest)
            if self._manifest["ended"] is None:
                self._commit(batch, rows, self._files)
        except (OSError, pa.ArrowException, RecensionError, ValueError, KeyError) as why:
            self._stop(describe_file_error(why))

    def _commit(self, batch: MicroBatch, rows: int, files: RecordingFiles) -> None:
        known = self._manifest[SPARK]
        recent = tuple((number, content) for number, content in known["recent"])
        if is_next(self.path, batch, known["last"], recent):
            told = self._read_words(batch.number, rows)
            counts = {edge.number: _count(told, edge) for edge in self.edges}
            if sum(words["bytes"] for words in told.values()) > self.request.limit:
                files.forget_all(1, counts)
                self._follow_ctis(told)
            else:
                self._add(batch.number, batch.at, told, files)
            files.rotate(self.limit)
            measured = [words["measured"] for words in told.values()]
            add_measured(self._manifest["plan"], [{int(n): m for n, m in each.items()} for each in measured])
            known |= {"query": batch.query, "last": batch.number, "recent": remember(recent, batch)}
            self._put_manifest()
        for folder in (self.path / PARTS).iterdir():
            if int(folder.name) <= batch.number:
                shutil.rmtree(folder)

    def _read_words(self, number: int, rows: int) -> dict[tuple[int, int], dict[str, Any]]:
        """By level and shard, what the tasks say of their parts."""
        told: dict[tuple[int, int], dict[str, Any]] = {}
        for file in (self.path / PARTS / str(number)).glob("*.json"):
            at, _, shard = file.stem.partition("-")
            told[int(at), int(shard)] = json.loads(file.read_text(encoding="utf-8"))
        if failed := [words["failed"] for words in told.values() if "failed" in words]:
            raise RecensionError(f"a task could not write what it saw: {failed[0]}")
        for level, shards in enumerate(self.shards, start=1):
            seen = sum((level, shard) in told for shard in range(shards))
            if 0 < seen < shards or (not seen and rows and level == len(self.shards)):
                raise RecensionError(
                    f"{shards - seen} of {shards} tasks of micro-batch {number} left nothing there: the "
                    "directory must be on a file system that all executors share"
                )
        return told

    def _add(self, number: int, at: int, told: Mapping[tuple[int, int], Any], files: RecordingFiles) -> None:
        step, fed = number + 1, list[str]()
        advanced = self._follow_ctis(told)
        names = {edge: name for name, edge in self._manifest["sources"].items()}
        for edge in self.edges:
            parts = list(self._read_parts(number, edge))
            if sum(len(part[0]) for part in parts) != _count(told, edge):
                raise RecensionError(f"parts of micro-batch {number} are missing")
            if not parts:
                continue
            events, schema, time_type = concat([part[0] for part in parts]), *parts[-1][1:]
            if edge.is_ordered and len(parts) > 1:
                events = events.take(np.argsort(events.sync(), kind="stable"))
            t = advanced.get(edge.number)
            if len(events) or t is not None:
                promise = [] if t is None else [cti(t, schema)]
                files.add(edge.number, Came(step, [events, *promise]), schema, time_type)
                fed += [names[edge.number]] if edge.number in names else []
        files.add_steps([Step(step, at, ", ".join(fed) or None)])
        files.write()

    def _read_parts(
        self, number: int, edge: RecordedEdge
    ) -> Iterator[tuple[EventBatch, pa.Schema, pa.DataType]]:
        """What each shard gave on an edge."""
        for shard in range(edge.shards):
            file = self.path / PARTS / str(number) / f"{edge.number}-{shard}.arrows"
            if file.is_file():
                with pa.memory_map(str(file)) as source:
                    (rows,) = pa.ipc.open_stream(source.read_buffer())
                layout = layout_of(rows.schema, TimeColumns(), str(file))
                events = Decoder(layout.payload, "raise").decode(rows, layout, str(file), 1).batch
                yield events, layout.payload, layout.time_type

    def _follow_ctis(self, told: Mapping[tuple[int, int], Any]) -> dict[int, int]:
        """By edge the least CTI over all shards, where it has advanced."""
        advanced, ctis = dict[int, int](), self._manifest[SPARK]["ctis"]
        for edge in self.edges:
            by_shard = ctis.setdefault(str(edge.number), [BEGINNING] * edge.shards)
            before = min(by_shard)
            for (_, shard), words in told.items():
                if (t := words["ctis"].get(str(edge.number))) is not None:
                    by_shard[shard] = max(by_shard[shard], t)
            if min(by_shard) > before:
                advanced[edge.number] = min(by_shard)
        return advanced

    def _put_manifest(self) -> None:
        assert self._files is not None
        write_manifest(self.path, self._manifest | self._files.describe())

    def _stop(self, reason: str) -> None:
        """End the recording. Tasks write nothing where the folder of parts is not."""
        log.warning("the recording in %s has ended: %s", self.path, reason)
        try:
            shutil.rmtree(self.path / PARTS, ignore_errors=True)
            if self._files is not None:
                self._manifest["ended"] = reason
                self._files.close()
                self._put_manifest()
        except (OSError, RecensionError) as why:
            log.warning("the recording in %s has no proper end: %s", self.path, describe_file_error(why))


def _count(told: Mapping[Any, Mapping[str, Any]], edge: RecordedEdge) -> int:
    """How many elements all tasks have seen on an edge."""
    return sum(words["counts"].get(str(edge.number), 0) for words in told.values())
