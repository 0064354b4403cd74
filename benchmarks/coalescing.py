"""Coalescing as fast as it goes: window extents by both schemes, and facts without a window.

200,000 readings, one a tick, of three time-varying and three grouping attributes (3, 5 and 7 groups); half of
them go on with the one before in their group; in order, and with half of them late by up to 200 ticks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Measurement, Suite
from recension.core.batch import EventBatch, cti, inserts
from recension.core.ticks import FOREVER

if TYPE_CHECKING:
    from recension.runners.local import Session

GROUPS = {"ep": 3, "md": 5, "lt": 7}
VALUES = ("h", "t", "v")
SCHEMA = pa.schema([(name, pa.int32()) for name in (*GROUPS, *VALUES)])
SIZE, BATCH, LATENESS, CP = 200_000, 20_000, 200, 0.5
WINDOW = 1_000


def readings(size: int, oop: float, cp: float = CP) -> tuple[np.ndarray[Any, Any], pa.RecordBatch]:
    """Times and payloads in order of arrival."""
    rng = np.random.default_rng(8)
    groups = [rng.integers(0, count, size).astype(np.int32) for count in GROUPS.values()]
    values = []
    for group in groups:
        changes = np.zeros(size, np.int32)
        for number in range(int(group.max()) + 1):
            own = np.flatnonzero(group == number)
            changes[own] = np.cumsum(rng.random(len(own)) >= cp)
        values.append(changes)
    late = np.where(rng.random(size) < oop, rng.integers(1, LATENESS, size), 0)
    order = np.argsort(np.arange(size) + late, kind="stable")
    columns = [pa.array(column[order]) for column in (*groups, *values)]
    return order, pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _batches(oop: float, size: int, _: Path) -> list[EventBatch]:
    """Readings, a tick each."""
    times, payload = readings(size, oop)
    return _with_ctis(times, times + 1, payload)


def _lifetimes(oop: float, size: int, _: Path) -> list[EventBatch]:
    """Each reading true until the next one of its group, which is known beforehand."""
    times, payload = readings(size, oop)
    group = payload.column("ep").to_numpy()
    until = np.full(size, size + 1)
    for number in range(GROUPS["ep"]):
        own = np.flatnonzero(group == number)
        own = own[np.argsort(times[own])]
        until[own[:-1]] = times[own[1:]]
    return _with_ctis(times, until, payload)


def _with_ctis(
    times: np.ndarray[Any, Any], ends: np.ndarray[Any, Any], payload: pa.RecordBatch
) -> list[EventBatch]:
    """A CTI after each batch at the first time still to come, and one at the end of time."""
    size, whole = len(times), inserts(times, ends, payload)
    to_come = np.minimum.accumulate(np.append(times, FOREVER)[::-1])[::-1]
    found: list[EventBatch] = []
    for start in range(0, size, BATCH):
        stop = min(start + BATCH, size)
        found += [whole.slice(start, stop), cti(int(to_come[stop]), SCHEMA)]
    return found


def _extent(kind: str, scheme: str) -> Session:
    import recension as rc

    feed = rc.source("feed", SCHEMA, properties=rc.Properties(is_insert_only=True))
    window = rc.rows(WINDOW, slide=WINDOW) if kind == "rows" else rc.range(WINDOW, slide=WINDOW)
    return rc.session(feed.coalesce(on="h", group_by="ep", window=window, scheme=scheme))  # type: ignore[arg-type]


def _equal() -> Session:
    import recension as rc

    feed = rc.source("feed", SCHEMA, properties=rc.Properties(is_insert_only=True))
    return rc.session(feed.coalesce("h", "ep"))


def _facts(equivalence: Any) -> Session:
    import recension as rc

    feed = rc.source("feed", SCHEMA, properties=rc.Properties(is_insert_only=True))
    return rc.session(feed.edges("ep").coalesce("h", "ep", equivalence))


def _run(make: Any, batches: list[EventBatch]) -> int:
    """The number of answers that stay."""
    live, answers = make(), 0
    for batch in batches:
        live.push("feed", batch)
        for out in live.read().batches:
            answers += int((out.kind == 0).sum())
            answers -= int(((out.kind == 1) & (out.new_ve == out.vs)).sum())
    return answers


def _rows(oop: float, size: int, _: Path) -> list[tuple[int, int, int]]:
    times, payload = readings(size, oop)
    columns = (payload.column(name).to_pylist() for name in ("ep", "h"))
    return list(zip(times.tolist(), *columns, strict=True))


def _in_python(rows: list[tuple[int, int, int]]) -> int:
    """A sorted list, coalesced once a window is over by more than the lateness, which it has to know."""
    kept: list[tuple[int, int, int]] = []
    answers, due = 0, 0
    for row in rows:
        if kept and row < kept[-1]:
            insort(kept, row)
        else:
            kept.append(row)
        while row[0] > due + LATENESS:
            answers, due = answers + _scanned(kept, due), due + WINDOW
    while kept and due <= kept[-1][0] + WINDOW:
        answers, due = answers + _scanned(kept, due), due + WINDOW
    return answers


def _scanned(kept: list[tuple[int, int, int]], slide: int) -> int:
    """The rows of an answer: the runs of the readings in the window; those before it go."""
    del kept[: bisect_left(kept, (slide - WINDOW,))]
    open_runs: dict[int, tuple[int, int]] = {}
    last: dict[int, int] = {}
    rows: list[tuple[int, int, int, int]] = []
    for ts, group, value in kept[: bisect_left(kept, (slide + 1,))]:
        run = open_runs.get(group)
        if run is None or run[0] != value:
            if run is not None:
                rows.append((group, *run, ts))
            open_runs[group] = (value, ts)
        last[group] = ts
    rows += [(group, *run, last[group]) for group, run in open_runs.items()]
    return len(rows)


_BASELINE = "plain Python, a reading at a time"
_SIZES = (SIZE, 2 * SIZE)

SUITE = Suite(
    "coalescing",
    f"coalescing {SIZE:,} readings of 3 groups, half of them equal to the one before; windows of {WINDOW:,}",
    tuple(
        measurement
        for oop, words, target in ((0.0, "in order", 1_000_000), (0.5, "half late", 400_000))
        for measurement in (
            *(
                Measurement(
                    f"{kind}, {scheme}, {words}",
                    partial(_batches, oop),
                    partial(_run, partial(_extent, kind, scheme)),
                    sizes=_SIZES,
                    against=(f"{_BASELINE}, {words}",) if kind == "range" else (),
                    target=target,
                    repeats=3,
                )
                for kind in ("range", "rows")
                for scheme in ("eager", "lazy")
            ),
            Measurement(
                f"over all time, {words}",
                partial(_lifetimes, oop),
                partial(_run, _equal),
                sizes=_SIZES,
                target=target,
                repeats=3,
            ),
            Measurement(
                f"edges, then equal facts as one, {words}",
                partial(_batches, oop),
                partial(_run, partial(_facts, None)),
                sizes=_SIZES[:1],
                repeats=3,
            ),
            Measurement(
                f"edges, then increasing runs, {words}",
                partial(_batches, oop),
                partial(_run, partial(_facts, "increasing")),
                sizes=_SIZES[:1],
                repeats=3,
            ),
            Measurement(f"{_BASELINE}, {words}", partial(_rows, oop), _in_python, sizes=(SIZE,), repeats=1),
        )
    ),
)


def notes() -> list[str]:
    """Eager against lazy at all probabilities: surfaces and selections, see `benchmarks.coalescing_study`."""
    from benchmarks.coalescing_study import study

    return list(study())
