"""Expressions mean on Spark what they mean on Arrow, natively or by Arrow itself."""

from __future__ import annotations

import itertools
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from tests.runners.spark.batch.jobs import batch, check_as_local, frame

import recension as rc
from recension import col, lit, when
from recension.core.errors import StreamError
from recension.core.events import Event
from recension.plan.expressions import expression
from recension.runners.spark.batch.span import to_spark

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("j", pa.int64()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("n", pa.int8()),
    ]
)
NAN, INF = float("nan"), float("inf")
WHOLE = [0, 1, -1, 7, 2**63 - 1, -(2**63), None]
FLOATS = [0.0, -0.0, 1.5, -2.5, NAN, INF, -INF, None]
NATIVE = {
    "x + y": col("x") + col("y"),
    "x * y": col("x") * col("y"),
    "x - 1": col("x") - 1,
    "i > j": col("i") > col("j"),
    "i == 1": col("i") == 1,
    "n < 300": col("n") < 300,
    "x < y": col("x") < col("y"),
    "x >= y": col("x") >= col("y"),
    "x == y": col("x") == col("y"),
    "x != y": col("x") != col("y"),
    "x > 0": col("x") > 0,
    "s >= b": col("s") >= "b",
    "and": (col("x") > 0) & col("b"),
    "or": (col("x") > 0) | col("b"),
    "not": ~col("b"),
    "is_null": col("x").is_null(),
    "fill": col("i").fill_null(3),
    "fill float": col("x").fill_null(3.5),
    "is_in": col("i").is_in([1, 7]),
    "is_in text": col("s").is_in(["a", ""]),
    "between": col("i").is_between(-1, 5),
    "between open": col("x").is_between(-1.0, 5.0, closed="left"),
    "when": when(col("b")).then(col("i")).otherwise(col("j")),
    "when without": when(col("i") > 0).then(col("x")),
    "literal": lit("all"),
    "during": rc.during(("i", "j"), ("j", "i")),
    "relation": rc.relation(("i", "j"), ("j", "i")),
    "intersect": rc.intersect(("i", "j"), (lit(-3), lit(5))).start,
}
SMALL = col("i").is_between(-9, 9) & col("j").is_between(-9, 9)
BY_ARROW = {
    "i + j": when(SMALL).then(col("i") + col("j")),
    "i - j": when(SMALL).then(col("i") - col("j")),
    "i * j": when(SMALL).then(col("i") * col("j")).otherwise(lit(0)),
    "5 - i": when(SMALL).then(5 - col("i")),
    "duration of ticks": rc.duration(rc.Interval(col("i"), col("j"), is_ticks=True)),
    "i / j": col("i") / col("j"),
    "x / y": col("x") / col("y"),
    "upper": col("s").str.to_uppercase(),
    "length": col("s").str.len_chars(),
    "n + 1": col("n") + 1,
    "abs": col("x").abs(),
    "x is_in": col("x").is_in([1.5, 0.0]),
    "n == x": col("n") == col("x"),
    "as float": col("n").cast(nw.Float64),
    "mod": col("n") % 3,
    "duration": rc.duration(("i", "j")),
    "a cast in a branch": when(SMALL).then(col("i").cast("int8")).otherwise(lit(0, "int8")),
    "// in a branch": when(SMALL).then(col("i") // col("j")),
    "round": col("x").round(),
    "nearest float": col("i").cast("float64"),
    "mean": rc.mean_horizontal("i", "n"),
    "i > x": col("i") > col("x"),
}


def _events() -> list[Event]:
    texts, truths, narrow = ["a", "b", "ß", "", None], [True, False, None], [0, 127, -128, 5, None]
    pairs = [*itertools.product(WHOLE, WHOLE), *([(1, 2)] * 15)]
    floats = list(itertools.product(FLOATS, FLOATS))
    return [
        Event(
            {
                **dict(zip("ij", pairs[n % len(pairs)], strict=True)),
                **dict(zip("xy", floats[n % len(floats)], strict=True)),
                "s": texts[n % 5],
                "b": truths[n % 3],
                "n": narrow[(n // 2) % 5],
            },
            n,
            n + 1,
        )
        for n in range(64)
    ]


@pytest.mark.parametrize("name", NATIVE)
def test_spark_has_these(name: str, spark: Any) -> None:
    from pyspark.sql import functions as f

    assert to_spark(expression(NATIVE[name]), SCHEMA, f.col) is not None


@pytest.mark.parametrize("name", BY_ARROW)
def test_these_are_left_to_arrow(name: str, spark: Any) -> None:
    from pyspark.sql import functions as f

    assert to_spark(expression(BY_ARROW[name]), SCHEMA, f.col) is None


@pytest.mark.parametrize("setting", ["spark", "as_users_run_it"], ids=["interpreted", "compiled"])
def test_values_and_types_are_those_of_arrow(
    spark: Any, request: pytest.FixtureRequest, setting: str
) -> None:
    """What Spark compiles must agree, and what it interprets too."""
    request.getfixturevalue(setting)
    source, events = rc.source("s", SCHEMA), _events()
    queries = [source.select("i", **NATIVE), source.select("i", **BY_ARROW)]
    queries += [source.where(e).select("i", "x") for e in NATIVE.values() if _is_boolean(e)][::3]
    queries += [source.where(col("x") / col("y") > 1).where(col("i") > 0).select("i", "x")]
    check_as_local(spark, queries, events, SCHEMA)


@pytest.mark.parametrize(
    "written", [col("i") + 1, -col("i"), col("n") * col("n"), rc.sum_horizontal("i", "j")], ids=str
)
def test_what_does_not_fit_is_the_same_error(spark: Any, written: rc.Expr) -> None:
    source, events = rc.source("s", SCHEMA), _events()
    inserts = [rc.Insert(e.payload, e.vs, e.ve) for e in events]
    queries = [source.select(e=written), source.where(written > 0)]
    for query in queries:
        with pytest.raises(StreamError, match=r"does not fit in int(8|64), as of ") as here:
            rc.run(query, {"s": inserts}, close=True)
        with pytest.raises(PySparkException) as there:
            batch(spark, query, {"s": frame(spark, events, SCHEMA)}).collect()
        assert rc.spark.reason_of(there.value).split(", as of")[0] == here.value.reason.split(", as of")[0]


def _is_boolean(e: Any) -> bool:
    return bool(rc.source("s", SCHEMA).select(e=e).schema.field("e").type == pa.bool_())
