"""Windows per key on the data of `moving_window`: hopping 10 s / 2 s, tumbling 10 s in order."""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from benchmarks.harness import Measurement, Suite
from benchmarks.moving_window import SCHEMA, SECOND, events, stream
from recension.core.batch import EventBatch
from recension.plan.node import Speculate

if TYPE_CHECKING:
    from recension.runners.local import Session

SIZE, HOP, COUNT = 10 * SECOND, 2 * SECOND, 10
_MILLION, _SOME, _TIMES = 1_000_000, 400_000, 7

_SQL = """
    SELECT key, w, count(*) AS n, sum(value) AS s
    FROM (SELECT key, value, unnest(range(ts // {hop} - {panes} + 1, ts // {hop} + 1)) AS w FROM events)
    GROUP BY key, w
"""


def _batches(size: int, _: Path) -> list[EventBatch]:
    return stream(size)


def _in_order(size: int, _: Path) -> list[EventBatch]:
    return stream(size, in_order=True)


def _hopping(hop: int = HOP, size: int = SIZE, speculate: Speculate = "perfect") -> Session:
    import recension as rc

    feed = rc.source("feed", SCHEMA, properties=rc.Properties(is_insert_only=True))
    return rc.session(
        feed.group_by("key").hopping(size, hop).agg(n=rc.count(), s=rc.sum("value"), speculate=speculate)
    )


def _tumbling() -> Session:
    import recension as rc

    feed = rc.source("feed", SCHEMA, properties=rc.Properties(is_insert_only=True, is_ordered=True))
    return rc.session(feed.group_by("key").tumbling(SIZE).agg(n=rc.count()))


def _counted() -> Session:
    import recension as rc

    feed = rc.source("feed", SCHEMA, properties=rc.Properties(is_insert_only=True))
    windows = feed.group_by("key").count_window(COUNT)
    return rc.session(windows.agg(n=rc.count(), s=rc.sum("value")))


def _run(make: Any, batches: list[EventBatch], *, is_net: bool = True) -> int:
    """The number of answers; with what was taken back and put right, if not net."""
    live, answers = make(), 0
    for batch in batches:
        live.push("feed", batch)
        for out in live.read().batches:
            retractions = int((out.kind == 1).sum())
            answers += int((out.kind == 0).sum()) + (-retractions if is_net else retractions)
    return answers


def _run_recorded(batches: list[EventBatch]) -> int:
    """The same while its source and its answer are recorded."""
    import recension as rc

    with TemporaryDirectory() as folder:
        live = _hopping()
        with rc.record(live, folder, limit="64MB"):
            return _run(lambda: live, batches)


def _rows(size: int, _: Path) -> list[tuple[int, int, int]]:
    ts, key, value, _arrival = events(size)
    return list(zip(ts.tolist(), key.tolist(), value.tolist(), strict=True))


def _in_python(rows: list[tuple[int, int, int]]) -> int:
    """Every window of every event, an event at a time."""
    windows: dict[tuple[int, int], list[int]] = {}
    for ts, key, value in rows:
        last = ts // HOP
        for window in range(last - SIZE // HOP + 1, last + 1):
            state = windows.setdefault((key, window), [0, 0])
            state[0] += 1
            state[1] += value
    return len(windows)


def _table(size: int, _: Path) -> pa.Table:
    ts, key, value, _arrival = events(size)
    return pa.table({"ts": ts, "key": key, "value": value})


def _table_in_order(size: int, _: Path) -> pa.Table:
    table = _table(size, _)
    return table.set_column(0, "ts", table["ts"].sort())


def _in_duckdb(hop: int, table: pa.Table) -> int:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("events", table)
        return int(connection.sql(_SQL.format(hop=hop, panes=SIZE // hop)).to_arrow_table().num_rows)


def _counted_in_python(rows: list[tuple[int, int, int]]) -> int:
    """Count windows of all the events, known beforehand: a deque per key over sorted starts."""
    starts: dict[int, dict[int, list[int]]] = {}
    for ts, key, value in rows:
        state = starts.setdefault(key, {}).setdefault(ts, [0, 0])
        state[0] += 1
        state[1] += value
    answers: list[tuple[int, int]] = []
    for moments in starts.values():
        last: deque[list[int]] = deque(maxlen=COUNT)
        for ts in sorted(moments):
            last.append(moments[ts])
            if len(last) == COUNT:
                answers.append((sum(n for n, _ in last), sum(v for _, v in last)))
    return len(answers)


def notes() -> list[str]:
    """What a row costs as windows overlap more: of the same hop, in windows of 1, 10 and 100 hops.

    Answers given at once make every change a row out; those held until windows end hide most changes.
    """
    batches, lines = stream(_SOME), []
    for speculate in get_args(Speculate):
        best = {panes: (float("inf"), 1) for panes in (1, 10, 100)}
        # In turn, so that a machine that is busy for a while slows all of them.
        for _ in range(_TIMES):
            for panes in best:
                make = partial(_hopping, HOP, panes * HOP, speculate)
                best[panes] = min(best[panes], _seconds_and_rows(make, batches))
        costs = [1e6 * seconds / rows for seconds, rows in best.values()]
        lines += [
            f"{speculate}, size/hop = {panes}: {_SOME:,} events in, {rows:,} rows out, "
            f"{cost:.2f} µs a row out, {1e6 * seconds / (_SOME + rows):.2f} µs a row in or out"
            for (panes, (seconds, rows)), cost in zip(best.items(), costs, strict=True)
        ]
        lines.append(f"{speculate}: the dearest row out costs {max(costs) / min(costs):.2f} x the cheapest")
    return lines


def _seconds_and_rows(make: Any, batches: list[EventBatch]) -> tuple[float, int]:
    began = time.process_time()
    rows = _run(make, batches, is_net=False)
    return time.process_time() - began, rows


SUITE = Suite(
    "windows",
    "W1: hopping 10 s / 2 s count and sum per key, 20 % late; W3: tumbling 10 s count per key, in order",
    (
        Measurement(
            "W1, hopping",
            _batches,
            partial(_run, _hopping),
            sizes=(200_000, _MILLION, 2 * _MILLION),
            against=("W1, plain Python, an event at a time", "W1, DuckDB, one shot"),
            target=1_500_000,
            repeats=3,
        ),
        Measurement(
            "W1, hopping, recorded",
            _batches,
            _run_recorded,
            sizes=(_MILLION,),
            against=("W1, hopping",),
            repeats=3,
        ),
        Measurement("W1, plain Python, an event at a time", _rows, _in_python, sizes=(200_000,), repeats=1),
        Measurement(
            "W1, DuckDB, one shot", _table, partial(_in_duckdb, HOP), sizes=(200_000, 2 * _MILLION), repeats=3
        ),
        Measurement(
            "count windows of 10 starts",
            _batches,
            partial(_run, _counted),
            sizes=(200_000, 400_000),
            against=("count windows, plain Python, one shot",),
            repeats=3,
        ),
        Measurement(
            "count windows, plain Python, one shot", _rows, _counted_in_python, sizes=(200_000,), repeats=1
        ),
        Measurement(
            "W3, tumbling",
            _in_order,
            partial(_run, _tumbling),
            sizes=(_MILLION, 2 * _MILLION),
            against=("W3, DuckDB, one shot",),
            target=4_000_000,
            repeats=3,
        ),
        Measurement(
            "W3, DuckDB, one shot",
            _table_in_order,
            partial(_in_duckdb, SIZE),
            sizes=(2 * _MILLION,),
            repeats=3,
        ),
    ),
)
