"""Aggregates that keep state of their own, per key over tumbling windows, on the data of `moving_window`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.harness import Measurement, Suite
from benchmarks.moving_window import SCHEMA, SECOND, events, stream
from recension.core.batch import EventBatch

if TYPE_CHECKING:
    from recension.runners.local import Session

SIZE = 10 * SECOND
_SIZES = (200_000, 400_000)
_SQL = "SELECT key, ts // {size} AS w, {what} FROM events GROUP BY key, w"


def _batches(size: int, _: Path) -> list[EventBatch]:
    return stream(size)


def _session(what: str) -> Session:
    import recension as rc

    feed = rc.source("feed", SCHEMA, properties=rc.Properties(is_insert_only=True))
    answers: dict[str, Any] = {
        "n_unique": rc.n_unique("value"),
        "any": rc.any(rc.col("value") > 0),
        "arg_max": rc.arg_max("value", by="value"),
        "time_weighted_mean": rc.time_weighted_mean("value"),
        "sum of decimals": rc.sum(rc.col("value").cast(pa.decimal128(21, 2))),
        "sum / count": rc.sum("value") / rc.count(where=rc.col("value") > 0),
    }
    return rc.session(feed.group_by("key").tumbling(SIZE).agg(y=answers[what]))


def _run(what: str, batches: list[EventBatch]) -> int:
    """The number of answers."""
    live, rows = _session(what), 0
    for batch in batches:
        live.push("feed", batch)
        rows += sum(int((out.kind == 0).sum()) - int((out.kind == 1).sum()) for out in live.read().batches)
    return rows


def _table(size: int, _: Path) -> pa.Table:
    ts, key, value, _arrival = events(size)
    return pa.table({"ts": ts, "key": key, "value": value})


def _in_duckdb(what: str, table: pa.Table) -> int:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("events", table)
        return int(connection.sql(_SQL.format(size=SIZE, what=what)).to_arrow_table().num_rows)


def _pair(what: str, sql: str) -> tuple[Measurement, Measurement]:
    other = f"{what}, DuckDB, one shot"
    own = Measurement(what, _batches, partial(_run, what), sizes=_SIZES, against=(other,), repeats=3)
    return own, Measurement(other, _table, partial(_in_duckdb, sql), sizes=_SIZES[:1], repeats=3)


SUITE = Suite(
    "aggregates",
    "everyday aggregates per key over tumbling windows of 10 s, 20 % late",
    (
        *_pair("n_unique", "count(DISTINCT value)"),
        *_pair("any", "bool_or(value > 0)"),
        *_pair("arg_max", "arg_max(value, value)"),
        *_pair("time_weighted_mean", "avg(value)"),
        *_pair("sum of decimals", "sum(value::DECIMAL(21, 2))"),
        *_pair("sum / count", "sum(value) / count(*) FILTER (value > 0)"),
    ),
)
