"""Half-open intervals of time: shared and maximal parts, gaps, saturating arithmetic (ruling A7).

Allen's thirteen relations by their endpoints, the plainest definitions. Empty intervals ``[t, t)`` are
allowed; there the starts decide first. Source: Allen, Maintaining knowledge about temporal intervals;
temporal coalescing §5 (OVERLAPS).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from recension.core.ticks import BEGINNING, FOREVER

Interval: TypeAlias = tuple[int, int]


def saturate(time: int) -> int:
    """The time, or the end of time that it lies beyond."""
    return max(BEGINNING, min(time, FOREVER))


def plus(time: int, delta: int) -> int:
    """``time + delta``: both ends of time stay what they are, and a delta of ``FOREVER`` is endless.

    >>> plus(FOREVER, -5) == FOREVER, plus(FOREVER - 1, 5) == FOREVER, plus(3, 5)
    (True, True, 8)
    """
    if delta == FOREVER:
        return FOREVER
    return time if time in (BEGINNING, FOREVER) else saturate(time + delta)


def floor(time: int, step: int) -> int:
    """The greatest multiple of ``step`` at or before the time; both ends of time stay what they are.

    >>> floor(7, 5), floor(-1, 5)
    (5, -5)
    """
    return time if time in (BEGINNING, FOREVER) else saturate(time - time % step)


def intersect(one: Interval, other: Interval) -> Interval | None:
    """What two intervals share, or nothing: intervals that only touch share no instant.

    >>> intersect((0, 5), (3, 9)), intersect((0, 5), (5, 9))
    ((3, 5), None)
    """
    start, end = max(one[0], other[0]), min(one[1], other[1])
    return (start, end) if start < end else None


def merge_intervals(intervals: Iterable[Interval]) -> list[Interval]:
    """The fewest intervals that hold the same instants: those that overlap or meet become one.

    >>> merge_intervals([(3, 5), (1, 3), (2, 4), (7, 8)])
    [(1, 5), (7, 8)]
    """
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def uncovered_parts(lifetime: Interval, intervals: Iterable[Interval]) -> list[Interval]:
    """The maximal parts of a lifetime that no interval covers.

    >>> uncovered_parts((0, 10), [(2, 4), (3, 6)])
    [(0, 2), (6, 10)]
    """
    inside = (shared_part for interval in intervals if (shared_part := intersect(lifetime, interval)))
    gaps, at = [], lifetime[0]
    for start, end in merge_intervals(inside):
        gaps.append((at, start))
        at = end
    gaps.append((at, lifetime[1]))
    return [(start, end) for start, end in gaps if start < end]


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


def shared_part(one: Interval, other: Interval) -> Interval | None:
    """From the later start to the earlier end, if each starts before the other ends.

    An empty interval inside another shares itself.

    >>> [shared_part(one, (5, 9)) for one in [(1, 6), (1, 5), (6, 6), (5, 5)]]
    [(5, 6), None, (6, 6), None]
    """
    if one[0] < other[1] and other[0] < one[1]:
        return max(one[0], other[0]), min(one[1], other[1])
    return None


def duration(interval: Interval) -> int:
    """How long it lasts; ``FOREVER`` if it never ends or the length is beyond int64."""
    return FOREVER if interval[1] == FOREVER else min(interval[1] - interval[0], FOREVER)
