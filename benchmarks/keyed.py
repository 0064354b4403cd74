"""Keyed sources: rows with ids and versions, a tenth of them out of order, against pandas on the whole table.

Records: each job comes open and comes again with its end. Changes: each row of a key holds until the next.
The engine gets batches with a CTI after each, keeps what may still change and puts out what did. The baseline
sees the whole table at once and keeps nothing.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Measurement, Suite
from recension.core.batch import EventBatch, concat, cti, inserts
from recension.core.ticks import FOREVER

BATCH = 1 << 16
DELAY = 2_000
PAYLOAD = {"key": "int64", "site": "int64", "value": "float64"}
ROWS = pa.schema(
    [("key", pa.int64()), ("site", pa.int64()), ("value", pa.float64()), ("version", pa.int64())]
)
Rows = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], pa.RecordBatch]


def _payload(key: Any, version: Any) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(key), pa.array(key % 97), pa.array(key * 0.5), pa.array(version)], schema=ROWS
    )


def _shuffle(rows: Rows, rng: np.random.Generator) -> Rows:
    """A tenth of the rows come up to 1,000 rows late."""
    start, end, payload = rows
    size = len(start)
    late = np.where(rng.random(size) < 0.1, rng.integers(0, 1_000, size), 0)
    order = np.argsort(np.arange(size) + late, kind="stable")
    return start[order], end[order], payload.take(pa.array(order))


def _records(size: int, live: int) -> Rows:
    """``live`` machines, each with a job that comes open, then with its end."""
    rng = np.random.default_rng(7)
    machine = rng.integers(0, live, size)
    now = np.arange(size, dtype=np.int64)
    order = np.argsort(machine, kind="stable")
    sorted_machine = machine[order]
    first = np.flatnonzero(np.append(True, sorted_machine[1:] != sorted_machine[:-1]))
    nth = np.arange(size) - np.repeat(first, np.diff(np.append(first, size)))
    ends = nth % 2 == 1
    began = np.where(ends, np.append(0, now[order][:-1]), now[order])
    start, end, job, version = (np.empty(size, np.int64) for _ in range(4))
    start[order], end[order] = began, np.where(ends, now[order], FOREVER)
    job[order], version[order] = sorted_machine + live * (nth // 2), nth % 2
    return _shuffle((start, end, _payload(job, version)), rng)


def _changes(size: int, keys: int) -> Rows:
    """Two changes a tick, of keys at random; some of one key at one time."""
    rng = np.random.default_rng(7)
    start = np.arange(size, dtype=np.int64) // 2
    key = rng.integers(0, keys, size)
    key[1::20] = key[::20][: len(key[1::20])]
    payload = _payload(key, np.arange(size, dtype=np.int64))
    payload = payload.set_column(2, ROWS.field(2), pa.array(rng.random(size)))
    return _shuffle((start, np.full(size, FOREVER), payload), rng)


def _batches(make: Any, keys: int, size: int, _: Path) -> list[EventBatch]:
    start, end, payload = make(size, keys)
    found = []
    for at in range(0, size, BATCH):
        rows = inserts(start[at : at + BATCH], end[at : at + BATCH], payload.slice(at, BATCH))
        t = int(start[min(at + BATCH, size) - 1]) if make is _changes else min(at + BATCH, size)
        found.append(concat([rows, cti(t - DELAY, ROWS)]))
    return found


def _run(query: Any, batches: list[EventBatch]) -> int:
    import recension as rc

    live, events = rc.session(query(rc), history_limit=0), 0
    for batch in batches:
        live.push("feed", batch)
        for out in live.read().batches:
            events += int((out.kind == 0).sum()) - int(((out.kind == 1) & (out.new_ve == out.vs)).sum())
    return events


def _record_source(rc: Any) -> Any:
    return rc.source("feed", PAYLOAD, key="key", version="version", forget=4 * DELAY)


def _change_source(rc: Any) -> Any:
    return rc.changes("feed", PAYLOAD, "key", version="version")


def _frame(make: Any, keys: int, size: int, _: Path) -> Any:
    start, end, payload = make(size, keys)
    return payload.to_pandas().assign(start=start, end=end)


def _last_rows(frame: Any) -> int:
    return len(frame.sort_values(["key", "version"]).drop_duplicates("key", keep="last"))


def _until_next(frame: Any) -> int:
    frame = frame.sort_values(["key", "start", "version"]).drop_duplicates(["key", "start"], keep="last")
    return len(frame.assign(end=frame.groupby("key")["start"].shift(-1)))


def _measurements(keys: int) -> tuple[Measurement, ...]:
    name, sizes = f"{keys:,} keys", (1_000_000, 2_000_000)
    return (
        Measurement(
            f"records, {keys:,} live",
            partial(_batches, _records, keys),
            partial(_run, _record_source),
            sizes=sizes,
            against=(f"records, {keys:,} live, pandas",),
            target=500_000,
            repeats=3,
        ),
        Measurement(
            f"records, {keys:,} live, pandas",
            partial(_frame, _records, keys),
            _last_rows,
            sizes=sizes,
            repeats=3,
        ),
        Measurement(
            f"changes, {name}",
            partial(_batches, _changes, keys),
            partial(_run, _change_source),
            sizes=sizes,
            against=(f"changes, {name}, pandas",),
            target=500_000,
            repeats=3,
        ),
        Measurement(
            f"changes, {name}, pandas", partial(_frame, _changes, keys), _until_next, sizes=sizes, repeats=3
        ),
    )


SUITE = Suite(
    "keyed",
    "keyed sources, a tenth of the rows out of order: records and changes by 1,000 and by 500,000 keys",
    (*_measurements(1_000), *_measurements(500_000)),
)
