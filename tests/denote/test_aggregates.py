from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from recension.core.errors import SchemaError
from recension.core.events import Event
from recension.denote import (
    Aggregate,
    agg,
    aggregate,
    collect,
    count,
    first,
    last,
    max,
    mean,
    min,
    quantile,
    stddev,
    sum,
    top_k,
)


def events(*values: Any) -> list[Event]:
    return [Event({"x": value}, 0, 5) for value in values]


def test_count_counts_events_or_values() -> None:
    assert count()(events(1, None, None)) == 3
    assert count("x")(events(1, None, math.nan)) == 2
    assert count("x")(events(None)) == 0


@pytest.mark.parametrize(
    "compute", [sum("x"), mean("x"), min("x"), max("x"), stddev("x"), quantile("x", 0.5)]
)
def test_null_of_no_value(compute: Aggregate) -> None:
    assert compute(events(None, None)) is None


def test_integer_sums_are_exact() -> None:
    total = sum("x")(events(2**62, 2**62, 1, None))
    assert total == 2**63 + 1
    assert isinstance(total, int)


def test_float_sums_are_correctly_rounded() -> None:
    assert sum("x")(events(*[0.1] * 10)) == 1.0
    assert sum("x")(events(1e16, 1.0, -1e16)) == 1.0


def test_sums_of_infinities() -> None:
    assert sum("x")(events(math.inf, 1.0)) == math.inf
    assert math.isnan(sum("x")(events(math.inf, -math.inf)))
    assert sum("x")(events(1e308, 1e308)) == math.inf


def test_decimals() -> None:
    values = events(Decimal("1.10"), Decimal("2.20"))
    assert sum("x")(values) == Decimal("3.30")
    assert mean("x")(values) == Decimal("1.65")


def test_mean() -> None:
    assert mean("x")(events(1, 2, None)) == 1.5
    assert mean("x")(events(2.0)) == 2.0


def test_min_and_max() -> None:
    assert (min("x")(events(3, None, -1)), max("x")(events(3, None, -1))) == (-1, 3)
    assert (min("x")(events("b", "B", "a")), max("x")(events("b", "B", "a"))) == ("B", "b")


def test_nan_is_the_greatest_number() -> None:
    assert min("x")(events(math.nan, 2.0, 1.0)) == 1.0
    assert math.isnan(max("x")(events(2.0, math.nan, 1.0)))
    assert math.isnan(min("x")(events(math.nan)))


def test_stddev() -> None:
    assert stddev("x")(events(2, 4, 4, 4, 5, 5, 7, 9)) == pytest.approx(math.sqrt(32 / 7))
    assert stddev("x")(events(3, 3, None)) == 0.0
    assert stddev("x")(events(3)) is None
    assert math.isnan(stddev("x")(events(3.0, math.inf)))


@pytest.mark.parametrize(("q", "expected"), [(0.0, 1.0), (0.25, 1.75), (0.5, 2.5), (1.0, 4.0)])
def test_quantile(q: float, expected: float) -> None:
    assert quantile("x", q)(events(4, None, 1, 3, 2)) == expected


def test_quantile_of_one_value_and_of_infinities() -> None:
    assert quantile("x", 0.3)(events(7)) == 7.0
    assert quantile("x", 0.5)(events(math.inf, math.inf, 1.0)) == math.inf


TIED = [
    Event({"x": 3, "y": "b"}, 2, 9),
    Event({"x": 1, "y": "a"}, 2, 9),
    Event({"x": None, "y": "z"}, 2, 9),
    Event({"x": 4, "y": "c"}, 2, 5),
    Event({"x": 5, "y": "d"}, 1),
]


def test_first_last_and_collect_go_by_start_end_payload() -> None:
    assert (first("x")(TIED), last("x")(TIED)) == (5, 3)
    assert collect("x")(TIED) == [5, 4, None, 1, 3]
    assert collect("y")(TIED[::-1]) == ["d", "c", "z", "a", "b"]


def test_first_may_be_null() -> None:
    assert first("x")(events(None, 1)) is None


def test_any_function_of_a_column() -> None:
    assert aggregate(lambda values: len(set(values)), "x")(events(1, 1, None)) == 2


def test_agg_names_in_order() -> None:
    assert [list(row) for row in agg(b=count(), a=sum("x"))(events(1))] == [["b", "a"]]


def ranked(*names: str) -> list[tuple[str, int]]:
    return [(name, rank) for rank, name in enumerate(names, start=1)]


def test_top_k_breaks_ties_by_start_end_payload() -> None:
    tied = [
        Event({"x": 7, "y": "late"}, 3, 4),
        Event({"x": 7, "y": "long"}, 1, 9),
        Event({"x": 7, "y": "b"}, 1, 5),
        Event({"x": 7, "y": "a"}, 1, 5),
        Event({"x": 8, "y": "best"}, 9, 10),
    ]
    rows = top_k(4, by="x")(tied)
    assert [(row["y"], row["rank"]) for row in rows] == ranked("best", "a", "b", "long")
    rows = top_k(4, by="x", descending=False)(tied)
    assert [(row["y"], row["rank"]) for row in rows] == ranked("a", "b", "long", "late")


def test_top_k_keeps_duplicates_and_puts_nulls_last() -> None:
    rows = events(None, 1, 2, 2)
    assert [row["x"] for row in top_k(9, by="x")(rows)] == [2, 2, 1, None]
    assert [row["x"] for row in top_k(9, by="x", descending=False)(rows)] == [1, 2, 2, None]
    assert top_k(0, by="x")(rows) == []


def test_top_k_refuses_a_column_called_rank() -> None:
    with pytest.raises(SchemaError, match="rank"):
        top_k(1, by="rank")([Event({"rank": 1}, 0)])
