"""Aggregates and the full outer join, judged by DuckDB and pandas on large random data."""

from __future__ import annotations

import random
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa
import pytest

import recension as rc
from recension import col

duckdb = pytest.importorskip("duckdb")
pd = pytest.importorskip("pandas")

SCHEMA = {
    "k": "string",
    "u": "string",
    "i": "int64",
    "x": "float64",
    "ok": "bool",
    "d": "decimal128(12, 3)",
}
SIZE, HOP, COUNT = 100, 40, 4000


def _table(seed: int, count: int = COUNT) -> pa.Table:
    """Events within [0, 2000), some of them equal; a tenth of all values is null."""
    dice = random.Random(seed)

    def some(make: Any) -> list[Any]:
        return [None if dice.random() < 0.1 else make() for _ in range(count)]

    start = [dice.randrange(2000) for _ in range(count)]
    columns = {
        "vs": start,
        "ve": [vs + dice.choice([1, 1, 5, 30, 90, 400]) for vs in start],
        "k": some(lambda: dice.choice("abcde")),
        "u": some(lambda: f"user {dice.randrange(30)}"),
        "i": some(lambda: dice.randrange(-50, 50)),
        "x": some(lambda: dice.choice([dice.gauss(0, 100), float(dice.randrange(5))])),
        "ok": some(lambda: dice.random() < 0.9),
        "d": some(lambda: Decimal(dice.randrange(-(10**9), 10**9)).scaleb(-3)),
    }
    types = {"d": pa.decimal128(12, 3)}
    return pa.table({name: pa.array(values, types.get(name)) for name, values in columns.items()})


EVENTS = _table(1)
SOURCE = rc.source("s", SCHEMA, start="vs", end="ve")
WINDOWS = f"""
    create or replace table inside as
    select e.*, w * {HOP} as w, least(ve, w * {HOP} + {SIZE}) - greatest(vs, w * {HOP}) as length
    from events e, range(-10, 100) g(w) where vs < w * {HOP} + {SIZE} and ve > w * {HOP}
"""
FIRST = "order by {} nulls last, vs, ve, k nulls first, u nulls first, i nulls first, x nulls first"


@pytest.fixture(scope="module")
def database() -> Any:
    connection = duckdb.connect()
    connection.register("events", EVENTS)
    connection.execute(WINDOWS)
    return connection


def answers(query: rc.Stream) -> dict[Any, dict[str, Any]]:
    """By group and window, whatever the engine gives."""
    rows = rc.run(query, {"s": EVENTS}, close=True).history().to_events()
    found = {(e.payload.get("k"), e.vs): dict(e.payload) for e in rows}
    assert len(found) == len(rows) > 50
    return found


def judged(database: Any, columns: str) -> dict[Any, dict[str, Any]]:
    found = database.execute(f"select k, w, {columns} from inside group by k, w")
    names = [column[0] for column in found.description]
    rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    return {(row["k"], row.pop("w")): row for row in rows}


def assert_same(found: dict[Any, Any], other: dict[Any, Any]) -> None:
    assert found.keys() == other.keys()
    for key, row in found.items():
        for name, value in row.items():
            meant = other[key][name]
            if isinstance(value, float) and meant is not None:
                assert value == pytest.approx(float(meant), rel=1e-9, abs=1e-9), (key, name)
            else:
                assert value == meant, (key, name, value, meant)


def test_duckdb_agrees_with_sums_counts_and_conditions(database: Any) -> None:
    query = SOURCE.group_by("k").hopping(SIZE, HOP).agg(
        users=rc.n_unique("u"),
        values=rc.n_unique("x", where="ok"),
        any=rc.any(col("i") > 48),
        all=rc.all("ok"),
        total=rc.sum("d"),
        least=rc.min("d"),
        most=rc.max("d", where=col("i") > 0),
        good=rc.count(where="ok"),
        share=rc.sum("i", where="ok") / rc.count("i"),
        listed=rc.collect("i", where=col("i") > 45).list.len(),
    )  # fmt: skip
    columns = """
        count(distinct u) as users, count(distinct x) filter (where ok) as values, bool_or(i > 48) as any,
        bool_and(ok) as all, sum(d) as total, min(d) as least, max(d) filter (where i > 0) as most,
        count(*) filter (where ok) as good, (sum(i) filter (where ok)) / count(i) as share,
        count(*) filter (where i > 45) as listed
    """
    assert_same(answers(query), judged(database, columns))


def test_duckdb_agrees_with_what_is_chosen_and_weighted(database: Any) -> None:
    query = SOURCE.group_by("k").hopping(SIZE, HOP).agg(
        most=rc.arg_max("u", by="i"),
        least=rc.arg_min("u", by="i", where="ok"),
        median=rc.median("x"),
        tenth=rc.quantile("i", 0.1),
        weighted=rc.time_weighted_mean("x"),
        first=rc.first("u", where="ok"),
    )  # fmt: skip
    columns = f"""
        first(u {FIRST.format("i desc")}) filter (where i is not null) as most,
        first(u {FIRST.format("i")}) filter (where i is not null and ok) as least,
        median(x) as median, quantile_cont(i, 0.1) as tenth,
        sum(x * length) / sum(length) filter (where x is not null) as weighted,
        first(u order by vs, ve, k nulls first, u nulls first) filter (where ok) as first
    """
    assert_same(answers(query), judged(database, columns))


def test_the_mean_of_decimals_is_the_sum_divided_and_rounded_once(database: Any) -> None:
    found = answers(SOURCE.group_by("k").hopping(SIZE, HOP).agg(mean=rc.mean("d")))
    sums = judged(database, "sum(d) as total, count(d) as n")
    unit = Decimal(1).scaleb(-7)
    other = {
        key: {
            "k": key[0],
            "mean": (row["total"] / row["n"]).quantize(unit, ROUND_HALF_UP) if row["n"] else None,
        }
        for key, row in sums.items()
    }
    assert_same(found, other)


def test_pandas_agrees_with_quantiles_between_two_values(database: Any) -> None:
    ways: Any = ("linear", "lower", "higher", "nearest", "midpoint")
    named: dict[str, Any] = {way: rc.quantile("x", 0.37, way) for way in ways}
    query = SOURCE.hopping(SIZE, HOP).agg(**named)
    found = answers(query)
    rows = database.execute("select w, x from inside where x is not null").fetchall()
    inside = pd.DataFrame(rows, columns=["w", "x"]).groupby("w")["x"]
    by_way = {way: inside.quantile(0.37, interpolation=way).to_dict() for way in ways}
    other = {key: {way: by_way[way].get(key[1]) for way in ways} for key in found}
    assert_same(found, other)


def test_having_is_having(database: Any) -> None:
    query = SOURCE.group_by("k").hopping(SIZE, HOP).agg(n=rc.count()).having(rc.n_unique("u") > 20)
    table = "select k, w, count(*) as n from inside group by k, w having count(distinct u) > 20"
    other = {(k, w): {"k": k, "n": n} for k, w, n in database.execute(table).fetchall()}
    assert_same(answers(query), other)


def test_duckdb_agrees_with_the_full_outer_join_at_every_instant(database: Any) -> None:
    left, right = _table(2, 300).select(["vs", "ve", "k", "i"]), _table(3, 300).select(["vs", "ve", "k", "u"])
    one = rc.source("l", {"k": "string", "i": "int64"}, start="vs", end="ve")
    other = rc.source("r", {"k": "string", "u": "string"}, start="vs", end="ve")
    query = one.where(col("i") % 3 != 0).join(other, on="k", how="full")
    joined = rc.run(query, {"l": left, "r": right}, close=True).history()
    found = Counter(
        (t, *event.payload.values())
        for event in joined.to_events()
        for t in range(event.vs, min(event.ve, 2500))
        if t % 7 == 0
    )
    database.register("l", left)
    database.register("r", right)
    rows = database.execute("""
        with times as (select 7 * t as t from range(0, 358) g(t)),
             a as (select t, k, i from times, l where vs <= t and t < ve and i % 3 <> 0),
             b as (select t, k, u from times, r where vs <= t and t < ve)
        select coalesce(a.t, b.t), coalesce(a.k, b.k), i, u from a full join b on a.t = b.t and a.k = b.k
    """).fetchall()
    assert len(rows) > 5000
    assert found == Counter(rows)
