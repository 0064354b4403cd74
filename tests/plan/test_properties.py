"""The property rule of every node: what passes, what is lost, and what a step brings about itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

import recension as rc
from recension import Properties, col
from recension.core.errors import RecensionError
from recension.plan.properties import NOTHING_KNOWN, describe_properties, meet

STRICT = Properties(is_strictly_increasing=True, cti_frequency=30)
PERFECT = Properties(is_insert_only=True, is_ordered=True, has_deterministic_ties=True, has_key=True)
ORDERED = Properties(is_ordered=True, has_key=True, is_shrink_only=True, cti_frequency=30)
KEYED_POINTS = Properties(is_insert_only=True, has_key=True, is_point=True)


def source(known: Properties = NOTHING_KNOWN, name: str = "s") -> rc.Stream:
    return rc.source(name, {"k": "string", "x": "int64"}, properties=known)


def test_consequences_are_filled_in() -> None:
    assert Properties(is_strictly_increasing=True) == Properties(
        is_insert_only=True,
        is_ordered=True,
        is_strictly_increasing=True,
        has_deterministic_ties=True,
        has_key=True,
        is_shrink_only=True,
    )
    assert Properties(is_point=True) == Properties(constant_duration=1)
    assert Properties(constant_duration=5).is_shrink_only
    assert Properties(is_insert_only=True).is_shrink_only
    assert not Properties(cti_frequency=3).is_shrink_only


def test_contradictions_are_refused() -> None:
    with pytest.raises(RecensionError, match="point events live for 1 tick, not 5"):
        Properties(is_point=True, constant_duration=5)
    with pytest.raises(RecensionError, match="constant_duration is a number of ticks, not 0"):
        Properties(constant_duration=0)


def test_meet_is_what_all_have() -> None:
    assert meet(STRICT, PERFECT) == PERFECT
    assert meet(Properties(constant_duration=5), Properties(constant_duration=6)) == Properties(
        is_shrink_only=True
    )


def test_in_words() -> None:
    assert describe_properties(NOTHING_KNOWN) == "nothing"
    assert describe_properties(KEYED_POINTS) == "insert-only, (vs, payload) is a key, point events"
    assert describe_properties(Properties(cti_frequency=3)) == "a CTI at most 3 behind"


@pytest.mark.parametrize("known", [NOTHING_KNOWN, STRICT, PERFECT, ORDERED, KEYED_POINTS])
def test_span_steps_keep_order_and_times(known: Properties) -> None:
    s = source(known)
    unkeyed = replace(known, has_key=False)  # a strictly increasing stream keeps its key whatever happens
    assert s.where(col("x") > 0).properties == known
    assert s.with_columns(y=col("x") + 1).properties == known
    assert s.rename({"x": "y"}).properties == known
    assert s.drop("x").properties == unkeyed
    assert s.with_columns(x=col("x") + 1).properties == unkeyed
    assert s.map(lambda row: {"x": row["x"]}, {"x": "int64"}).properties == unkeyed


def test_fused_steps_are_known_as_well_as_single_ones() -> None:
    s = source(PERFECT).where(col("x") > 0).with_columns(y=col("x") + 1)
    assert s.properties == PERFECT


def test_union_interleaves() -> None:
    both = source(STRICT).union(source(PERFECT, "t"))
    assert both.properties == Properties(is_insert_only=True)
    assert source().union(source(PERFECT, "t")).properties == NOTHING_KNOWN
    points = source(KEYED_POINTS).union(source(KEYED_POINTS, "t"))
    assert points.properties == Properties(is_insert_only=True, is_point=True)


def test_distinct_makes_a_key_and_promises_nothing_else() -> None:
    assert source(STRICT).distinct().properties == Properties(has_key=True)


def test_shift_moves_everything_together() -> None:
    for known in (STRICT, ORDERED, KEYED_POINTS):
        assert source(known).shift(-5).properties == known


@pytest.mark.parametrize("known", [NOTHING_KNOWN, STRICT, ORDERED])
def test_a_moving_window_leaves_only_removals(known: Properties) -> None:
    assert source(known).set_duration(10).properties == replace(known, constant_duration=10)
    assert source(known).to_points().properties == replace(known, is_point=True)
    assert source(known).inserts().properties == replace(known, is_shrink_only=True)


def test_extend_disturbs_the_order_of_retractions() -> None:
    assert source(STRICT).extend(5).properties == STRICT
    assert source(STRICT).extend(-5).properties == replace(STRICT, cti_frequency=None)
    assert source(ORDERED).extend(5).properties == Properties(has_key=True, is_shrink_only=True)
    assert source(KEYED_POINTS).extend(4).properties == replace(
        KEYED_POINTS, is_point=False, constant_duration=5
    )
    assert source(KEYED_POINTS).extend(-1).properties.constant_duration is None


def test_windows_that_overlap_are_of_no_one_duration() -> None:
    """Cut at the beginning of time, they share a start: one may follow another there as if it were longer."""
    s = source(PERFECT)
    assert s.tumbling(10).agg(n=rc.count()).properties.constant_duration == 10
    hopping = s.hopping(10, 5).agg(n=rc.count(), speculate="eager")
    assert hopping.properties.constant_duration is None
    assert hopping.properties.is_shrink_only
    assert not hopping.align(7).properties.is_shrink_only
    assert s.tumbling(10).agg(n=rc.count(), speculate="eager").align(7).properties.is_shrink_only


def test_hopping_makes_starts_equal() -> None:
    hopped = Properties(
        is_insert_only=True, is_ordered=True, has_deterministic_ties=True, constant_duration=10
    )
    assert source(STRICT).hop_lifetime(10, 5).properties == hopped
    assert source(ORDERED).hop_lifetime(10, 5).properties == Properties(is_ordered=True, constant_duration=10)
    loose = Properties(is_insert_only=True, has_deterministic_ties=True)
    assert not source(loose).hop_lifetime(10, 5).properties.has_deterministic_ties


def test_deletes_are_in_order_only_for_lives_of_one_length() -> None:
    assert source(STRICT).deletes().properties == Properties(is_insert_only=True)
    assert source(STRICT).set_duration(9).deletes().properties == replace(STRICT, cti_frequency=None)
    assert source(ORDERED).set_duration(9).deletes().properties == Properties(
        has_key=True, is_shrink_only=True
    )


def test_the_general_form_promises_little() -> None:
    moved = source(STRICT).alter_lifetime(start=lambda vs, ve: ve, duration=lambda vs, ve: ve - vs)
    assert moved.properties == Properties(is_insert_only=True)
    same_start = source(STRICT).alter_lifetime(duration=lambda vs, ve: (ve - vs) // 2)
    assert same_start.properties == replace(STRICT, cti_frequency=None)
    assert not source(ORDERED).alter_lifetime(duration=lambda vs, ve: ve - vs).properties.is_ordered


def test_clip_keeps_a_key_and_shrinks_while_nothing_is_taken_back() -> None:
    clipped = source(STRICT).clip(by=source(PERFECT, "t"))
    assert clipped.properties == Properties(has_key=True, is_shrink_only=True)
    assert source(STRICT).clip(by=source(ORDERED, "t")).properties == Properties(has_key=True)


def test_inner_join() -> None:
    assert source(STRICT).join(source(PERFECT, "t"), on="k").properties == Properties(is_insert_only=True)
    assert source(STRICT).join(source(ORDERED, "t"), on="k").properties == Properties(is_shrink_only=True)
    assert source(STRICT).join(source(name="t"), on="k").properties == NOTHING_KNOWN
    points = source(KEYED_POINTS).join(source(KEYED_POINTS, "t"), on="k")
    assert points.properties == KEYED_POINTS
    mixed = source(KEYED_POINTS).join(source(STRICT, "t"), on="k")
    assert mixed.properties == Properties(is_insert_only=True, is_point=True)


def test_semi_join() -> None:
    assert source(STRICT).join(source(STRICT, "t"), on="k", how="semi").properties == NOTHING_KNOWN
    points = source(KEYED_POINTS).join(source(STRICT, "t"), on="k", how="semi")
    assert points.properties == KEYED_POINTS


def test_anti_join() -> None:
    anti = source(STRICT).join(source(PERFECT, "t"), on="k", how="anti")
    assert anti.properties == Properties(is_shrink_only=True)
    assert source(STRICT).join(source(ORDERED, "t"), on="k", how="anti").properties == NOTHING_KNOWN
    points = source(KEYED_POINTS).join(source(STRICT, "t"), on="k", how="anti")
    assert points.properties == Properties(is_point=True, has_key=True)


def test_left_join() -> None:
    left = source(KEYED_POINTS).join(source(STRICT, "t"), on="k", how="left")
    assert left.properties == Properties(is_point=True)
    assert source(STRICT).join(source(STRICT, "t"), on="k", how="left").properties == Properties(
        is_shrink_only=True
    )


def test_perfect_aggregate() -> None:
    assert source(PERFECT).agg(n=rc.count()).properties == Properties(is_strictly_increasing=True)
    revised = Properties(has_key=True, is_shrink_only=True)
    assert source(ORDERED).agg(n=rc.count()).properties == revised
    assert source().agg(n=rc.count()).properties == revised


def test_a_grouped_aggregate_is_never_in_order() -> None:
    grouped = source(STRICT).group_by("k").agg(n=rc.count())
    assert grouped.properties == Properties(is_insert_only=True, has_key=True)
    ordered = source(STRICT).group_by("k").agg(n=rc.count(), speculate="ordered")
    assert ordered.properties == Properties(has_key=True, is_shrink_only=True)


def test_rows_of_one_snapshot_differ_in_their_rank() -> None:
    top = source(PERFECT).agg(rc.top_k(3, by="x"))
    assert top.properties == PERFECT
    assert source(PERFECT).agg(rc.top_k(1, by="x")).properties.is_strictly_increasing


def test_ordered_and_eager_aggregates() -> None:
    ordered = source(ORDERED).agg(n=rc.count(), speculate="ordered")
    assert ordered.properties == Properties(is_ordered=True, has_key=True)
    eager = source(STRICT).agg(n=rc.count(), speculate="eager")
    assert eager.properties == Properties(has_key=True, is_shrink_only=True)
    assert source(ORDERED).agg(n=rc.count(), speculate="eager").properties == Properties(has_key=True)


@pytest.mark.parametrize("known", [NOTHING_KNOWN, STRICT, PERFECT, ORDERED, KEYED_POINTS])
def test_cleanse_makes_a_perfect_stream_with_known_ties(known: Properties) -> None:
    cleansed = source(known).cleanse().properties
    assert cleansed.is_perfect
    assert cleansed.has_deterministic_ties
    assert (cleansed.has_key, cleansed.constant_duration) == (known.has_key, known.constant_duration)
    assert cleansed.cti_frequency is None


def test_align_orders_only_with_an_endless_block() -> None:
    assert source().align().properties == Properties(is_ordered=True)
    assert source().align(5).properties == NOTHING_KNOWN
    assert source(ORDERED).align(5).properties == Properties(has_key=True, cti_frequency=30)
    for known in (STRICT, PERFECT):
        assert source(known).align(5).properties == known
    assert source(ORDERED).align(0).properties == ORDERED


def test_a_finite_memory_bounds_how_far_ctis_lag() -> None:
    assert source().finalize().properties == NOTHING_KNOWN
    assert source().finalize(7).properties == Properties(cti_frequency=7)
    assert source(KEYED_POINTS).finalize().properties == KEYED_POINTS
    assert source(STRICT).finalize(7).properties == replace(STRICT, cti_frequency=7)


def test_moving_late_events_breaks_more_than_leaving_them_out() -> None:
    assert source(KEYED_POINTS).advance_time(5).properties == replace(KEYED_POINTS, cti_frequency=5)
    moved = source(KEYED_POINTS).advance_time(5, late="adjust").properties
    assert moved == Properties(is_insert_only=True, cti_frequency=5)
    assert source(STRICT).advance_time(5, events=2, late="adjust").properties == STRICT
    assert source().advance_time(by=source(name="t")).properties == NOTHING_KNOWN
