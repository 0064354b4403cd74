from __future__ import annotations

import pytest

from recension.core.errors import SchemaError
from recension.core.events import Event
from recension.denote import drop, map_payload, rename, select, with_columns

HISTORY = [Event({"x": 1, "y": 2}, 0, 5), Event({"x": 1, "y": 3}, 0, 5)]


def columns(history: list[Event]) -> list[str]:
    return list(history[0].payload)


def test_select_orders_columns_then_expressions() -> None:
    result = select(HISTORY, "y", "x", z=lambda p: p["x"] + p["y"])
    assert columns(result) == ["y", "x", "z"]
    assert [event.payload["z"] for event in result] == [3, 4]


def test_payloads_that_become_equal_stay_two_events() -> None:
    assert select(HISTORY, "x") == [Event({"x": 1}, 0, 5)] * 2


def test_a_column_may_be_called_history() -> None:
    assert select(HISTORY[:1], history=lambda p: p["x"]) == [Event({"history": 1}, 0, 5)]


def test_with_columns_replaces_in_place_and_appends() -> None:
    result = with_columns(HISTORY, x=lambda p: p["x"] * 10, z=lambda p: p["x"])
    assert columns(result) == ["x", "y", "z"]
    assert result[0].payload == {"x": 10, "y": 2, "z": 1}


def test_rename_may_exchange_names() -> None:
    result = rename(HISTORY[:1], {"x": "y", "y": "x"})
    assert list(result[0].payload.items()) == [("y", 1), ("x", 2)]


def test_rename_refuses_one_name_twice() -> None:
    with pytest.raises(SchemaError, match="same name"):
        rename(HISTORY, {"x": "y"})


def test_drop() -> None:
    assert drop(HISTORY, "x") == [Event({"y": 2}, 0, 5), Event({"y": 3}, 0, 5)]


def test_map_payload() -> None:
    assert map_payload(HISTORY[:1], lambda p: {"k": 7}) == [Event({"k": 7}, 0, 5)]
