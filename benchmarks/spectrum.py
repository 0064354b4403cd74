"""The trade of the consistency spectrum: how soon, how often, how much, and at the price of what.

A moving 10 s count per key over disordered events, at a grid of (block, remember), for the variants of the
aggregate and for `cleanse`. Times are application time on the clock of the arrivals.

Source      Operator Algorithm Design, theorems 8 and 9; the consistency triangle of both CEDR papers.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Measurement, Suite
from recension.core.batch import INSERT, EventBatch, concat, cti, inserts
from recension.core.ticks import FOREVER

SECOND = 1_000_000
WINDOW, LATENESS, BATCH, KEYS, RATE = 10 * SECOND, 30 * SECOND, 1_000, 50, 200
_MANY = 50_000
SCHEMA = pa.schema([("key", pa.int64())])
Turns = list[tuple[int, EventBatch]]


def _turns(size: int, _: Path) -> Turns:
    """Batches with the time on the clock when they have come, each ending with a CTI that lags."""
    import numpy as np

    rng = np.random.default_rng(11)
    ts = np.sort(rng.integers(0, size // RATE * SECOND, size))
    arrival = ts + np.where(rng.random(size) < 0.2, rng.integers(0, LATENESS, size), 0)
    order = np.argsort(arrival, kind="stable")
    ts, arrival, key = ts[order], arrival[order], rng.integers(0, KEYS, size)
    turns: Turns = []
    for start in range(0, size, BATCH):
        rows = slice(start, start + BATCH)
        data = inserts(ts[rows], ts[rows] + 1, pa.record_batch([pa.array(key[rows])], schema=SCHEMA))
        now = int(arrival[min(start + BATCH, size) - 1])
        turns.append((now, concat([data, cti(now - LATENESS, SCHEMA)])))
    return [*turns, (int(arrival[-1]) + LATENESS, cti(FOREVER, SCHEMA))]


def _query(name: str) -> Any:
    import recension as rc

    moving = rc.source("feed", SCHEMA).set_duration(WINDOW)
    if name in ("eager", "ordered", "perfect"):
        return moving.group_by("key").agg(n=rc.count(), speculate=name)  # type: ignore[arg-type]
    if name == "cleanse":
        return moving.group_by("key").agg(n=rc.count()).cleanse()
    block, remember = (FOREVER if part == "∞" else int(part) * SECOND for part in name.split("/"))
    counted = moving.group_by("key").agg(n=rc.count())
    return counted.consistency(rc.MIDDLE, block=block, remember=remember)


def _held(size: int, _: Path) -> list[EventBatch]:
    """All events first, then CTIs that make a hundred of them final each."""
    at = np.arange(size)
    payload = pa.RecordBatch.from_arrays([pa.array(at % KEYS)], schema=SCHEMA)
    events = inserts(at, at + 5, payload)
    parts = [events.slice(start, min(start + _MANY, size)) for start in range(0, size, _MANY)]
    return [*parts, *(cti(t, SCHEMA) for t in range(105, size, 100)), cti(FOREVER, SCHEMA)]


def _cleanse(batches: list[EventBatch]) -> int:
    import recension as rc

    live = rc.session(rc.source("feed", SCHEMA, properties=rc.Properties(is_insert_only=True)).cleanse())
    events = 0
    for batch in batches:
        live.push("feed", batch)
        events += sum(int((out.kind == INSERT).sum()) for out in live.read().batches)
    return events


class Watch:
    """What a reader of the output sees, and when."""

    def __init__(self) -> None:
        self.first: dict[tuple[int, int], int] = {}
        self.ends: dict[tuple[int, int], int] = {}
        self.final: list[int] = []
        self.inserts = self.retractions = self.state = 0

    def see(self, batch: EventBatch, now: int) -> None:
        """Elements that came out when the clock showed ``now``."""
        keys = batch.payload.column("key").to_pylist()
        rows = zip(
            batch.kind.tolist(),
            keys,
            batch.vs.tolist(),
            batch.ve.tolist(),
            batch.new_ve.tolist(),
            strict=True,
        )
        for kind, key, vs, ve, new_ve in rows:
            if kind > 1:
                self._settle(vs, now)
                continue
            self.inserts += kind == INSERT
            self.retractions += kind != INSERT
            end = ve if kind == INSERT else new_ve
            self.first.setdefault((key, vs), now)
            if end == vs:
                self.ends.pop((key, vs), None)
            else:
                self.ends[key, vs] = end

    def _settle(self, t: int, now: int) -> None:
        done = [at for at, end in self.ends.items() if end <= t]
        self.final += [now - self.ends.pop(at) for at in done]


def _watch(name: str, turns: Turns) -> tuple[Watch, int]:
    import recension as rc

    live, watch = rc.session(_query(name)), Watch()
    for now, batch in turns:
        live.push("feed", batch)
        for out in live.read().batches:
            watch.see(out, now)
        watch.state = max(watch.state, sum(m.state_rows for m in live.metrics()))
    return watch, sum(m.dropped for m in live.metrics())


def _run(name: str, turns: Turns) -> int:
    import recension as rc

    live, answers = rc.session(_query(name)), 0
    for _, batch in turns:
        live.push("feed", batch)
        for out in live.read().batches:
            gone = (out.kind == 1) & (out.new_ve == out.vs)
            answers += int((out.kind == INSERT).sum()) - int(gone.sum())
    return answers


CORNERS = ("0/0", "0/10", "0/∞", "10/10", "10/∞", "∞/10", "∞/∞")
VARIANTS = ("eager", "ordered", "perfect", "cleanse")


def notes() -> list[str]:
    """The trade itself: medians over all answers, in seconds of application time."""
    turns = _turns(20_000, Path())
    lines = ["                 first answer  final answer   inserts  retractions  state rows  events lost"]
    for name in (*VARIANTS, *CORNERS):
        watch, lost = _watch(name, turns)
        first = median(now - vs for (_, vs), now in watch.first.items()) / SECOND
        final = median(watch.final) / SECOND if watch.final else float("nan")
        label = name if name in VARIANTS else f"{name} (block/remember)"
        counts = f"{watch.inserts:9,} {watch.retractions:12,} {watch.state:11,} {lost:12,}"
        lines.append(f"{label:22} {first:6.1f} s {final:11.1f} s {counts}")
    return lines


LEVELS = tuple(
    Measurement(
        name,
        _turns,
        partial(_run, name),
        sizes=(20_000, 40_000),
        against=() if name == "eager" else ("eager",),
        repeats=1,
    )
    for name in ("eager", "ordered", "perfect", "cleanse", "0/∞", "∞/∞")
)
HELD = Measurement(
    "cleanse, all held, 100 a CTI", _held, _cleanse, sizes=(250_000, 500_000, 1_000_000), repeats=1
)
SUITE = Suite(
    "spectrum",
    "The consistency spectrum: a moving 10 s count per key, 20 % late by up to 30 s, batches of 1,000",
    (*LEVELS, HELD),
)
