"""Edges: each reading is valid until the next reading of its group; the last one for ever.

Source: temporal coalescing §2.3 and the guide. A reading is an event taken at its ``vs``; its own end
does not matter. Two readings of one group at one time are refused (coalescing ruling 4).
"""

from __future__ import annotations

from itertools import pairwise

from recension.core.errors import StreamError
from recension.core.events import Event
from recension.core.ticks import FOREVER
from recension.denote.grouped import groups
from recension.denote.order import Columns, History, canonical


def edges(history: History, group_by: Columns = ()) -> History:
    """The readings as facts with lifetimes.

    >>> print(*edges([Event({"t": 20}, 1, 2), Event({"t": 21}, 4, 5)]), sep="; ")
    [1, 4) {'t': 20}; [4, ∞) {'t': 21}
    """
    result: History = []
    for readings in readings_by_group(history, group_by):
        ends = [reading.vs for reading in readings[1:]] + [FOREVER]
        result += [
            Event(reading.payload, reading.vs, end) for reading, end in zip(readings, ends, strict=True)
        ]
    return result


def readings_by_group(history: History, group_by: Columns) -> list[History]:
    """The readings of each group in the order of their times, which must differ."""
    split = [canonical(group) for group in groups(history, group_by)]
    for group in split:
        for one, other in pairwise(group):
            if one.vs == other.vs:
                raise StreamError(f"two readings of one group at {one.vs}: {one} and {other}")
    return split
