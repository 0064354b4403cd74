"""Selection: the events whose payload satisfies a predicate, lifetimes untouched ([TR] Definition 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recension.core.events import Payload
from recension.denote.order import History


def where(history: History, predicate: Callable[[Payload], Any]) -> History:
    """Keep an event if the predicate is true; false and null both drop it, as in SQL.

    >>> from recension.core.events import Event
    >>> h = [Event({"x": 1}, 0, 5), Event({"x": None}, 0, 5)]
    >>> [str(e) for e in where(h, lambda p: None if p["x"] is None else p["x"] > 0)]
    ["[0, 5) {'x': 1}"]
    """
    return [event for event in history if predicate(event.payload)]
