"""Allen's thirteen relations by their endpoints, and what intervals share: the plainest definitions.

Source: Allen, Maintaining knowledge about temporal intervals; temporal coalescing §5 (OVERLAPS). Empty
intervals ``[t, t)`` are allowed; there the starts decide first.
"""

from __future__ import annotations

from recension.core.ticks import FOREVER
from recension.denote.intervals import Interval

_CONVERSES = {
    "before": "after",
    "meets": "met_by",
    "overlaps": "overlapped_by",
    "contains": "during",
    "finished_by": "finishes",
    "started_by": "starts",
    "equals": "equals",
}


def relation(one: Interval, other: Interval) -> str:
    """The one relation that is true of two intervals.

    >>> relation((1, 4), (4, 9)), relation((1, FOREVER), (4, 9)), relation((4, 4), (4, 9))
    ('meets', 'contains', 'starts')
    """
    if one[0] > other[0] or (one[0] == other[0] and one[1] < other[1]):
        flipped = relation(other, one)
        return _CONVERSES[flipped]
    if one == other:
        return "equals"
    if one[0] == other[0]:
        return "started_by"
    if one[1] <= other[0]:
        return "meets" if one[1] == other[0] else "before"
    if one[1] == other[1]:
        return "finished_by"
    return "overlaps" if one[1] < other[1] else "contains"


def shared(one: Interval, other: Interval) -> Interval | None:
    """From the later start to the earlier end, if each starts before the other ends.

    An empty interval inside another shares itself.

    >>> shared((1, 4), (2, 9)), shared((1, 4), (4, 9)), shared((5, 5), (1, 9)), shared((5, 5), (5, 9))
    ((2, 4), None, (5, 5), None)
    """
    if one[0] < other[1] and other[0] < one[1]:
        return max(one[0], other[0]), min(one[1], other[1])
    return None


def duration(interval: Interval) -> int:
    """How long it lasts; ``FOREVER`` if it never ends or the length is beyond int64."""
    return FOREVER if interval[1] == FOREVER else min(interval[1] - interval[0], FOREVER)
