"""Due: events that begin in the future, held until their time has come; floats, text keys, nothing declared.

Every event is told of `AHEAD` ticks before it begins, a tenth of them a little out of order: so many are held
all the way. These are rows of the suite of patterns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from benchmarks.harness import Measurement
from recension.core.batch import RETRACT, EventBatch, concat, cti, inserts
from recension.core.ticks import FOREVER

_MILLION = 1_000_000
BATCH, AHEAD, LATE = 50_000, 200_000, 1_000
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.float64())])
Query: TypeAlias = Callable[[Any], Any]


def _events(size: int, seed: int = 7) -> EventBatch:
    """One a tick, mostly in order."""
    rng = np.random.default_rng(seed)
    late = np.where(rng.random(size) < 0.1, rng.integers(0, LATE, size), 0)
    start = np.arange(size) - late
    key = pa.array([f"key-{n}" for n in range(100_000)]).take(pa.array(rng.integers(0, 100_000, size)))
    payload = pa.RecordBatch.from_arrays([key, pa.array(rng.random(size))], schema=SCHEMA)
    return inserts(start, start + 2 * AHEAD, payload)


def _batches(size: int, _: Path) -> list[EventBatch]:
    events, batches = _events(size), []
    for at in range(0, size, BATCH):
        part = events.slice(at, min(at + BATCH, size))
        t = FOREVER if at + BATCH >= size else int(part.vs[-1]) - 2 * LATE
        batches.append(concat([part, cti(t, SCHEMA)]))
    return batches


def _run(query: Query, batches: list[EventBatch]) -> int:
    import recension as rc

    live, events = rc.session(query(rc.source("feed", batches[0].schema)), history_limit=0), 0
    for batch in batches:
        live.push("feed", batch)
        for out in live.read().batches:
            events += int((out.kind == 0).sum()) - int(((out.kind == RETRACT) & (out.new_ve == out.vs)).sum())
    return events


def _heap(batches: list[EventBatch]) -> int:
    """What one would write by hand: without keys, values, changes and snapshots."""
    held, now, shown = list[int](), 0, 0
    for batch in batches:
        for start in batch.vs[batch.kind == 0].tolist():
            now = max(now, start)
            heappush(held, start + AHEAD)
        now = max(now, int(batch.vs[-1]))
        while held and held[0] <= now:
            heappop(held)
            shown += 1
    return shown


def late_rows() -> str:
    """1,000 late rows, and what they cost with 16 times as many events held."""
    few, many = (_late_cost(held) for held in (100_000, 1_600_000))
    return (
        f"due: {LATE:,} late rows take {1000 * few:.1f} ms beside 100,000 that are held, "
        f"{1000 * many:.1f} ms beside 1,600,000: {many / few:.2f} times as long"
    )


def _late_cost(held: int) -> float:
    import recension as rc

    rng, source = np.random.default_rng(3), rc.source("feed", SCHEMA)
    live, whole = rc.session(source.shift(2 * held).due(by=source), history_limit=0), _events(held)
    for at in range(0, held, BATCH):
        live.push("feed", whole.slice(at, min(at + BATCH, held)))
    costs = []
    for _ in range(60):
        start = np.sort(rng.integers(0, held, LATE))
        late = inserts(start, start + 5, whole.payload.take(pa.array(start)))
        began = time.process_time()
        live.push("feed", late)
        live.read()
        costs.append(time.process_time() - began)
    return float(np.mean(np.sort(costs)[5:-5]))


QUERIES: Final[dict[str, Query]] = {
    "due": lambda feed: feed.shift(AHEAD).due(),
    "due by another stream": lambda feed: feed.shift(AHEAD).due(by=feed),
    "due by another stream, ahead": lambda feed: feed.shift(AHEAD).due(by=feed, ahead=LATE),
}
_BASELINES: Final[dict[str, Callable[[Any], int]]] = {
    "the same, not held": partial(_run, lambda feed: feed.shift(AHEAD)),
    "a heap of starts in Python": _heap,
}


def _measured(name: str, run: Callable[[Any], int], target: float | None, *against: str) -> Measurement:
    sizes = (_MILLION, 2 * _MILLION)
    return Measurement(name, _batches, run, sizes=sizes, against=against, target=target, repeats=3)


MEASUREMENTS: Final = (
    *(_measured(name, partial(_run, query), 2 * _MILLION, *_BASELINES) for name, query in QUERIES.items()),
    *(_measured(name, run, None) for name, run in _BASELINES.items()),
)
