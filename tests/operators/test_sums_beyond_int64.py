"""Sums of whole numbers: exact to the ends of int64, and an error one beyond, however they came about."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import recension as rc
from recension.core.events import Insert, Retract

LOW, HIGH = -(2**63), 2**63 - 1
SOURCE = rc.source("s", {"k": "string", "v": "int64"})
QUERIES: dict[str, Any] = {
    "snapshots": SOURCE.agg(s=rc.sum("v")),
    "eager": SOURCE.group_by("k").agg(s=rc.sum("v"), speculate="eager"),
    "tumbling": SOURCE.tumbling(10).agg(n=rc.count(), s=rc.sum("v")),
    "hopping": SOURCE.group_by("k").hopping(10, 5).agg(s=rc.sum("v"), a=rc.mean("v")),
    "count windows": SOURCE.count_window(1).agg(s=rc.sum("v")),
}
VALUES = st.lists(
    st.one_of(st.none(), st.integers(LOW, HIGH), st.integers(-2, 2), st.sampled_from([LOW, HIGH, 2**62])),
    min_size=1,
    max_size=5,
)


def inserted(values: list[int | None]) -> list[Insert]:
    return [Insert({"k": "a", "v": value}, 1, 4) for value in values]


@pytest.mark.parametrize("name", QUERIES)
@given(VALUES)
def test_a_sum_is_exact_or_an_error(name: str, values: list[int | None]) -> None:
    known = [value for value in values if value is not None]
    total = sum(known) if known else None
    if total is None or LOW <= total <= HIGH:
        found = rc.run(QUERIES[name], {"s": inserted(values)}, close=True).history().to_events()
        assert {e.payload["s"] for e in found} == {total}
        return
    with pytest.raises(rc.RecensionError, match=r"the sum s .*does not fit in int64"):
        rc.run(QUERIES[name], {"s": inserted(values)}, close=True)


def test_the_step_and_the_group_are_named() -> None:
    query = SOURCE.group_by("k").tumbling(10).agg(s=rc.sum("v"))
    feed = [Insert({"k": k, "v": HIGH}, t, t + 1) for k, t in (("a", 1), ("b", 2), ("b", 3))]
    with pytest.raises(rc.RecensionError, match=r"s = sum\(v\) by k.*the sum s of \{'k': 'b'\} does not fit"):
        rc.run(query, {"s": feed}, close=True)


def test_what_is_taken_back_in_time_does_no_harm() -> None:
    feed = [*inserted([HIGH, HIGH, -5]), Retract({"k": "a", "v": HIGH}, 1, 4, 1)]
    (found,) = rc.run(SOURCE.agg(s=rc.sum("v")), {"s": feed}, close=True).history().to_events()
    assert found.payload["s"] == HIGH - 5


def test_narrow_numbers_have_far_to_go() -> None:
    source = rc.source("s", {"v": "int32"})
    feed = [Insert({"v": 2**31 - 1}, 1, 2)] * 5
    (found,) = rc.run(source.agg(s=rc.sum("v")), {"s": feed}, close=True).history().to_events()
    assert found.payload["s"] == 5 * (2**31 - 1)


UNSIGNED = rc.source("s", {"v": "uint64"})


def unsigned(query: Any, values: list[int]) -> list[Any]:
    feed = [Insert({"v": value}, 1, 4) for value in values]
    return [e.payload for e in rc.run(query, {"s": feed}, close=True).history().to_events()]


@given(st.lists(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 2)), min_size=1, max_size=5))
@example([2**63])
def test_sums_of_numbers_without_a_sign(values: list[int]) -> None:
    query = UNSIGNED.agg(s=rc.sum("v"))
    if sum(values) <= HIGH:
        assert unsigned(query, values) == [{"s": sum(values)}]
        return
    with pytest.raises(rc.RecensionError, match=r"s = sum\(v\).*the sum s does not fit in int64"):
        unsigned(query, values)


@pytest.mark.parametrize(
    "values", [[2**63], [2**64 - 1, 2**64 - 1], [2**64 - 1, 1], [2**63 + 1, 2**63 - 1], [2**64 - 1025, 0]]
)
def test_means_of_numbers_without_a_sign(values: list[int]) -> None:
    assert unsigned(UNSIGNED.agg(m=rc.mean("v")), values) == [{"m": sum(values) / len(values)}]
