"""Snapshots of every operator and of payloads of many types survive Parquet, Arrow IPC and Feather."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.properties.plans import STEPS, Plan
from tests.properties.test_failed_steps import TURNS, _classes
from tests.runners.test_session_snapshots import WAYS

import recension as rc
from recension.core.events import Element
from recension.runners.local import Session
from recension.runners.snapshot import TYPES
from recension.testing.strategies import SCHEMA

DAY, NOON = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 30, 1)
VALUES: list[tuple[pa.DataType, Any]] = [
    (pa.timestamp("s"), NOON),
    (pa.timestamp("s", "Europe/Paris"), NOON.replace(tzinfo=dt.UTC)),
    (pa.timestamp("ms"), NOON),
    (pa.timestamp("ns"), NOON),
    (pa.time32("s"), NOON.time()),
    (pa.time32("ms"), NOON.time()),
    (pa.time64("ns"), NOON.time()),
    (pa.date32(), DAY),
    (pa.date64(), DAY),
    (pa.duration("s"), dt.timedelta(seconds=7)),
    (pa.large_string(), "text"),
    (pa.large_binary(), b"bytes"),
    (pa.binary(3), b"abc"),
    (pa.decimal128(10, 2), Decimal("1.25")),
    (pa.float32(), -0.0),
    (pa.uint8(), 200),
    (pa.bool_(), True),
    (pa.null(), None),
    (pa.large_list(pa.date64()), [DAY, None]),
    (pa.list_(pa.time32("s"), 2), [NOON.time(), None]),
    (pa.struct([("a", pa.timestamp("s")), ("b", pa.list_(pa.date64()))]), {"a": NOON, "b": [DAY]}),
    (pa.map_(pa.string(), pa.time32("s")), [("x", NOON.time())]),
]

FILES = {name: WAYS[name] for name in ("parquet", "ipc", "feather")}


def through(way: Callable[[pa.Table], pa.Table], session: Session, other: Session) -> Session:
    """Another session, restored from files of this one's snapshot."""
    other.restore({name: way(table) for name, table in session.snapshot().items()})
    return other


@pytest.mark.parametrize("way", FILES.values(), ids=FILES)
def test_payloads_of_any_type(way: Callable[[pa.Table], pa.Table]) -> None:
    columns = {f"c{i}": kind for i, (kind, _) in enumerate(VALUES)}
    full = {name: value for name, (_, value) in zip(columns, VALUES, strict=True)}
    none = dict.fromkeys(columns)
    s = rc.source("s", pa.schema([("k", pa.int64()), *columns.items()]))
    lasts: dict[str, Any] = {name: rc.last(name) for name in list(columns)[:9]}
    queries: dict[str, Any] = {
        "held": s.finalize(50),
        "distinct": s.distinct(),
        "joined": s.join(s, on="k"),
        "last": s.group_by("k").agg(speculate="eager", **lasts),
    }
    first: list[Element] = [rc.Insert({"k": 1, **full}, 0, 9), rc.Insert({"k": 2, **none}, 1)]
    then: list[Element] = [
        rc.Retract({"k": 1, **full}, 0, 9, 5),
        rc.Insert({"k": 2, **full}, 3, 4),
        rc.Cti(rc.FOREVER),
    ]
    session = rc.session(**queries)
    session.push("s", first)
    other = through(way, session, rc.session(**queries))
    for one in (session, other):
        one.push("s", then)
    for name in queries:
        assert other.history(name).to_arrow().equals(session.history(name).to_arrow())


def test_types_that_parquet_keeps_are_stored_as_they_are() -> None:
    session = rc.session(rc.source("s", {"at": "timestamp[us]", "k": "string"}))
    assert TYPES not in session.snapshot()


S, T = (rc.source(name, {"k": "string"}) for name in "st")
KEYS_ONLY = {
    **{f"join {how}": S.join(T, on="k", how=how) for how in ("inner", "left", "semi", "anti")},
    "as of": S.as_of(T, on="k"),
    "distinct": S.distinct(),
    "no columns": S.select().distinct(),
}


@pytest.mark.parametrize("query", KEYS_ONLY.values(), ids=KEYS_ONLY)
def test_rows_of_nothing_but_keys(query: rc.Stream) -> None:
    follow(lambda: rc.session(out=query, t=T), [(name, [_keys(e) for e in some]) for name, some in TURNS])


@pytest.mark.slow
def test_every_operator() -> None:
    s, t = (rc.source(name, SCHEMA) for name in ("s", "t"))
    kinds = {_classes(Plan((step,)).build(s, t)): step for step in STEPS}
    queries: dict[str, Any] = {str(i): Plan((step,)).build(s, t) for i, step in enumerate(kinds.values())}
    follow(lambda: rc.session(**queries), TURNS)


def follow(start: Callable[[], Session], turns: list[tuple[str, list[Element]]]) -> None:
    """One session goes on, the other moves into a new one through files halfway."""
    session, moved = start(), start()
    for number, (source, elements) in enumerate(turns):
        session.push(source, elements)
        moved.push(source, elements)
        if number == 2:
            moved = through(_one_row_group, moved, start())
    for name in session._queries:
        assert moved.history(name).to_arrow().equals(session.history(name).to_arrow()), name


def _one_row_group(table: pa.Table) -> pa.Table:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none", use_dictionary=False, write_statistics=False)
    return pq.read_table(io.BytesIO(sink.getvalue()), use_threads=False)


def _keys(element: Element) -> Element:
    match element:
        case rc.Insert(payload, vs, ve):
            return rc.Insert({"k": payload["k"]}, vs, ve)
        case rc.Retract(payload, vs, ve, new_ve):
            return rc.Retract({"k": payload["k"]}, vs, ve, new_ve)
    return element
