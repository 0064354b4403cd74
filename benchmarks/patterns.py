"""Patterns: joins by start, sequences and absence, over text keys and floats of which nothing is declared.

As many events a side, 100 a second on each, 6,000 keys, 20 % late by up to 30 s: within a minute of an event
starts about one of its key on the other side. In the streams with a hot key half of the rows are of one:
3,000 of them within a minute. There a sequence may take a second, which makes fifty answers an event.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.harness import Measurement, Suite
from benchmarks.interval_join import LATENESS, RATE, SECOND
from recension.core.batch import CTI, EventBatch, concat, inserts, null_payload
from recension.core.ticks import FOREVER

if TYPE_CHECKING:
    from recension.api.stream import Stream
    from recension.runners.local import Session

BATCH, KEYS, WITHIN = 50_000, 6_000, 60 * SECOND
SIDES = ("a", "b")
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.float64())])
Turns = list[tuple[str, EventBatch]]
_LATE: Final = 1_000

_MEETS = f"a.key = b.key AND b.vs > a.vs AND b.vs < a.vs + {WITHIN}"
_PAIRS = f"SELECT a.key, a.value, b.value AS other, b.vs FROM a JOIN b ON {_MEETS}"
_ALONE = f"SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE {_MEETS})"


@dataclass(frozen=True)
class Feed:
    """The events of one side in order of arrival: starts, keys, values and when they come."""

    vs: np.ndarray[Any, Any]
    key: pa.Array
    value: np.ndarray[Any, Any]
    arrival: np.ndarray[Any, Any]


def feed(size: int, side: str, *, hot: bool = False) -> Feed:
    """Half of so many events; with ``hot`` half of those are of one key."""
    rng = np.random.default_rng([34, SIDES.index(side)])
    vs = np.sort(rng.integers(0, max(size // 2 // RATE, 1) * SECOND, size // 2))
    key = rng.integers(1, KEYS, len(vs))
    if hot:
        key = np.where(rng.random(len(vs)) < 0.5, 0, key)
    arrival = vs + np.where(rng.random(len(vs)) < 0.2, rng.integers(0, LATENESS, len(vs)), 0)
    order = np.argsort(arrival, kind="stable")
    names = pa.array([f"customer {n:06}" for n in range(KEYS)]).take(pa.array(key[order]))
    return Feed(vs[order], names, rng.random(len(vs)), arrival[order])


def batches(size: int, *, hot: bool = False, batch: int = BATCH) -> Turns:
    """Batches of both sides in turn, each ending with a CTI that lags the arrivals."""
    sides = [_side(side, feed(size, side, hot=hot), batch) for side in SIDES]
    return [turn for pair in zip(*sides, strict=True) for turn in pair]


def _side(side: str, events: Feed, batch: int) -> Turns:
    whole = inserts(events.vs, events.vs + SECOND, pa.record_batch([events.key, events.value], schema=SCHEMA))
    turns = []
    for start in range(0, len(whole), batch):
        stop = min(start + batch, len(whole))
        t = FOREVER if stop == len(whole) else int(events.arrival[stop - 1]) - LATENESS
        turns.append((side, concat([whole.slice(start, stop), _cti(t)])))
    return turns


def _cti(t: int) -> EventBatch:
    end = np.array([FOREVER])
    kind, count = np.array([CTI], np.uint8), np.zeros(1, np.int64)
    return EventBatch(kind, np.array([t]), end, end, count, null_payload(1, SCHEMA))


def _joined(a: Stream, b: Stream) -> Stream:
    return a.join(b, on="key", starts=(0, WITHIN), closed="neither")


def _sequence(a: Stream, b: Stream) -> Stream:
    import recension as rc

    return rc.sequence({"a": a, "b": b}, within=WITHIN, on="key", most=None)


def _hot_sequence(a: Stream, b: Stream) -> Stream:
    import recension as rc

    return rc.sequence({"a": a, "b": b}, within=SECOND, on="key")


def _left_out(a: Stream, b: Stream) -> Stream:
    import recension as rc

    return rc.sequence({"a": a, "b": b}, within=WITHIN, on="key", most=100, on_limit="drop")


def _unless(a: Stream, b: Stream) -> Stream:
    import recension as rc

    return rc.unless(a, b, within=WITHIN, on="key")


QUERIES: Final[dict[str, Callable[[Stream, Stream], Stream]]] = {
    "join by start": _joined,
    "sequence of two": _sequence,
    "unless": _unless,
}
HOT: Final = {
    "sequence of two in a second, a hot key": _hot_sequence,
    "sequence of two, a hot key is left out": _left_out,
    "unless, a hot key": _unless,
}


def session(query: str) -> Session:
    """The query as a user writes it; nothing is declared."""
    import recension as rc

    a, b = (rc.source(side, SCHEMA) for side in SIDES)
    return rc.session((QUERIES | HOT)[query](a, b))


def _runs(query: str) -> Callable[[Turns], int]:
    """How many answers there are in the end."""

    def run(turns: Turns) -> int:
        live, rows = session(query), 0
        for side, batch in turns:
            live.push(side, batch)
            for out in live.read().batches:
                rows += int((out.kind == 0).sum()) - int(((out.kind == 1) & (out.new_ve == out.vs)).sum())
        return rows

    return run


def _tables(size: int) -> list[pa.Table]:
    feeds = [feed(size, side) for side in SIDES]
    return [pa.table({"vs": each.vs, "key": each.key, "value": each.value}) for each in feeds]


def _duckdb(text: str) -> Callable[[list[pa.Table]], int]:
    """All rows at once, known beforehand and final."""

    def run(tables: list[pa.Table]) -> int:
        import duckdb

        with duckdb.connect(config={"threads": 1}) as connection:
            for side, table in zip(SIDES, tables, strict=True):
                connection.register(side, table)
            return int(connection.sql(text).to_arrow_table().num_rows)

    return run


def notes() -> list[str]:
    """What a late batch costs beside more state, and whether state and time stay level."""
    return [*(_late_rows(query) for query in QUERIES), *(_flat(query) for query in QUERIES)]


def _late_rows(query: str) -> str:
    """1,000 late rows, and what they cost with 16 times the state: as many keys more, so the same answers."""
    cost = []
    for times in (1, 16):
        live, rng = session(query), np.random.default_rng(7)
        size, keys = 20_000 * times, 2_000 * times
        for side in SIDES:
            live.push(side, _events(rng, size, keys))
        live.read()
        costs = [_cost(live, _events(rng, _LATE, keys)) for _ in range(60)]
        cost.append(float(np.mean(np.sort(costs)[5:-5])))
    return (
        f"{query}: {_LATE:,} late rows take {1000 * cost[0]:.1f} ms beside 40,000 events, "
        f"{1000 * cost[1]:.1f} ms beside 640,000: {cost[1] / cost[0]:.2f} times as long"
    )


def _events(rng: np.random.Generator, size: int, keys: int) -> EventBatch:
    vs = rng.integers(0, 20 * WITHIN, size)
    names = pa.array([f"customer {n:06}" for n in rng.integers(0, keys, size)])
    return inserts(vs, vs + SECOND, pa.record_batch([names, rng.random(size)], schema=SCHEMA))


def _cost(live: Session, late: EventBatch) -> float:
    began = time.process_time()
    live.push("b", late)
    live.read()
    return time.process_time() - began


def _flat(query: str) -> str:
    live, seconds, rows, memory = session(query), [], [], []
    for side, batch in batches(2_000_000):
        began = time.process_time()
        live.push(side, batch)
        live.read()
        seconds.append(time.process_time() - began)
        steps = live.metrics()
        rows.append(sum(step.state_rows for step in steps))
        memory.append(sum(step.state_bytes for step in steps))
    tenth = len(seconds) // 10
    parts = seconds[2 : 2 + tenth], seconds[-tenth - 2 : -2]
    first, last = (1000 * float(np.mean(part)) for part in parts)
    return (
        f"{query}: a batch of {BATCH:,} takes {first:.0f} ms in the first tenth of the streams, "
        f"{last:.0f} ms in the last; state at most {max(rows):,} rows, {max(memory) / 1e6:.0f} MB; "
        f"{rows[-1]} rows in the end"
    )


def _measurement(query: str, target: int | None = None) -> Measurement:
    is_hot = query in HOT
    return Measurement(
        query,
        lambda size, _: batches(size, hot=is_hot),
        _runs(query),
        sizes=(200_000,) if is_hot else (500_000, 2_000_000),
        against=() if is_hot else (f"DuckDB, {query}",),
        target=target,
        repeats=3,
    )


SUITE = Suite(
    "patterns",
    "Patterns: 6,000 text keys, about one partner within a minute, 20 % late, batches of 50,000",
    (
        _measurement("join by start", 1_000_000),
        _measurement("sequence of two", 1_000_000),
        _measurement("unless", 2_000_000),
        *(
            Measurement(
                f"DuckDB, {query}",
                lambda size, _: _tables(size),
                _duckdb(_ALONE if query == "unless" else _PAIRS),
                sizes=(500_000, 2_000_000),
                repeats=3,
            )
            for query in QUERIES
        ),
        *map(_measurement, HOT),
    ),
)
