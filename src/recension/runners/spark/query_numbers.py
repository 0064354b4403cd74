"""The plan of a running query with its numbers, as a recording without elements: for ``recension inspect``.

A listener (`listener.py`) writes it anew after each micro-batch, in the place of the old one, at once.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from recension.core.formats.files import describe_file_error
from recension.runners.recorder import describe_vertices
from recension.runners.recording_files import FORMAT, RecordingFiles, write_manifest
from recension.runners.spark.stream.taps import EdgePlace, add_measured, edge_places, whole_plan
from recension.runners.spark.stream.topology import Topology, built_as

KEPT: Final = 200

log = logging.getLogger("recension")


def empty_manifest(path: Path, plan: list[dict[str, Any]], ends: Mapping[str, Mapping[str, int]]) -> Any:
    """The manifest of a recording that has a plan and no elements; ``ends`` are its sources and queries."""
    return {
        "format": FORMAT,
        "is_whole": True,
        "limit": 0,
        "ended": None,
        "edges": [],
        "plan": plan,
        "spark": {},
        **ends,
        **RecordingFiles(path).describe(),
    }


@dataclass
class QueryNumbers:
    """What is known of one pipeline of a query."""

    path: Path
    plan: Topology
    _rows: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT))

    def __post_init__(self) -> None:
        whole = whole_plan(self.plan)
        places = edge_places(self.plan, whole)
        self._edges = {place: edge for edge, place in places.items()}
        ends = {"queries": whole.query_vertices, "sources": whole.source_vertices}
        self._manifest = empty_manifest(self.path, describe_vertices(whole, []), ends)
        kind = next((inlet.kind for inlet in self.plan.inlets.values()), None)
        if kind is not None and pa.types.is_timestamp(kind):
            self._manifest["times"] = kind.tz or "naive"

    def add(self, numbers: Any, reports: Iterable[Mapping[str, Any]]) -> None:
        """One more micro-batch: its numbers, and what every shard says of its steps."""
        row = {name: value for name, value in asdict(numbers).items() if name not in ("query", "pipeline")}
        row["cti"] = None if row["cti"] is None else str(row["cti"])
        self._rows.append({name: value for name, value in row.items() if value is not None})
        told = [
            {
                edge: done
                for number, done in enumerate(report["operators"])
                if (edge := self._edges.get(EdgePlace(report["fragment"], number))) is not None
            }
            for report in reports
        ]
        add_measured(self._manifest["plan"], told)
        lag = "" if numbers.lag_seconds is None else f", final up to {numbers.lag_seconds:,.1f} s ago"
        self._manifest["notes"] = [f"{numbers.query}: micro-batch {numbers.batch} began {numbers.at}{lag}"]
        self.write()

    def end(self, why: str | None) -> None:
        """The query has ended."""
        self._manifest["ended"] = "closed"
        self._manifest["notes"] = [*self._manifest.get("notes", []), f"the query has ended{why or ''}"]
        self.write()

    def write(self) -> None:
        """Write what is known; a fault is said in the log, and nothing else suffers from it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_manifest(self.path, self._manifest | {"numbers": list(self._rows)})
        except OSError as why:
            log.warning(
                "the numbers of a query are not written to %s: %s", self.path, describe_file_error(why)
            )


def numbers_of(folder: Path, query: str, pipeline: str, fingerprint: str) -> QueryNumbers | None:
    """A place for the numbers of a pipeline that was built in this process."""
    plan = built_as(fingerprint)
    name = query if pipeline == "recension" else f"{query} {pipeline.removeprefix('recension ')}"
    return (
        None
        if plan is None
        else QueryNumbers(folder / (re.sub(r"[^\w. -]", "_", name).lstrip(".") or "_"), plan)
    )
