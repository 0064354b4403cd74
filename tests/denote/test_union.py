from __future__ import annotations

import pytest

from recension.core.errors import SchemaError
from recension.core.events import Event
from recension.denote import union

EVENT = Event({"a": 1, "b": 2}, 0, 5)


def test_keeps_duplicates() -> None:
    assert union([EVENT], [EVENT]) == [EVENT, EVENT]


def test_takes_the_columns_in_the_order_of_the_left() -> None:
    result = union([EVENT], [Event({"b": 2, "a": 1}, 3, 4)])
    assert [list(event.payload) for event in result] == [["a", "b"], ["a", "b"]]


def test_empty_sides() -> None:
    assert union([], []) == []
    assert union([EVENT], []) == union([], [EVENT]) == [EVENT]


def test_refuses_other_columns() -> None:
    with pytest.raises(SchemaError, match="union of columns"):
        union([EVENT], [Event({"a": 1}, 0)])
