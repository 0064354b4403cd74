"""A moving window per key: count and sum of the last 10 s, corrected as late events arrive.

Point events over 1,000 keys, 1,000 a second; 20 % are late by up to 30 s; a CTI each second lags by 30 s.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Measurement, Suite
from recension.core.batch import CTI, EventBatch, concat, inserts, null_payload
from recension.core.ticks import FOREVER

if TYPE_CHECKING:
    from recension.runners.local import Session

SECOND = 1_000_000
WINDOW, LATENESS, BATCH, KEYS, RATE = 10 * SECOND, 30 * SECOND, 50_000, 1_000, 1_000
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])

_SQL = f"""
    WITH ends AS (
        SELECT key, ts AS t, 1 AS n, value AS s FROM events
        UNION ALL SELECT key, ts + {WINDOW}, -1, -value FROM events
    ), points AS (SELECT key, t, sum(n) AS n, sum(s) AS s FROM ends GROUP BY key, t),
    snapshots AS (
        SELECT key, t, lead(t) OVER w AS until, sum(n) OVER w AS n, sum(s) OVER w AS s
        FROM points WINDOW w AS (PARTITION BY key ORDER BY t)
    ) SELECT * FROM snapshots WHERE n > 0
"""


def events(size: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Times, keys and values in order of arrival, and the arrival times."""
    rng = np.random.default_rng(7)
    ts = np.sort(rng.integers(0, max(1, size // RATE) * SECOND, size))
    arrival = ts + np.where(rng.random(size) < 0.2, rng.integers(0, LATENESS, size), 0)
    order = np.argsort(arrival, kind="stable")
    return ts[order], rng.integers(0, KEYS, size), rng.integers(0, 100, size), arrival[order]


def stream(size: int, in_order: bool = False) -> list[EventBatch]:
    """The elements in batches, a CTI after each second of arrivals and one at the end of time."""
    ts, key, value, arrival = events(size)
    if in_order:
        ts, arrival = np.sort(ts), np.sort(ts)
    payload = pa.record_batch([pa.array(key), pa.array(value)], schema=SCHEMA)
    data = inserts(ts, ts + 1, payload)
    seconds = np.arange(1, int(arrival[-1]) // SECOND + 1) * SECOND
    ctis = _ctis(np.append(seconds - LATENESS, FOREVER))
    due = np.append(np.searchsorted(arrival, seconds), size)
    order = np.argsort(np.concatenate([np.arange(size) + 0.5, due]), kind="stable")
    whole = concat([data, ctis]).take(order)
    return [whole.slice(start, min(start + BATCH, len(whole))) for start in range(0, len(whole), BATCH)]


def _ctis(times: np.ndarray[Any, Any]) -> EventBatch:
    end = np.full(len(times), FOREVER)
    return EventBatch(
        np.full(len(times), CTI, np.uint8), times, end, end, np.zeros(len(times), np.int64),
        null_payload(len(times), SCHEMA),
    )  # fmt: skip


def _batches(size: int, _: Path) -> list[EventBatch]:
    return stream(size)


def session(speculate: str) -> Session:
    """The query as a user writes it; the feed is known to hold inserts only."""
    import recension as rc

    feed = rc.source("feed", SCHEMA, properties=rc.Properties(is_insert_only=True))
    moving = feed.set_duration(WINDOW).group_by("key")
    query = moving.agg(n=rc.count(), s=rc.sum("value"), speculate=speculate)  # type: ignore[arg-type]
    return rc.session(query)


def _net_rows(live: Session) -> int:
    """Final answers: every insert that was not taken back; ends that moved do not matter."""
    return sum(
        int((batch.kind == 0).sum() - ((batch.kind == 1) & (batch.new_ve == batch.vs)).sum())
        for batch in live.read().batches
    )


def _run(speculate: str, batches: list[EventBatch]) -> int:
    live, answers = session(speculate), 0
    for batch in batches:
        live.push("feed", batch)
        answers += _net_rows(live)
    return answers


def _eager(batches: list[EventBatch]) -> int:
    return _run("eager", batches)


def _perfect(batches: list[EventBatch]) -> int:
    return _run("perfect", batches)


def _rows(size: int, _: Path) -> list[tuple[int, int, int]]:
    ts, key, value, _arrival = events(size)
    return list(zip(ts.tolist(), key.tolist(), value.tolist(), strict=True))


def _in_python(rows: list[tuple[int, int, int]]) -> int:
    """The eager algorithm an event at a time: sorted end points per key, each change written out."""
    points: dict[int, list[int]] = {}
    states: dict[int, list[list[int]]] = {}
    output: list[tuple[Any, ...]] = []
    for ts, key, value in rows:
        _insert(points.setdefault(key, []), states.setdefault(key, []), key, ts, ts + WINDOW, value, output)
    return sum(1 if row[0] == "insert" else -1 if row[2] == row[4] else 0 for row in output)


def _insert(
    times: list[int],
    state: list[list[int]],
    key: int,
    vs: int,
    ve: int,
    value: int,
    output: list[tuple[Any, ...]],
) -> None:
    for t in (vs, ve):
        at = bisect_left(times, t)
        if at == len(times) or times[at] != t:
            n, s = state[at - 1] if at else (0, 0)
            if at and n:
                output.append(("retract", key, times[at - 1], times[at], t, n, s))
                output.append(("insert", key, t, times[at], n, s))
            times.insert(at, t)
            state.insert(at, [n, s])
    for at in range(bisect_left(times, vs), bisect_right(times, ve) - 1):
        n, s = state[at]
        if n:
            output.append(("retract", key, times[at], times[at + 1], times[at], n, s))
        state[at] = [n + 1, s + value]
        output.append(("insert", key, times[at], times[at + 1], n + 1, s + value))


def _table(size: int, _: Path) -> pa.Table:
    ts, key, value, _arrival = events(size)
    return pa.table({"ts": ts, "key": key, "value": value})


def _in_duckdb(table: pa.Table) -> int:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("events", table)
        return int(connection.sql(_SQL).to_arrow_table().num_rows)


def notes() -> list[str]:
    """Is the cost of a batch flat, and the state bounded, as the stream goes on?"""
    batches, live, seconds, rows = stream(2_000_000), session("eager"), [], []
    for batch in batches:
        began = time.process_time()
        live.push("feed", batch)
        live.read()
        seconds.append(time.process_time() - began)
        rows.append(live.metrics()[-1].state_rows)
    tenth = len(seconds) // 10
    # The first batches fill the window and the state.
    first, last = (
        1000 * float(np.median(part)) for part in (seconds[2 : 2 + tenth], seconds[-tenth - 1 : -1])
    )
    return [
        f"a batch of {BATCH:,}: {first:.0f} ms in the first tenth of the stream, {last:.0f} ms in the last",
        f"state: at most {max(rows):,} rows, {rows[-2]:,} before the stream is closed, {rows[-1]} after",
    ]


SUITE = Suite(
    "moving_window",
    "W1': moving 10 s count and sum per key, 1,000 keys, 20 % late by up to 30 s, batches of 50,000",
    (
        Measurement(
            "eager",
            _batches,
            _eager,
            sizes=(200_000, 1_000_000, 2_000_000),
            against=("plain Python, an event at a time", "DuckDB, one shot"),
            target=700_000,
            repeats=3,
        ),
        Measurement(
            "perfect",
            _batches,
            _perfect,
            sizes=(200_000, 2_000_000),
            against=("DuckDB, one shot",),
            repeats=3,
        ),
        Measurement("plain Python, an event at a time", _rows, _in_python, sizes=(200_000,), repeats=1),
        Measurement("DuckDB, one shot", _table, _in_duckdb, sizes=(200_000, 2_000_000), repeats=3),
    ),
)
