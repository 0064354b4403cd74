"""The maximal parts of lifetimes that something covers, or does not, and how they change.

All lifetimes are swept at once: the two ends of every span become steps up and down, sorted by (owner,
time), and running sums tell what holds from each step to the next. The sums of one owner return to zero,
so they never spill over to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.ticks import FOREVER, Ticks


@dataclass(frozen=True, slots=True)
class Spans:
    """Intervals ``[start, end)``, each of an owner: a lifetime, known by a small number."""

    owner: Index
    start: Ticks
    end: Ticks

    def __len__(self) -> int:
        return len(self.owner)

    def at(self, rows: Index) -> Spans:
        """Some of the intervals."""
        return Spans(self.owner[rows], self.start[rows], self.end[rows])

    def and_also(self, other: Spans) -> Spans:
        """These and the others."""
        pairs = ((self.owner, other.owner), (self.start, other.start), (self.end, other.end))
        return Spans(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True, slots=True)
class Revision:
    """Parts whose end moves from ``old`` to ``new``; equal to ``start`` means "not there".

    ``part`` is the number of the old part, -1 if there was none.
    """

    owner: Index
    start: Ticks
    old: Ticks
    new: Ticks
    part: Index


def maximal(spans: Spans) -> Spans:
    """The fewest intervals that hold the same instants of each owner."""
    sweep = _Sweep([spans])
    first, last = _edges(sweep.depth[0] > 0)
    return Spans(sweep.owner[first], sweep.time[first], sweep.time[last])


def revise(parts: Spans, region: Spans, cover: Spans, *, covered: bool) -> Revision:
    """The parts that differ when, within the region, exactly what is (or is not) covered shall be a part.

    ``parts`` are maximal and hold every part that meets or touches the region.

    #   parts       |=====|     |=========|
    #   region          |---------|
    #   cover              |--|
    #   new         |===|  |==|   |=======|       what is covered
    #   new         |======|  |===========|       what is not
    """
    sweep = _Sweep([parts, region, cover])
    was, inside, is_covered = (depth > 0 for depth in sweep.depth)
    shall = np.where(inside, is_covered == covered, was)
    old, new = _ends(was, sweep.time), _ends(shall, sweep.time)
    rows = np.flatnonzero(old != new)
    part = np.full(len(old), -1)
    part[old != sweep.time] = sweep.order[sweep.order < len(parts)]
    return Revision(sweep.owner[rows], sweep.time[rows], old[rows], new[rows], part[rows])


class _Sweep:
    """One row per distinct (owner, time), sorted, with how many spans of each kind hold from there on.

    ``order`` is how the sort arranged the ends: first the starts of all spans, kind by kind, then their ends.
    """

    def __init__(self, kinds: Sequence[Spans]) -> None:
        owner = np.concatenate([spans.owner for spans in kinds] * 2)
        time = np.concatenate([spans.start for spans in kinds] + [spans.end for spans in kinds])
        self.order = _by_owner_and_time(owner, time)
        owner, time = owner[self.order], time[self.order]
        last = np.flatnonzero(
            np.append((owner[1:] != owner[:-1]) | (time[1:] != time[:-1]), True)[: len(time)]
        )
        self.owner, self.time = owner[last], time[last]
        half, at = len(owner) // 2, 0
        self.depth = []
        for spans in kinds:
            step = np.zeros(len(owner), np.int64)
            step[at : at + len(spans)] = 1
            step[half + at : half + at + len(spans)] = -1
            self.depth.append(np.cumsum(step[self.order])[last])
            at += len(spans)


def _edges(holds: Mask) -> tuple[Index, Index]:
    """Where each stretch on which something holds begins, and where it ends."""
    before = np.append(False, holds[:-1])[: len(holds)]
    return np.flatnonzero(holds & ~before), np.flatnonzero(before & ~holds)


def _ends(holds: Mask, time: Ticks) -> Ticks:
    """At the first row of each stretch the time when it ends; at all other rows their own time."""
    first, last = _edges(holds)
    end = time.copy()
    end[first] = time[last]
    return end


def _by_owner_and_time(owner: Index, time: Ticks) -> Index:
    """The order by (owner, time), through one packed number wherever both fit into it."""
    endless = time == FOREVER
    low, high = int(time.min(initial=FOREVER)), int(time.max(initial=0, where=~endless))
    bits = (high - low + 1).bit_length()
    if bits + int(owner.max(initial=0)).bit_length() > 63:
        return np.lexsort((time, owner))
    return np.argsort(owner << bits | np.where(endless, high + 1, time) - low)
