"""The interval join: two streams of lifetimes, matched by key and overlap.

500,000 events a side, 1,000 keys, lifetimes of 1 to 60 s over 5,000 s, 20 % late by up to 30 s.
"""

from __future__ import annotations

import time
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
LATENESS, BATCH, KEYS, RATE = 30 * SECOND, 50_000, 1_000, 100
SIDES = ("left", "right")
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.float64())])

_SQL = """
    SELECT l.key, l.value, r.value AS other, greatest(l.vs, r.vs) AS vs, least(l.ve, r.ve) AS ve
    FROM l JOIN r ON l.key = r.key AND l.vs < r.ve AND r.vs < l.ve
"""


def events(size: int, side: str) -> dict[str, np.ndarray[Any, Any]]:
    """The events of one side in order of arrival."""
    rng = np.random.default_rng([3, SIDES.index(side)])
    vs = np.sort(rng.integers(0, size // 2 // RATE * SECOND, size // 2))
    arrival = vs + np.where(rng.random(len(vs)) < 0.2, rng.integers(0, LATENESS, len(vs)), 0)
    order = np.argsort(arrival, kind="stable")
    return {
        "vs": vs[order],
        "ve": vs[order] + rng.integers(SECOND, 60 * SECOND, len(vs)),
        "key": rng.integers(0, KEYS, len(vs)),
        "value": rng.random(len(vs)),
        "arrival": arrival[order],
    }


def stream(size: int, side: str) -> list[EventBatch]:
    """Batches, each ending with a CTI that lags the arrivals."""
    e = events(size, side)
    payload = pa.record_batch([pa.array(e["key"]), pa.array(e["value"])], schema=SCHEMA)
    whole = inserts(e["vs"], e["ve"], payload)
    batches = []
    for start in range(0, len(whole), BATCH):
        stop = min(start + BATCH, len(whole))
        t = FOREVER if stop == len(whole) else int(e["arrival"][stop - 1]) - LATENESS
        batches.append(concat([whole.slice(start, stop), _cti(t)]))
    return batches


def _cti(t: int) -> EventBatch:
    end = np.array([FOREVER])
    return EventBatch(
        np.array([CTI], np.uint8), np.array([t]), end, end, np.zeros(1, np.int64), null_payload(1, SCHEMA)
    )  # fmt: skip


def _batches(size: int, _: Path) -> list[tuple[str, EventBatch]]:
    sides = [[(side, batch) for batch in stream(size, side)] for side in SIDES]
    return [turn for pair in zip(*sides, strict=True) for turn in pair]


def session() -> Session:
    """The query as a user writes it; the feeds are known to hold inserts only."""
    import recension as rc

    left, right = (rc.source(side, SCHEMA, properties=rc.Properties(is_insert_only=True)) for side in SIDES)
    return rc.session(left.join(right, on="key"))


def _join(turns: list[tuple[str, EventBatch]]) -> int:
    live, rows = session(), 0
    for side, batch in turns:
        live.push(side, batch)
        rows += sum(int((out.kind == 0).sum()) for out in live.read().batches)
    return rows


def _elements(size: int, _: Path) -> list[tuple[int, tuple[Any, ...]]]:
    """(side, element) in order of arrival: a change of an event's end, or a CTI."""
    turns: list[tuple[int, int, tuple[Any, ...]]] = []
    for number, side in enumerate(SIDES):
        e = events(size, side)
        columns = (e["arrival"], e["vs"], e["ve"], e["key"], e["value"])
        for arrival, vs, ve, key, value in zip(*(c.tolist() for c in columns), strict=True):
            turns.append((arrival, number, (vs, vs, ve, {"key": key, "value": value})))
        # A CTI at the end of each batch, as in the stream that is compared with this.
        turns += [(t, number, (t - LATENESS,)) for t in e["arrival"][BATCH - 1 :: BATCH].tolist()]
    return [(side, element) for _, side, element in sorted(turns, key=lambda turn: turn[0])]


def _in_python(elements: list[tuple[int, tuple[Any, ...]]]) -> int:
    """The same algorithm an element at a time: each change from [vs, a) to [vs, b) meets the other side."""
    live: tuple[dict[int, list[Any]], ...] = ({}, {})
    ctis, output = [-LATENESS, -LATENESS], []
    for side, element in elements:
        if len(element) == 1:
            ctis[side] = element[0]
            for bucket in live[1 - side].values():
                bucket[:] = [x for x in bucket if x[1] > element[0]]
            continue
        vs, a, b, payload = element
        key = payload["key"]
        for x_vs, x_ve, x_payload in live[1 - side].get(key, ()):
            start = max(vs, x_vs)
            old, new = max(start, min(a, x_ve)), max(start, min(b, x_ve))
            if old != new:
                pair = (payload, x_payload) if side == 0 else (x_payload, payload)
                joined = {"key": key, "value": pair[0]["value"], "value_right": pair[1]["value"]}
                output.append(("insert" if old == start else "retract", start, old, new, joined))
        bucket = live[side].setdefault(key, [])
        if a > vs and (vs, a, payload) in bucket:
            bucket.remove((vs, a, payload))
        if b > vs and b > ctis[1 - side]:
            bucket.append((vs, b, payload))
    return len(output)


def _tables(size: int, _: Path) -> list[pa.Table]:
    return [
        pa.table({name: events(size, side)[name] for name in ("vs", "ve", "key", "value")}) for side in SIDES
    ]


def _in_duckdb(tables: list[pa.Table]) -> int:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("l", tables[0])
        connection.register("r", tables[1])
        return int(connection.sql(_SQL).to_arrow_table().num_rows)


def notes() -> list[str]:
    """Is the cost of a batch flat, and the state bounded, as the streams go on?"""
    live, seconds, rows = session(), [], []
    for side, batch in _batches(1_000_000, Path()):
        began = time.process_time()
        live.push(side, batch)
        live.read()
        seconds.append(time.process_time() - began)
        rows.append(live.metrics()[-1].state_rows)
    tenth = len(seconds) // 10
    first, last = (1000 * float(np.mean(part)) for part in (seconds[2 : 2 + tenth], seconds[-tenth:]))
    return [
        f"a batch of {BATCH:,}: {first:.0f} ms in the first tenth of the streams, {last:.0f} ms in the last",
        f"state: at most {max(rows):,} rows, {rows[-1]} after the streams are closed",
    ]


SUITE = Suite(
    "interval_join",
    "W2: interval join of two streams on 1,000 keys, lifetimes 1–60 s, 20 % late, batches of 50,000",
    (
        Measurement(
            "join",
            _batches,
            _join,
            sizes=(250_000, 500_000, 1_000_000),
            against=("plain Python, an element at a time", "DuckDB, one shot"),
            target=500_000,
            repeats=3,
        ),
        Measurement("plain Python, an element at a time", _elements, _in_python, sizes=(250_000,), repeats=1),
        Measurement("DuckDB, one shot", _tables, _in_duckdb, sizes=(250_000, 1_000_000), repeats=3),
    ),
)
