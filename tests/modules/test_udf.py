"""User-defined functions: in filters, projections, keys, aggregates and join conditions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

import recension as rc
from recension.core.errors import RecensionError, SchemaError

S: Any = rc.source("s", {"k": "string", "v": "int64"})
EVENTS = [rc.Insert({"k": k, "v": v}, t, t + 2) for t, (k, v) in enumerate([("a", 1), ("b", None), ("a", 5)])]


@rc.udf(result="bool")
def is_odd(v: int | None) -> bool | None:
    return None if v is None else v % 2 == 1


@rc.udf(result="float64", over="numpy")
def half(v: Any) -> Any:
    return v / 2


@rc.udf(result="int64", over="arrow")
def plus(a: Any, b: Any) -> Any:
    return pc.add(a, b)


@rc.udf(result="string")
def named(k: str, v: int | None) -> str:
    return f"{k}{v}"


def _rows(query: Any, **more: Any) -> list[dict[str, Any]]:
    return [dict(e.payload) for e in rc.run(query, {"s": EVENTS, **more}, close=True).history().to_events()]


def test_in_a_filter_and_in_columns() -> None:
    assert [row["v"] for row in _rows(S.where(is_odd("v") & (rc.col("v") > 1)))] == [5]
    assert [row["n"] for row in _rows(S.select(n=named("k", rc.col("v") * 2)))] == ["a2", "bNone", "a10"]
    assert [row["p"] for row in _rows(S.select(p=plus("v", "v")))] == [2, None, 10]
    found = [row["h"] for row in _rows(S.where(~rc.col("v").is_null()).select(h=half("v") + 1))]
    assert found == [1.5, 3.5]


def test_as_a_key_and_in_an_aggregate() -> None:
    sums = S.group_by(odd=is_odd("v")).tumbling(10).agg(s=rc.sum(plus("v", "v")))
    assert sorted(map(str, _rows(sums))) == ["{'odd': None, 's': None}", "{'odd': True, 's': 12}"]


def test_in_a_join_condition() -> None:
    t = rc.source("t", {"k": "string", "w": "int64"})
    joined = S.join(t, on="k", where=is_odd(rc.col("v") + rc.col("w")))
    right = [rc.Insert({"k": "a", "w": w}, 0, 9) for w in (2, 3)]
    assert sorted((row["v"], row["w"]) for row in _rows(joined, t=right)) == [(1, 2), (5, 2)]


def test_it_is_shown_as_it_is_written() -> None:
    assert S.select(n=named("k", rc.col("v") * 2)).plan.label == "select n = named(k, v * 2)"
    assert S.where(is_odd("v")).plan is S.where(is_odd("v")).plan


def test_what_goes_wrong_names_the_function() -> None:
    @rc.udf(result="int64")
    def broken(v: int | None) -> int:
        return v + 1  # type: ignore[operator]

    with pytest.raises(RecensionError, match=r"udf broken: TypeError: .*; it was given \(None\)"):
        _rows(S.select(n=broken("v")))
    vast = rc.udf(lambda k, v: 1 // 0, result="int64", over="arrow")
    with pytest.raises(
        RecensionError,
        match=r"^s: row 1: udf <lambda>: ZeroDivisionError: .*; it was given \('a', 1\)$",
    ):
        _rows(S.select(n=vast("k", "v")))
    short = rc.udf(lambda v: v[:1], result="int64", over="arrow")
    with pytest.raises(RecensionError, match="s: row 2: udf <lambda>: 2 rows went in and 1 came out"):
        _rows(S.select(n=short("v")))
    text = rc.udf(lambda v: np.array(["x"] * len(v)), result="int64", over="numpy")
    with pytest.raises(RecensionError, match="udf <lambda> is declared to give int64, but"):
        _rows(S.select(n=text("v")))
    with pytest.raises(SchemaError, match="udf: over is one of 'rows', 'numpy', 'arrow', not 'cells'"):
        rc.udf(lambda v: v, result="int64", over="cells")  # type: ignore[call-overload]
    with pytest.raises(SchemaError, match="udf: 7 is not a function"):
        rc.udf(7, result="int64")  # type: ignore[call-overload]
