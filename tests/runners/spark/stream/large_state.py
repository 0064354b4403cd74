"""A query with much live state as a program of its own: ``large_state.py FOLDER INPUT MASTER``.

The first files of INPUT fill the state; then come small ones, which insert, retract, and let some expire. The
query groups by a key of which there is one for two events, and its answers once more, so that the little that
comes out depends on the count of every single key.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.runners.spark.stream.driver import put

import recension as rc
from recension.api.stream import Stream
from recension.core.batch import RETRACT, EventBatch, concat, cti, inserts
from recension.core.history import History
from recension.core.reconstitution import HistoryBuilder
from recension.runners.spark.stream.metrics import shard_reports

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int64())])
LOADS, TURNS, SHARDS = 10, 10, 2
TURN = "micro-batch"
_LATE = 1000


def query() -> Stream:
    """Counts and sums by key, then the counts, their squares and the sums by what the key leaves."""
    by_key = rc.source("s", SCHEMA).group_by("k").agg(n=rc.count(), x=rc.sum("x"), speculate="eager")
    known = by_key.with_columns(g=rc.col("k") % 500, q=rc.col("n") * rc.col("n"))
    return known.group_by("g").agg(n=rc.sum("n"), q=rc.sum("q"), x=rc.sum("x"), speculate="eager")


def inputs(live: int) -> Iterator[EventBatch]:
    """The files: one for each tick."""
    rng, first = np.random.default_rng(18), None
    for now in range(LOADS):
        loaded = _events(rng, now, live // LOADS, live)
        first = first or loaded
        yield concat([loaded, cti(now, SCHEMA)])
    assert first is not None
    lasting = first.take(np.flatnonzero(first.ve >= _LATE))
    size = max(10, live // 2000)
    for turn in range(TURNS):
        fresh = _events(rng, LOADS + turn, 2 * size, live)
        old = lasting.slice(turn * size, (turn + 1) * size)
        yield concat([fresh, _shortened(old), cti(LOADS + turn, SCHEMA)])


def _events(rng: np.random.Generator, now: int, size: int, live: int) -> EventBatch:
    """Most end late, and a few within the next ticks."""
    soon = now + 1 + rng.integers(0, LOADS + TURNS, size)
    ve = np.where(rng.random(size) < 0.02, soon, _LATE + 100 * rng.integers(0, 4, size))
    payload = pa.record_batch({"k": rng.integers(0, live // 2, size), "x": rng.integers(-99, 99, size)})
    return inserts(np.full(size, now), ve, payload)


def _shortened(events: EventBatch) -> EventBatch:
    kinds = np.full_like(events.kind, RETRACT)
    return replace(events, kind=kinds, new_ve=events.ve - 50)


def write_inputs(folder: Path, live: int) -> History:
    """Put all files there; the history that must come of them, by the local engine."""
    session, answers = rc.session(query(), history_limit=0), HistoryBuilder(query().schema)
    for number, batch in enumerate(inputs(live)):
        put(folder, number, batch)
        session.push("s", batch)
        for answer in session.read().batches:
            answers.add(answer)
    return answers.build()


def start(spark: Any, folder: Path, source: Path) -> Any:
    """Start or go on with the query."""
    answers = rc.spark.stream(spark, query(), {"s": str(source)}, shards=SHARDS, files_per_batch=1)
    where: dict[str, Any] = {"history": folder / "table", "checkpoint": folder / "ck"}
    return rc.spark.write(answers, **where, trigger={"availableNow": True})


def main() -> None:
    folder, source, master = sys.argv[1:]
    settings = {"spark__driver__memory": "2g", "spark__executor__memory": "2g"}
    spark = rc.spark.session(master, "large state", **settings)
    running = start(spark, Path(folder), Path(source))
    running.awaitTermination()
    for progress in running.recentProgress:
        reports = [report for _, report in shard_reports(progress)]
        loading = [round(report["load_seconds"], 2) for report in reports]
        print(TURN, progress["batchId"], progress["durationMs"]["triggerExecution"], "ms, loading", loading)
    spark.stop()


if __name__ == "__main__":
    main()
