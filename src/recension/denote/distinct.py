"""Distinct: at every instant each payload once, on maximal lifetimes: coalescing on all columns."""

from __future__ import annotations

from recension.denote.coalesce import coalesce
from recension.denote.order import History


def distinct(history: History) -> History:
    """Equal payloads that overlap or meet become one event.

    >>> from recension.core.events import Event
    >>> print(*distinct([Event({"x": 1}, 0, 5), Event({"x": 1}, 3, 9), Event({"x": 1}, 3, 9)]))
    [0, 9) {'x': 1}
    """
    return coalesce(history, on=list(history[0].payload)) if history else []
