"""What the checkpoint of a query shows: its plan, and which micro-batches began and ended, with what input.

Spark writes the offsets of a micro-batch before it runs, and a commit after it; `rc.spark.write` adds whose
checkpoint it is, and where its tables are. Nothing here is changed, and nothing runs.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recension.core.errors import FormatError, RecensionError
from recension.core.ticks import BEGINNING
from recension.plan.schemas import describe_columns, schema_of
from recension.runners.spark.query_numbers import KEPT
from recension.runners.spark.sinks.checkpoint import (
    NAME,
    TABLES,
    InputLog,
    LocalFiles,
    listed_sources,
    query_of,
)

_UNKNOWN = ("state_rows", "state_bytes", "dropped", "late", "seconds", "events_out", "retractions_out")


@dataclass(frozen=True)
class CheckpointView:
    """What a checkpoint says now."""

    notes: list[str]
    numbers: list[dict[str, Any]]


class CheckpointReader:
    """Reads the checkpoint of a query, again and again while it grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._files = path, LocalFiles(path)
        if not self._files.names("offsets"):
            raise RecensionError(f"{path}: not a checkpoint of a query that has begun: there are no offsets")
        self._seen: tuple[list[int], list[int]] | None = None
        self._view = CheckpointView([], [])

    def tables(self) -> dict[str, str]:
        """Where the query writes: its changelog, its history and its recording, as far as it has them."""
        return {name: place for name, place in self._stored(TABLES).items() if place is not None}

    def plan(self) -> list[dict[str, Any]]:
        """The steps of the query, the answer first."""
        steps = self._stored(NAME).get("plan") or [["the query", [], {}, None]]
        order = [len(steps) - 1, *range(len(steps) - 1)]
        place = {old: new for new, old in enumerate(order)}
        plan = list[dict[str, Any]]()
        for old in order:
            label, inputs, columns, _ = steps[old]
            schema = schema_of(columns, label)
            plan.append(
                {
                    "id": place[old],
                    "label": label,
                    "inputs": [place[i] for i in inputs],
                    "columns": describe_columns(schema),
                    "schema": b64encode(schema.serialize().to_pybytes()).decode("ascii"),
                    "known": None,
                    "chosen": None,
                    **dict.fromkeys(_UNKNOWN),
                    "warnings": [],
                    "cti": BEGINNING,
                }
            )
        return plan

    def view(self) -> CheckpointView:
        """What it says now."""
        begun, done = (_numbers(self._files.names(folder)) for folder in ("offsets", "commits"))
        if (begun, done) != self._seen:
            self._view = CheckpointView(self._describe(begun, done), self._rows(begun, done))
            self._seen = begun, done
        return self._view

    def _describe(self, begun: list[int], done: list[int]) -> list[str]:
        shards = self._stored(NAME).get("shards")
        said = [f"query {query_of(self._files)}" + (f", in {shards} shards" if shards else "")]
        if done:
            said[0] += f": micro-batch {done[-1]} is done"
        if begun[-1] not in done:
            said.append(
                f"micro-batch {begun[-1]} has begun, at {self._began(begun[-1])}, and is not done: it "
                "runs, or the query has stopped in it, and will run it again"
            )
        return said

    def _rows(self, begun: list[int], done: list[int]) -> list[dict[str, Any]]:
        log = InputLog(self._files, "", listed_sources(self._files, begun[-1]))
        kept = begun[-KEPT:]
        return [
            {
                "batch": number,
                "began": self._began(number),
                "done": "yes" if number in done else "no",
                **self._taken(log, number, is_known=not number or number - 1 in begun),
            }
            for number in kept
        ]

    def _taken(self, log: InputLog, number: int, *, is_known: bool) -> dict[str, str]:
        """What a micro-batch took from every source, in words."""
        try:
            until = log.offsets(number)
            since = log.offsets(number - 1) if number and is_known else [None] * len(until)
            files = log.files_taken(number) if is_known else [[] for _ in until]
        except FormatError as why:
            return {"input": str(why)}
        return {
            f"source {line}": _describe_taken(before, offset, taken)
            for line, (before, offset, taken) in enumerate(zip(since, until, files, strict=True))
        }

    def _began(self, number: int) -> str:
        lines = (self._files.text(f"offsets/{number}") or "").splitlines()
        try:
            moment = json.loads(lines[1])["batchTimestampMs"] / 1000
            return datetime.fromtimestamp(moment, UTC).isoformat(" ", "milliseconds")
        except (ValueError, KeyError, TypeError, IndexError, OverflowError):
            return "?"

    def _stored(self, name: str) -> dict[str, Any]:
        try:
            stored = json.loads(self._files.text(name) or "{}")
        except ValueError:
            stored = None
        if not isinstance(stored, dict):
            raise FormatError("damaged", file=str(self._path / name))
        return stored


def _numbers(names: list[str]) -> list[int]:
    return sorted(int(name) for name in names if name.isdigit())


def _describe_taken(since: str | None, until: str, files: list[str]) -> str:
    """From one offset to another."""
    if files:
        return f"{len(files)} file{'' if len(files) == 1 else 's'}: {Path(files[-1].split()[0]).name}"
    if until == since or until == "-":
        return "nothing new"
    before, after = _parse(since), _parse(until)
    if after and all(isinstance(parts, dict) for parts in after.values()):
        taken = sum(
            offset - before.get(topic, {}).get(part, 0)
            for topic, parts in after.items()
            for part, offset in parts.items()
        )
        return f"{taken:,} messages of {', '.join(after)}"
    return until if len(until) <= 80 else f"{until[:80]}…"


def _parse(offset: str | None) -> dict[str, Any]:
    try:
        stored = json.loads(offset or "{}")
    except ValueError:
        return {}
    return stored if isinstance(stored, dict) else {}
