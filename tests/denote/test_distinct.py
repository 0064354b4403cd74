from __future__ import annotations

from recension.core.events import Event
from recension.core.ticks import FOREVER
from recension.denote import canonical, distinct


def test_equal_payloads_that_overlap_or_meet_become_one() -> None:
    history = [
        Event({"x": x}, vs, ve) for x, vs, ve in [(1, 0, 5), (1, 0, 5), (1, 5, 7), (1, 9, 12), (2, 3, 4)]
    ]
    expected = [Event({"x": 1}, 0, 7), Event({"x": 2}, 3, 4), Event({"x": 1}, 9, 12)]
    assert canonical(distinct(history)) == expected


def test_all_columns_matter_and_null_equals_null() -> None:
    history = [Event({"x": 1, "y": y}, 0) for y in (None, None, 2)]
    assert distinct(history) == [Event({"x": 1, "y": None}, 0, FOREVER), Event({"x": 1, "y": 2}, 0, FOREVER)]


def test_empty() -> None:
    assert distinct([]) == []
