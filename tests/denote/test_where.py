from __future__ import annotations

from recension.core.events import Event
from recension.denote import where


def test_keeps_lifetimes_and_duplicates() -> None:
    history = [Event({"x": 1}, -5, 5), Event({"x": 1}, -5, 5), Event({"x": 0}, 0)]
    assert where(history, lambda p: p["x"] > 0) == history[:2]


def test_null_is_not_true() -> None:
    assert where([Event({"x": None}, 0)], lambda p: p["x"]) == []


def test_empty() -> None:
    assert where([], lambda p: True) == []
