from __future__ import annotations

import pytest

from recension.core.errors import StreamError
from recension.core.events import Event
from recension.core.ticks import FOREVER
from recension.denote import canonical, edges


def test_each_reading_lives_until_the_next_of_its_group() -> None:
    readings = [Event({"k": k, "t": t}, ts, ts + 1) for k, t, ts in [("a", 1, 5), ("b", 2, -3), ("a", 3, 1)]]
    assert canonical(edges(readings, "k")) == [
        Event({"k": "b", "t": 2}, -3, FOREVER),
        Event({"k": "a", "t": 3}, 1, 5),
        Event({"k": "a", "t": 1}, 5, FOREVER),
    ]


def test_the_end_of_a_reading_does_not_matter() -> None:
    readings = [Event({"t": 1}, 0, 2), Event({"t": 1}, 7), Event({"t": 2}, 9, 90)]
    assert edges(readings) == [Event({"t": 1}, 0, 7), Event({"t": 1}, 7, 9), Event({"t": 2}, 9, FOREVER)]


def test_two_readings_at_one_time_are_refused_within_a_group_only() -> None:
    readings = [Event({"k": 1}, 0, 1), Event({"k": 2}, 0, 1)]
    assert len(edges(readings, "k")) == 2
    with pytest.raises(StreamError, match="two readings of one group at 0"):
        edges(readings)


def test_empty() -> None:
    assert edges([]) == []
