"""Joins: keys that are null, NaN or minus nothing; conditions on pairs; no cross join with a key."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from tests.runners.spark.batch.jobs import answers, batch, frame

import recension as rc
from recension import col, denote
from recension.core.events import Event
from recension.core.ticks import FOREVER
from recension.testing.assertions import assert_equivalent

SCHEMA = pa.schema([("k", pa.float64()), ("v", pa.int64())])
KEYS = [0.0, -0.0, float("nan"), -float("nan"), 1.5, None]
HOWS: tuple[Any, ...] = ("inner", "left", "semi", "anti")


def _events(seed: int, size: int = 14) -> list[Event]:
    rnd = random.Random(seed)
    events = []
    for _ in range(size):
        vs = rnd.randrange(8)
        ve = rnd.choice([vs + 1, vs + 3, vs + 5, FOREVER])
        events += [Event({"k": rnd.choice(KEYS), "v": rnd.choice([1, 2, None])}, vs, ve)] * rnd.choice([1, 2])
    return events


def test_keys_and_conditions(quick: Any) -> None:
    left, right = _events(1), _events(2)
    s, t = rc.source("s", SCHEMA), rc.source("t", SCHEMA)
    frames = {"s": frame(quick, left, SCHEMA), "t": frame(quick, right, SCHEMA)}

    def more(p: Any) -> bool:
        return p["v"] is not None and p["v_right"] is not None and p["v"] > p["v_right"]

    def halves(p: Any) -> bool:
        return p["v"] is not None and p["v_right"] is not None and p["v"] / p["v_right"] == 2

    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [({"on": "k"}, {"on": "k"})]
    cases += [({"where": rc.lit(True)}, {})]
    cases += [({"on": "k", "where": col("v") > col("v_right")}, {"on": "k", "where": more})]
    cases += [({"on": "k", "where": col("v") / col("v_right") == 2}, {"on": "k", "where": halves})]
    queries, meanings = [], []
    for how in HOWS:
        for said, means in cases:
            queries.append(s.join(t, how=how, **said))
            meanings.append(denote.join(left, right, how=how, right_columns=("k", "v"), **means))
    queries.append(s.join(t, how="cross"))
    meanings.append(denote.join(left, right, how="cross"))
    queries += [
        s.clip(by=t, on="k"),
        s.clip(by=t),
        s.distinct(),
        s.union(t).distinct(),
        s.join(s.shift(1), on="k"),
    ]
    meanings += [denote.clip(left, right, "k"), denote.clip(left, right), denote.distinct(left)]
    meanings += [denote.distinct(left + right), denote.join(left, denote.shift(left, 1), on="k")]
    found = answers([batch(quick, query, frames) for query in queries])
    for query, got, meaning in zip(queries, found, meanings, strict=True):
        try:
            assert_equivalent(got, meaning)
        except AssertionError as why:
            raise AssertionError(f"{query.plan.label}\n{why}") from None


def test_keys_meet_across_partitions(spark: Any) -> None:
    """Where partitions are chosen by a hash, equal keys must have one: 0.0 and -0.0, any NaN."""
    left, right = _events(3, 40), _events(4, 40)
    s, t = rc.source("s", SCHEMA), rc.source("t", SCHEMA)
    frames = {"s": frame(spark, left, SCHEMA).repartition(3), "t": frame(spark, right, SCHEMA).repartition(2)}
    by_condition = s.join(t, on="k", how="semi", where=col("v") > col("v_right"))
    by_group = s.group_by("k").agg(lo=rc.min("v"))
    results = [batch(spark, query, frames) for query in (by_condition, by_group)]
    met, lowest = answers(results)
    inserts = {n: [rc.Insert(e.payload, e.vs, e.ve) for e in h] for n, h in (("s", left), ("t", right))}
    assert_equivalent(met, rc.run(by_condition, inserts, close=True).history().to_events())
    assert_equivalent(lowest, rc.run(by_group, {"s": inserts["s"]}, close=True).history().to_events())


@pytest.mark.parametrize("how", HOWS)
def test_no_cross_join_where_there_is_a_key(spark: Any, how: Any) -> None:
    s, t = rc.source("s", SCHEMA), rc.source("t", SCHEMA)
    given = frame(spark, _events(5), SCHEMA)
    query = s.join(t, on="k", how=how, where=(col("v") > 0) | (col("v_right") > 0))
    plan = (
        rc.spark.batch(spark, query, {"s": given, "t": given})._jdf.queryExecution().executedPlan().toString()
    )
    assert "CartesianProduct" not in plan
    assert "NestedLoop" not in plan


def test_without_a_key_there_is_one(spark: Any) -> None:
    """So that the test above can fail."""
    s, t = rc.source("s", SCHEMA), rc.source("t", SCHEMA)
    given = frame(spark, _events(5), SCHEMA)
    found = rc.spark.batch(spark, s.join(t, how="cross"), {"s": given, "t": given})
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert "CartesianProduct" in plan or "NestedLoop" in plan
