from __future__ import annotations

import math

from recension.core.events import Event
from recension.denote.order import canonical, key_of, payload_order, value_order


def test_nulls_first_nan_last() -> None:
    assert sorted([math.inf, None, -math.inf, 0], key=value_order) == [None, -math.inf, 0, math.inf]
    assert value_order(math.nan) > value_order(math.inf)
    assert value_order(math.nan) == value_order(float("nan"))


def test_lists_and_structs() -> None:
    lists = [[2], [None, 9], [1, 2], [], [1]]
    assert sorted(lists, key=value_order) == [[], [None, 9], [1], [1, 2], [2]]
    assert value_order({"a": 1, "b": None}) < value_order({"a": 1, "b": 0})


def test_payloads_go_column_by_column() -> None:
    assert payload_order({"a": 1, "b": 9}) < payload_order({"a": 2, "b": 0})
    assert payload_order({"a": None, "b": 9}) < payload_order({"a": 1, "b": 0})


def test_keys_are_hashable_and_equal_for_equal_values() -> None:
    one, other = {"k": [math.nan, None], "z": 0.0}, {"z": -0.0, "k": [math.nan, None]}
    assert len({key_of(one, ["k", "z"]), key_of(other, ["k", "z"])}) == 1


def test_canonical_goes_by_start_then_end_then_payload() -> None:
    ordered = [Event({"x": 9}, -1, 5), Event({"x": 8}, 0, 3), Event({"x": None}, 0), Event({"x": 1}, 0)]
    assert canonical(reversed(ordered)) == ordered
