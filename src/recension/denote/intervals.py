"""Half-open intervals of time: shared and maximal parts, gaps, saturating arithmetic (ruling A7)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from recension.core.ticks import BEGINNING, FOREVER

Interval: TypeAlias = tuple[int, int]


def saturated(time: int) -> int:
    """The time, or the end of time that it lies beyond."""
    return max(BEGINNING, min(time, FOREVER))


def plus(time: int, delta: int) -> int:
    """``time + delta``: both ends of time stay what they are, and a delta of ``FOREVER`` is endless.

    >>> plus(FOREVER, -5) == FOREVER, plus(FOREVER - 1, 5) == FOREVER, plus(3, 5)
    (True, True, 8)
    """
    if delta == FOREVER:
        return FOREVER
    return time if time in (BEGINNING, FOREVER) else saturated(time + delta)


def floor(time: int, step: int) -> int:
    """The greatest multiple of ``step`` at or before the time; both ends of time stay what they are.

    >>> floor(7, 5), floor(-1, 5)
    (5, -5)
    """
    return time if time in (BEGINNING, FOREVER) else saturated(time - time % step)


def common(one: Interval, other: Interval) -> Interval | None:
    """What two intervals share, or nothing: intervals that only touch share no instant.

    >>> common((0, 5), (3, 9)), common((0, 5), (5, 9))
    ((3, 5), None)
    """
    start, end = max(one[0], other[0]), min(one[1], other[1])
    return (start, end) if start < end else None


def maximal(intervals: Iterable[Interval]) -> list[Interval]:
    """The fewest intervals that hold the same instants: those that overlap or meet become one.

    >>> maximal([(3, 5), (1, 3), (2, 4), (7, 8)])
    [(1, 5), (7, 8)]
    """
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def uncovered(lifetime: Interval, intervals: Iterable[Interval]) -> list[Interval]:
    """The maximal parts of a lifetime that no interval covers.

    >>> uncovered((0, 10), [(2, 4), (3, 6)])
    [(0, 2), (6, 10)]
    """
    inside = (shared for interval in intervals if (shared := common(lifetime, interval)))
    gaps, at = [], lifetime[0]
    for start, end in maximal(inside):
        gaps.append((at, start))
        at = end
    gaps.append((at, lifetime[1]))
    return [(start, end) for start, end in gaps if start < end]
