"""The six examples of the LMerge technical report, §IV-G, with ruling B15 where it corrects them."""

from __future__ import annotations

import recension as rc
from recension import Properties
from recension.plan.merge import lmerge_case

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
