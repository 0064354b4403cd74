"""The six examples of the LMerge technical report, §IV-G, with ruling B15 where it corrects them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import recension as rc
from recension import Properties
from recension.plan.merge import Merge, lmerge_case
from recension.testing import assert_equivalent

IN_ORDER = Properties(is_insert_only=True, is_ordered=True)


def feed(known: Properties | None = None) -> rc.Stream:
    return rc.source("feed", {"machine": "string", "load": "float64"}, properties=known)


def case(stream: rc.Stream) -> str:
    return lmerge_case(stream.properties, stream.properties).case


def test_1_what_the_input_streams_publish() -> None:
    assert case(feed(Properties(is_strictly_increasing=True))) == "R0"
    assert case(feed(Properties(is_insert_only=True, is_ordered=True, has_deterministic_ties=True))) == "R1"
    assert case(feed(Properties(is_insert_only=True, is_ordered=True, has_key=True))) == "R2"
    assert case(feed(Properties(has_key=True))) == "R3"
    assert case(feed(IN_ORDER)) == "R4"
    assert case(feed()) == "R4"


def test_2_an_operator_that_puts_elements_in_order() -> None:
    """A cleansing operator's output: insert-only, by (vs, payload, ve). Lifetimes may change afterwards."""
    cleansed = Properties(is_insert_only=True, is_ordered=True, has_deterministic_ties=True)
    assert case(feed(cleansed).set_duration(10)) == "R1"


def test_3_a_windowed_count_over_a_stream_in_order() -> None:
    assert case(feed(IN_ORDER).set_duration(60).agg(n=rc.count())) == "R0"


def test_4_a_sliding_top_k_over_a_stream_in_order() -> None:
    assert case(feed(IN_ORDER).set_duration(60).agg(rc.top_k(3, by="load"))) == "R1"


def test_5_a_grouped_aggregate_over_a_stream_in_order() -> None:
    """The paper says R2; grouped snapshots are insert-only but not in order, so it is R3 (ruling B15)."""
    counts = feed(IN_ORDER).set_duration(60).group_by("machine").agg(n=rc.count())
    assert counts.properties.is_insert_only
    assert case(counts) == "R3"


def test_6_a_grouped_aggregate_over_a_disordered_stream() -> None:
    assert case(feed().set_duration(60).group_by("machine").agg(n=rc.count())) == "R3"


def test_the_reason_says_what_is_missing() -> None:
    counts = feed().group_by("machine").agg(n=rc.count())
    assert lmerge_case(counts.properties) == (
        "R3",
        "(vs, payload) is a key, but there may be retractions and order is not assured",
    )
    assert lmerge_case(feed().properties).reason == "(vs, payload) may not be a key"


def test_inputs_are_taken_together() -> None:
    strict, keyed = Properties(is_strictly_increasing=True), Properties(has_key=True)
    assert lmerge_case(strict, strict).case == "R0"
    assert lmerge_case(strict, keyed).case == "R3"


IN_FIXED_ORDER = Properties(is_insert_only=True, is_ordered=True, has_deterministic_ties=True)
Query = Callable[[rc.Stream], rc.Stream]


def double(row: Any) -> dict[str, object]:
    return {"z": 2 * row["v"]}


def sources() -> tuple[rc.Stream, rc.Stream]:
    a, b = (rc.source(name, {"v": "int64"}, properties=IN_FIXED_ORDER) for name in ("a", "b"))
    return a, b


def merged_case(first: Query, second: Query) -> str:
    a, b = sources()
    plan = rc.merge(first(a), second(b)).plan
    assert isinstance(plan, Merge)
    return plan.choose_case().case


@pytest.mark.parametrize(
    "query",
    [
        lambda s: s,
        lambda s: s.map(double, {"z": "int64"}),
        lambda s: s.select(z=-rc.col("v")).set_duration(5),
        lambda s: s.group_by("v").apply(lambda group: group.set_duration(3)).cleanse(),
        lambda s: s.union(s.set_duration(5)).cleanse(),
    ],
)
def test_copies_of_one_plan_have_the_same_order_of_ties(query: Query) -> None:
    assert merged_case(query, query) == "R1"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda row: {"z": row["v"]}, lambda row: {"z": -row["v"]}),
        (double, lambda row: {"z": 2 * row["v"]}),
    ],
)
def test_maps_by_different_functions_may_order_ties_differently(
    first: Callable[[Any], Any], second: Callable[[Any], Any]
) -> None:
    maps = [lambda s, fn=fn: s.map(fn, {"z": "int64"}) for fn in (first, second)]
    assert merged_case(*maps) == "R4"


def test_expressions_are_compared_by_structure() -> None:
    assert merged_case(lambda s: s.select(z=rc.col("v")), lambda s: s.select(z=-rc.col("v"))) == "R4"
    assert merged_case(lambda s: s.select(z=-rc.col("v")), lambda s: s.select(z=-rc.col("v"))) == "R1"


def test_a_merge_of_different_maps_keeps_both_events() -> None:
    """Both stand for {z: 1, z: 2}, and show ties in opposite order."""
    a, b = sources()
    query = rc.merge(
        a.map(lambda row: {"z": row["v"]}, {"z": "int64"}),
        b.map(lambda row: {"z": -row["v"]}, {"z": "int64"}),
    )
    session = rc.session(query)
    session.push("a", [rc.Insert({"v": 1}, 0, 5)])
    session.push("b", [rc.Insert({"v": -2}, 0, 5)])
    session.push("b", [rc.Insert({"v": -1}, 0, 5), rc.Cti(9)])
    session.push("a", [rc.Insert({"v": 2}, 0, 5), rc.Cti(9)])
    assert_equivalent(session.read().history(), [rc.Event({"z": z}, 0, 5) for z in (1, 2)])
