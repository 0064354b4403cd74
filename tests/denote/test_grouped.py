from __future__ import annotations

import math

from recension.core.events import Event
from recension.denote import agg, count, grouped, set_duration, snapshot, where


def test_keys_come_first_in_the_order_asked_for() -> None:
    history = [Event({"x": 1, "a": 2, "b": 3}, 0, 5)]
    result = grouped(history, ["b", "a"], lambda group: set_duration(group, 1))
    assert [list(event.payload) for event in result] == [["b", "a", "x"]]


def test_null_and_nan_are_groups() -> None:
    keys = [None, math.nan, float("nan"), None, 1.0, None]
    history = [Event({"k": key}, 0, 5) for key in keys]
    result = grouped(history, "k", lambda group: snapshot(group, agg(n=count())))
    assert [event.payload["n"] for event in result] == [3, 2, 1]


def test_a_group_may_give_nothing() -> None:
    history = [Event({"k": 1}, 0, 5), Event({"k": 2}, 0, 5)]
    assert grouped(history, "k", lambda group: where(group, lambda p: p["k"] == 2)) == history[1:]


def test_empty() -> None:
    assert grouped([], "k", lambda group: group) == []
