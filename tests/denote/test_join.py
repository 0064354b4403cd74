from __future__ import annotations

import math

import pytest

from recension.core.errors import SchemaError
from recension.core.events import Event
from recension.core.ticks import FOREVER
from recension.denote import canonical, join

NAN = float("nan")


def test_lifetimes_are_intersected_and_touching_ones_do_not_join() -> None:
    left = [Event({"k": 1, "x": "l"}, -5, 5)]
    right = [
        Event({"k": 1, "y": y}, vs, ve) for y, vs, ve in [(1, -9, -5), (2, -9, 0), (3, 4, FOREVER), (4, 5, 9)]
    ]
    assert join(left, right, on="k") == [
        Event({"k": 1, "x": "l", "y": 2}, -5, 0),
        Event({"k": 1, "x": "l", "y": 3}, 4, 5),
    ]


def test_endless_pairs_stay_endless() -> None:
    assert join([Event({"k": 1}, 2)], [Event({"k": 1}, 7)], on="k") == [Event({"k": 1}, 7, FOREVER)]


def test_duplicates_multiply() -> None:
    assert len(join([Event({"k": 1}, 0, 5)] * 2, [Event({"k": 1}, 0, 5)] * 3, on="k")) == 6


def test_clashing_columns_get_the_suffix_and_where_sees_it() -> None:
    left, right = [Event({"k": 1, "x": 2}, 0, 9)], [Event({"k": 1, "x": x}, 0, 9) for x in (1, 3)]
    result = join(left, right, on="k", where=lambda p: p["x_new"] > p["x"], suffix="_new")
    assert [list(event.payload.items()) for event in result] == [[("k", 1), ("x", 2), ("x_new", 3)]]


def test_a_suffix_that_clashes_again_is_refused() -> None:
    with pytest.raises(SchemaError, match="suffix"):
        join([Event({"x": 1, "x_right": 1}, 0)], [Event({"x": 1}, 0)])


def test_several_keys() -> None:
    left = [Event({"a": 1, "b": 1}, 0, 5), Event({"a": 1, "b": 2}, 0, 5)]
    right = [Event({"b": 2, "a": 1, "c": 0}, 0, 5)]
    assert join(left, right, on=["a", "b"]) == [Event({"a": 1, "b": 2, "c": 0}, 0, 5)]


def test_without_keys_everything_that_overlaps_joins() -> None:
    assert len(join([Event({"x": 1}, 0, 5)] * 2, [Event({"y": 1}, 4, 9)])) == 2


def test_null_keys_match_nothing_and_nan_matches_nan() -> None:
    left = [Event({"k": None}, 0, 5), Event({"k": NAN}, 0, 5)]
    right = [Event({"k": None}, 0, 5), Event({"k": math.nan * 1}, 0, 5)]
    assert [math.isnan(event.payload["k"]) for event in join(left, right, on="k")] == [True]
    assert [event.payload["k"] for event in join(left, right, on="k", how="anti")] == [None]


def test_null_in_one_of_several_keys_matches_nothing() -> None:
    rows = [Event({"a": 1, "b": None}, 0, 5)]
    assert join(rows, rows, on=["a", "b"]) == []


RIGHT = [Event({"k": 1, "y": y}, vs, ve) for y, vs, ve in [(1, 2, 4), (2, 4, 6), (3, 5, 7), (4, 20, 30)]]


def test_semi_gives_the_maximal_covered_parts() -> None:
    left = [Event({"k": 1}, 0, 25), Event({"k": 2}, 0, 25)]
    assert join(left, RIGHT, on="k", how="semi") == [Event({"k": 1}, 2, 7), Event({"k": 1}, 20, 25)]


def test_anti_gives_the_uncovered_parts() -> None:
    left = [Event({"k": 1}, 0, 25), Event({"k": 2}, 0, 25), Event({"k": 1}, 5, 7), Event({"k": 1}, 6)]
    assert canonical(join(left, RIGHT, on="k", how="anti")) == [
        Event({"k": 1}, 0, 2),
        Event({"k": 2}, 0, 25),
        Event({"k": 1}, 7, 20),
        Event({"k": 1}, 7, 20),
        Event({"k": 1}, 30, FOREVER),
    ]


def test_semi_and_anti_obey_the_predicate() -> None:
    left = [Event({"k": 1}, 0, 10)]
    assert join(left, RIGHT, on="k", how="semi", where=lambda p: p["y"] == 2) == [Event({"k": 1}, 4, 6)]
    assert join(left, RIGHT, on="k", how="anti", where=lambda p: p["y"] == 2) == [
        Event({"k": 1}, 0, 4),
        Event({"k": 1}, 6, 10),
    ]


def test_left_adds_the_anti_parts_with_nulls() -> None:
    left = [Event({"k": 1, "y": 9}, 3, 6)]
    right = [Event({"k": 1, "y": 1}, 4, 5)]
    assert canonical(join(left, right, on="k", how="left")) == [
        Event({"k": 1, "y": 9, "y_right": None}, 3, 4),
        Event({"k": 1, "y": 9, "y_right": 1}, 4, 5),
        Event({"k": 1, "y": 9, "y_right": None}, 5, 6),
    ]


def test_left_with_an_empty_right_side() -> None:
    left = [Event({"k": 1}, 3)]
    assert join(left, [], on="k", how="left", right_columns=["k", "y"]) == [Event({"k": 1, "y": None}, 3)]
    assert join(left, [], on="k") == join(left, [], on="k", how="semi") == []
    assert join(left, [], on="k", how="anti") == left
    assert join([], left, on="k", how="left") == []
