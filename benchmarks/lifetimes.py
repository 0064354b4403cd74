"""What each job costs: its duration times its rate, while jobs begin without an end and end later.

Every job is an insert that never ends, then a retraction that says when it does. About 50,000 jobs run at a
time; one in 100,000 never ends. A CTI after every batch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Measurement, Suite
from recension.core.batch import INSERT, RETRACT, EventBatch, concat, cti, take_rows
from recension.core.ticks import FOREVER

if TYPE_CHECKING:
    import recension as rc

_MILLION = 1_000_000
BATCH, RUNNING = 50_000, 50_000
SCHEMA = pa.schema([("job", pa.int64()), ("rate", pa.float64())])


def _jobs(size: int, _: Path) -> list[EventBatch]:
    """So many elements in order of time."""
    rng, jobs = np.random.default_rng(3), size // 2
    start = np.arange(jobs)
    end = start + rng.integers(1, 2 * RUNNING, jobs)
    job, ends = np.append(start, start), np.repeat([False, True], jobs)
    time = np.where(ends, end[job], start[job])
    order = np.argsort(time, kind="stable")
    order = order[~(ends[order] & (job[order] % 100_000 == 7))]
    job, ends, time = job[order], ends[order], time[order]
    rates = pa.array(rng.random(jobs))
    payload = take_rows(pa.RecordBatch.from_arrays([pa.array(start), rates], schema=SCHEMA), job)
    forever = np.full(len(job), FOREVER)
    kind = np.where(ends, RETRACT, INSERT).astype(np.uint8)
    new_ve = np.where(ends, end[job], forever)
    feed = EventBatch(kind, start[job], forever, new_ve, np.zeros(len(job), np.int64), payload)
    cuts = [(at, min(at + BATCH, len(feed))) for at in range(0, len(feed), BATCH)]
    return [concat([feed.slice(at, to), cti(int(time[to - 1]), SCHEMA)]) for at, to in cuts]


def _costs(feed: rc.Stream) -> rc.Stream:
    import recension as rc

    return feed.with_columns(cost=rc.lifetime() * rc.col("rate"))


def _feed() -> rc.Stream:
    import recension as rc

    return rc.source("jobs", SCHEMA, properties=rc.Properties(is_shrink_only=True))


def _run(query: rc.Stream, batches: list[EventBatch]) -> int:
    """How many jobs have ended and a cost."""
    import recension as rc

    live, ended = rc.session(query), 0
    for batch in batches:
        live.push("jobs", batch)
        for out in live.read().batches:
            ended += int(((out.kind == INSERT) & (out.ve < FOREVER)).sum())
    return ended


def _all_jobs(batches: list[EventBatch]) -> int:
    return _run(_costs(_feed()), batches)


def _ended_jobs(batches: list[EventBatch]) -> int:
    import recension as rc

    return _run(_costs(_feed()).with_lifetime(rc.end(), rc.end() + 1), batches)


def _by_element(batches: list[EventBatch]) -> int:
    """Costs in a dictionary."""
    costs: dict[Any, float | None] = {}
    for batch in batches:
        rows = batch.payload.to_pydict()
        columns = (batch.kind.tolist(), batch.vs.tolist(), batch.new_ve.tolist(), rows["job"], rows["rate"])
        for kind, vs, new_ve, job, rate in zip(*columns, strict=True):
            if kind == INSERT:
                costs[vs, job] = None
            elif kind == RETRACT:
                costs[vs, job] = (new_ve - vs) * rate
    return sum(cost is not None for cost in costs.values())


_BASELINE = "plain Python, an element at a time"

SUITE = Suite(
    "lifetimes",
    "What each job costs, duration times rate, 50,000 jobs running",
    (
        Measurement(
            "all jobs, ctis wait for those that run",
            _jobs,
            _all_jobs,
            sizes=(500_000, _MILLION, 2 * _MILLION),
            against=(_BASELINE,),
            target=_MILLION,
            repeats=3,
        ),
        Measurement(
            "jobs that have ended, nothing waits",
            _jobs,
            _ended_jobs,
            sizes=(500_000, _MILLION),
            against=(_BASELINE,),
            target=_MILLION,
            repeats=3,
        ),
        Measurement(_BASELINE, _jobs, _by_element, sizes=(500_000, _MILLION, 2 * _MILLION), repeats=3),
    ),
)
