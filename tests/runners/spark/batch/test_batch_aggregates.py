"""Every aggregate on snapshots and windows, with floats, nulls, NaN and sums beyond int64."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.runners.spark.batch.jobs import answers, batch, check_as_local, frame

import recension as rc
from recension.core.events import Event
from recension.core.ticks import BEGINNING, FOREVER
from recension.testing.assertions import assert_equivalent

SCHEMA = pa.schema(
    [
        *(("k", pa.float64()), ("v", pa.int64()), ("x", pa.float64()), ("s", pa.string())),
        *(("b", pa.bool_()), ("d", pa.decimal128(9, 2))),
    ]
)
NAN = float("nan")


def _known(values: Any) -> int:
    """How many values there are; a function gets an array, with NaN where whole numbers are null."""
    return int((values == values).sum())


def _events(seed: int) -> list[Event]:
    rnd = random.Random(seed)
    return [
        Event(
            {
                "k": rnd.choice([0.0, -0.0, NAN, 1.0, None]),
                "v": rnd.choice([0, 3, -7, 2**53 + 1, None]),
                "x": rnd.choice([0.5, -0.0, 1e20, -1e20, 3.25, NAN, float("inf"), None, None]),
                "s": rnd.choice(["a", "b", "é", None]),
                "b": rnd.choice([True, True, False, None]),
                "d": rnd.choice([Decimal("0.01"), Decimal("-1234567.89"), Decimal("7.00"), None]),
            },
            vs := rnd.randrange(-5, 12),
            vs + rnd.randrange(1, 8),
        )
        for _ in range(30)
    ]


MANY: dict[str, dict[str, Any]] = {
    "sums": {"n": rc.count(), "m": rc.count("v"), "t": rc.sum("v"), "a": rc.mean("v")},
    "floats": {"t": rc.sum("x"), "a": rc.mean("x"), "d": rc.stddev("x"), "q": rc.quantile("x", 0.3)},
    "extremes": {
        "lo": rc.min("x"),
        "hi": rc.max("x"),
        "s": rc.max("s"),
        "n": rc.count("s"),
        "v": rc.sum("v"),
    },
    "order": {
        "f": rc.first("s"),
        "l": rc.last("v"),
        "c": rc.collect("s"),
        "w": rc.aggregate(_known, "v", result="int64"),
    },
    "truths": {
        "any": rc.any("b"),
        "all": rc.all(rc.col("v") > 0),
        "n": rc.count(where="b"),
        "t": rc.sum("v", where=rc.col("s") == "a"),
    },
    "everyday": {
        "u": rc.n_unique("x"),
        "m": rc.median("v", where="b"),
        "who": rc.arg_max("s", by="x"),
        "w": rc.time_weighted_mean("x"),
        "f": rc.first("s", where="b"),
    },
    "decimals": {"t": rc.sum("d"), "a": rc.mean("d"), "lo": rc.min("d"), "hi": rc.max("d", where="b")},
}


def test_all_aggregates_as_the_local_engine_has_them(quick: Any) -> None:
    events = _events(1)
    source = rc.source("s", SCHEMA)
    queries = []
    for n, named in enumerate(MANY.values()):
        queries += [source.agg(**named)] if n % 2 else [source.group_by("k").agg(**named)]
        queries.append(source.group_by("k").hopping(6, 4, offset=1).agg(**named))
    queries.append(source.tumbling(5).agg(**MANY["extremes"]))
    queries += [
        source.group_by(odd=rc.col("v") % 2).agg(rc.top_k(2, by="x")),
        source.hopping(6, 3, until=4).agg(rc.top_k(1, by="v", descending=False)),
        source.group_by("k").count_window(2, by="end").agg(t=rc.sum("x"), n=rc.count(), u=rc.n_unique("s")),
        source.group_by("s").agg(share=rc.count(where="b") / rc.count()).having(rc.max("v") > 0),
        source.group_by("s").tumbling(5).agg(n=rc.count("v") + 1).having(rc.sum("d") > 0, rc.col("n") > 1),
        source.group_by("k").sessions(2).agg(**MANY["extremes"]),
        source.group_by("k").sessions(1).agg(**MANY["order"]),
        source.sessions(3).agg(**MANY["sums"]),
    ]
    check_as_local(quick, queries, events, SCHEMA)


def test_sums_beyond_int64_are_refused_as_on_the_local_engine(quick: Any) -> None:
    big = 2**63 - 1
    events = [Event({"v": v}, vs, vs + 4) for v, vs in ((big, 0), (-(2**63), 1), (-5, 5), (-(2**63) + 5, 5))]
    schema = pa.schema([("v", pa.int64())])
    source = rc.source("s", schema)
    query = source.agg(t=rc.sum("v"), a=rc.mean("v"))
    (got,) = answers([batch(quick, query, {"s": frame(quick, events, schema)})])
    inserts = [rc.Insert(e.payload, e.vs, e.ve) for e in events]
    assert_equivalent(got, rc.run(query, {"s": inserts}, close=True).history().to_events())
    assert {e.payload["t"] for e in got} >= {big, -(2**63)}
    for beyond in (1, -6):
        more = frame(quick, [*events, Event({"v": beyond}, 0 if beyond > 0 else 5, 9)], schema)
        with pytest.raises(Exception, match="does not fit in int64"):
            answers([batch(quick, source.agg(t=rc.sum("v")), {"s": more})])


def test_lifetimes_saturate(quick: Any) -> None:
    schema = pa.schema([("v", pa.int64())])
    edges = [BEGINNING, BEGINNING + 1, BEGINNING + 3, 0, FOREVER - 3, FOREVER - 1]
    events = [
        Event({"v": i}, vs, ve)
        for i, vs in enumerate(edges)
        for ve in (*edges[1:], FOREVER)
        if vs < ve and vs != BEGINNING
    ]
    source = rc.source("s", schema)
    queries = [
        source.shift(5),
        source.shift(-5),
        source.set_duration(4),
        source.extend(-2),
        source.extend(9),
        source.hop_lifetime(7, 5),
        source.inserts(),
        source.deletes(),
        source.alter_lifetime(start=lambda vs, ve: vs - 2, duration=lambda vs, ve: np.minimum(ve - vs, 3)),
        source.alter_lifetime(duration=3),
    ]
    check_as_local(quick, queries, events, schema)


def test_windows_at_the_ends_of_time(quick: Any) -> None:
    schema = pa.schema([("v", pa.int64())])
    lifetimes = [(BEGINNING + 2, BEGINNING + 5), (-3, 4), (FOREVER - 6, FOREVER - 1)]
    events = [Event({"v": i}, vs, ve) for i, (vs, ve) in enumerate(lifetimes)]
    source = rc.source("s", schema)
    n, top = rc.count(), rc.max("v")
    queries = [
        source.tumbling(10).agg(n=n),
        source.hopping(9, 4, offset=BEGINNING + 3).agg(n=n, top=top),
        source.hopping(2**62, 2**61, offset=FOREVER - 1).agg(n=n),
        source.hopping(3, 1).agg(n=n),
    ]
    check_as_local(quick, queries, events, schema)
