"""Sessions per user: how many clicks, and what they cost, with a gap of 30 minutes; late clicks unite them.

Visits of four clicks on average, some minutes apart, of 1,000 or of 500,000 users with names as keys. Visits
begin evenly over time, so that there are always as many at once as there are users, halved. 20 % of the
clicks are late by up to 10 minutes; a CTI after every batch lags by as much. ``revised``: one click in ten is
taken back in the batch after.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Measurement, Suite
from recension.core.batch import CTI, INSERT, RETRACT, EventBatch, concat, inserts, null_payload, take_rows
from recension.core.ticks import FOREVER

if TYPE_CHECKING:
    from recension.runners.local import Session

MINUTE = 60_000_000
GAP, LATENESS, BATCH, CLICKS = 30 * MINUTE, 10 * MINUTE, 50_000, 4
FEW, MANY = 1_000, 500_000
SCHEMA = pa.schema([("user", pa.string()), ("cost", pa.float64())])

_SQL = f"""
    WITH marked AS (
        SELECT user, cost, ts,
            CASE WHEN ts < max(ts + 1) OVER (PARTITION BY user ORDER BY ts
                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) + {GAP} THEN 0 ELSE 1 END AS begins
        FROM clicks
    ), numbered AS (
        SELECT user, cost, ts, sum(begins) OVER (PARTITION BY user ORDER BY ts
            ROWS UNBOUNDED PRECEDING) AS session
        FROM marked
    )
    SELECT user, min(ts) AS vs, max(ts) + 1 AS ve, count(*) AS n, sum(cost) AS cost
    FROM numbered GROUP BY user, session
"""


def clicks(users: int, size: int) -> tuple[pa.Table, np.ndarray[Any, Any]]:
    """The clicks in order of arrival, and when each arrives."""
    rng = np.random.default_rng(5)
    visits = size // CLICKS
    # Of half of the users there is always a visit under way, or there was one less than a gap ago.
    span = max(visits * 2 * (GAP + CLICKS * 5 * MINUTE) // users, MINUTE)
    visit = rng.integers(0, visits, size)
    start, user = rng.integers(0, span, visits), rng.integers(0, users, visits)
    ts = start[visit] + rng.integers(0, CLICKS * 5 * MINUTE, size)
    arrival = ts + np.where(rng.random(size) < 0.2, rng.integers(0, LATENESS, size), 0)
    order = np.argsort(arrival, kind="stable")
    names = pa.array([f"user {i:06}" for i in range(users)])
    table = {"ts": ts[order], "user": names.take(pa.array(user[visit][order])), "cost": rng.random(size)}
    return pa.table(table), arrival[order]


def _feed(users: int, revised: bool, size: int, _: Path) -> list[EventBatch]:
    table, arrival = clicks(users, size)
    payload = table.select(SCHEMA.names).combine_chunks().to_batches()[0]
    ts = table["ts"].to_numpy()
    data, batches = inserts(ts, ts + 1, payload), []
    taken = np.zeros(0, np.int64)
    for first in range(0, size, BATCH):
        stop = min(first + BATCH, size)
        parts = [data.slice(first, stop)]
        if len(taken):
            parts.append(_retractions(ts[taken], take_rows(payload, taken)))
        last = stop == size
        t = FOREVER if last else int(arrival[stop]) - 2 * LATENESS
        batches.append(concat([*parts, _cti(t)]))
        if revised and not last:
            fresh = np.arange(first, stop)
            taken = fresh[(fresh % 10 == 0) & (ts[fresh] >= t)]
    return batches


def _retractions(vs: np.ndarray[Any, Any], payload: pa.RecordBatch) -> EventBatch:
    kind, none = np.full(len(vs), RETRACT, np.uint8), np.zeros(len(vs), np.int64)
    return EventBatch(kind, vs, vs + 1, vs, none, payload)


def _cti(t: int) -> EventBatch:
    end, none = np.array([FOREVER]), np.zeros(1, np.int64)
    return EventBatch(np.array([CTI], np.uint8), np.array([t]), end, end, none, null_payload(1, SCHEMA))


def _session(speculate: Any, declared: bool) -> Session:
    import recension as rc

    known = rc.Properties(is_insert_only=True) if declared else None
    feed = rc.source("feed", SCHEMA, properties=known)
    sessions = feed.group_by("user").sessions(GAP)
    return rc.session(sessions.agg(n=rc.count(), cost=rc.sum("cost"), speculate=speculate))


def _run(batches: list[EventBatch], speculate: str = "perfect", declared: bool = False) -> int:
    """The number of sessions at the end."""
    live, answers = _session(speculate, declared), 0
    for batch in batches:
        live.push("feed", batch)
        for out in live.read().batches:
            answers += int((out.kind == INSERT).sum()) - int((out.kind == RETRACT).sum())
    return answers


def _table(users: int, size: int, _: Path) -> pa.Table:
    return clicks(users, size)[0]


def _in_duckdb(table: pa.Table) -> int:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("clicks", table)
        return int(connection.sql(_SQL).to_arrow_table().num_rows)


def _in_pandas(table: pa.Table) -> int:
    frame = table.to_pandas().sort_values(["user", "ts"], kind="stable")
    begins = (frame["user"] != frame["user"].shift()) | (frame["ts"] > frame["ts"].shift() + GAP)
    groups = frame.groupby(["user", begins.cumsum()], sort=False)
    return len(groups.agg(vs=("ts", "min"), ve=("ts", "max"), n=("ts", "size"), cost=("cost", "sum")))


def _measurements(users: int, target: float | None) -> tuple[Measurement, ...]:
    sizes, of = (500_000, 1_000_000, 2_000_000), f"{users:,} users"
    feed = partial(_feed, users, False)
    baselines = (f"DuckDB, one shot, {of}", f"pandas, one shot, {of}")
    return (
        Measurement(f"sessions, {of}", feed, _run, sizes, against=baselines, target=target, repeats=3),
        Measurement(
            f"sessions, insert-only, {of}",
            feed,
            partial(_run, declared=True),
            sizes[1:2],
            against=baselines,
            repeats=3,
        ),
        Measurement(f"sessions, eager, {of}", feed, partial(_run, speculate="eager"), sizes[1:2], repeats=3),
        Measurement(f"sessions, revised, {of}", partial(_feed, users, True), _run, sizes[1:2], repeats=3),
        Measurement(baselines[0], partial(_table, users), _in_duckdb, sizes, repeats=3),
        Measurement(baselines[1], partial(_table, users), _in_pandas, sizes, repeats=3),
    )


SUITE = Suite(
    "sessions",
    "sessions of 30 minutes: count and sum of a float per user by name, 20 % late; undeclared unless named",
    (*_measurements(FEW, 500_000), *_measurements(MANY, 500_000)),
)
