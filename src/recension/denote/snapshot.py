"""Snapshot aggregate: one answer for every maximal interval in which no event starts or ends.

Source: [GH] 3.1; ruling B13: a snapshot that holds no event gives no row. Neighbouring snapshots with
equal answers stay two. Grouped, only the group's own end points cut: ``grouped(h, keys, snapshot...)``.
"""

from __future__ import annotations

from itertools import pairwise

from recension.core.events import Event
from recension.denote.aggregates import Rows
from recension.denote.order import History


def snapshot(history: History, rows: Rows) -> History:
    """The rows of every snapshot's events, alive during the snapshot.

    >>> from recension.denote.aggregates import agg, count
    >>> h = [Event({"p": "P1"}, 1, 5), Event({"p": "P2"}, 4, 9)]
    >>> print(*snapshot(h, agg(n=count())), sep="; ")
    [1, 4) {'n': 1}; [4, 5) {'n': 2}; [5, 9) {'n': 1}
    """
    result = []
    for start, end in pairwise(end_points(history)):
        alive = [event for event in history if event.vs <= start and end <= event.ve]
        if alive:
            result += [Event(row, start, end) for row in rows(alive)]
    return result


def end_points(history: History) -> list[int]:
    """Every time at which an event starts or ends, in order, each once."""
    return sorted({event.vs for event in history} | {event.ve for event in history})
