"""Due: events that begin in the future, held until their time has come; floats, text keys, nothing declared.

Every event is told of `AHEAD` ticks before it begins, a tenth of them a little out of order. In
two rows batches of late events come while little or much is held.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from benchmarks.harness import Measurement, Suite
from recension.core.batch import RETRACT, EventBatch, concat, cti, inserts

_MILLION = 1_000_000
BATCH, AHEAD, LATE = 1 << 16, 200_000, 1_000
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.float64())])
Query: TypeAlias = Callable[[Any], Any]


def _events(size: int, seed: int = 7) -> EventBatch:
    """One a tick, mostly in order."""
    rng = np.random.default_rng(seed)
    late = np.where(rng.random(size) < 0.1, rng.integers(0, LATE, size), 0)
    start = np.arange(size) - late
    key = pa.array(np.char.add("key-", rng.integers(0, 100_000, size).astype(str)))
    payload = pa.RecordBatch.from_arrays([key, pa.array(rng.random(size))], schema=SCHEMA)
    return inserts(start, start + 2 * AHEAD, payload)


def _batches(size: int, _: Path) -> list[EventBatch]:
    events = _events(size)
    parts = [events.slice(at, min(at + BATCH, size)) for at in range(0, size, BATCH)]
    return [concat([part, cti(int(part.vs[-1]) - 2 * LATE, SCHEMA)]) for part in parts]


def _run(query: Query, batches: list[EventBatch]) -> int:
    import recension as rc

    live, events = rc.session(query(rc.source("feed", batches[0].schema)), history_limit=0), 0
    for batch in batches:
        live.push("feed", batch)
        for out in live.read().batches:
            events += int((out.kind == 0).sum()) - int(((out.kind == RETRACT) & (out.new_ve == out.vs)).sum())
    return events


class Held:
    """A session that holds so many events, and small batches to come."""

    def __init__(self, held: int, size: int, _: Path) -> None:
        import recension as rc

        rng, source = np.random.default_rng(3), rc.source("feed", SCHEMA)
        self.live = rc.session(source.shift(2 * held).due(by=source), history_limit=0)
        whole = _events(held)
        for at in range(0, held, BATCH):
            self.live.push("feed", whole.slice(at, min(at + BATCH, held)))
        self.batches: list[EventBatch] = []
        for _number in range(size // LATE):
            start = np.sort(rng.integers(0, held, LATE))
            self.batches.append(inserts(start, start + 5, whole.payload.take(pa.array(start))))

    @staticmethod
    def feed(held: Held) -> int:
        """Small batches, all of the past."""
        for batch in held.batches:
            held.live.push("feed", batch)
        return sum(map(len, held.batches))


def _measured(
    name: str, query: Query, load: Any = _batches, target: float | None = 2 * _MILLION
) -> Measurement:
    return Measurement(
        name, load, partial(_run, query), sizes=(_MILLION, 2 * _MILLION), target=target, repeats=3
    )


SUITE = Suite(
    "due",
    f"Due: alerts told {AHEAD:,} ticks ahead; batches of {BATCH:,}, and of {LATE:,} late rows",
    (
        _measured("by its own ctis", lambda feed: feed.shift(AHEAD).due()),
        _measured("by another stream", lambda feed: feed.shift(AHEAD).due(by=feed)),
        _measured("by another stream, ahead", lambda feed: feed.shift(AHEAD).due(by=feed, ahead=LATE)),
        _measured("the same without due", lambda feed: feed.shift(AHEAD), target=None),
        Measurement(
            "late rows, 100,000 held", partial(Held, 100_000), Held.feed, sizes=(100_000,), repeats=3
        ),
        Measurement(
            "late rows, 1,600,000 held", partial(Held, 1_600_000), Held.feed, sizes=(100_000,), repeats=3
        ),
    ),
)
