"""The maximal parts of lifetimes that something covers, or does not, and how they change.

All lifetimes are swept at once: the ends of the spans are sorted by (owner, time), packed into one number.
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

    def take(self, rows: Index) -> Spans:
        """Some of the intervals."""
        return Spans(self.owner[rows], self.start[rows], self.end[rows])

    def concat_with(self, other: Spans) -> Spans:
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


def merge_spans(spans: Spans) -> Spans:
    """The fewest intervals that hold the same instants of each owner.

    Where the k-th start lies after the k-1 ends before it, all that began has ended, and a new part begins.
    """
    packing = _Packing.of([spans])
    starts = np.sort(packing.pack(spans.owner, spans.start))
    ends = np.sort(packing.pack(spans.owner, spans.end))
    first = np.flatnonzero(np.append(True, starts[1:] > ends[:-1])[: len(starts)])
    owner, start = packing.unpack(starts[first])
    last = np.append(first[1:], len(ends))[: len(first)] - 1
    return Spans(owner, start, packing.unpack(ends[last])[1])


def revise(parts: Spans, region: Spans, cover: Spans, *, covered: bool) -> Revision:
    """The parts that differ when, within the region, exactly what is (or is not) covered shall be a part.

    ``parts`` are maximal and hold every part that meets or touches the region.

    #   parts       |=====|     |=========|
    #   region          |---------|
    #   cover              |--|
    #   new         |===|  |==|   |=======|       what is covered
    #   new         |======|  |===========|       what is not
    """
    sweep = _Sweep([parts, region, merge_spans(cover)])
    was, inside, is_covered = (depth > 0 for depth in sweep.depth)
    shall = np.where(inside, is_covered == covered, was)
    old, new = _find_ends(was, sweep.time), _find_ends(shall, sweep.time)
    rows = np.flatnonzero(old != new)
    part = np.full(len(old), -1)
    part[old != sweep.time] = sweep.order[sweep.order < len(parts)]
    return Revision(sweep.owner[rows], sweep.time[rows], old[rows], new[rows], part[rows])


class _Sweep:
    """One row per distinct (owner, time), sorted, with how many spans of each kind hold from there on.

    The counts are running sums of steps up and down; those of one owner return to zero, so they never
    spill over to the next. ``order`` is how the sort arranged the steps: first the starts of all spans,
    kind by kind, then their ends.
    """

    def __init__(self, kinds: Sequence[Spans]) -> None:
        packing = _Packing.of(kinds)
        ends = [packing.pack(spans.owner, spans.end) for spans in kinds]
        steps = np.concatenate([packing.pack(spans.owner, spans.start) for spans in kinds] + ends)
        self.order = np.argsort(steps)
        steps = steps[self.order]
        last = np.flatnonzero(np.append(steps[1:] != steps[:-1], True)[: len(steps)])
        self.owner, self.time = packing.unpack(steps[last])
        half, at = len(steps) // 2, 0
        self.depth = []
        for spans in kinds:
            step = np.zeros(len(steps), np.int64)
            step[at : at + len(spans)] = 1
            step[half + at : half + at + len(spans)] = -1
            self.depth.append(np.cumsum(step[self.order])[last])
            at += len(spans)


@dataclass(frozen=True, slots=True)
class _Packing:
    """(owner, time) as one number in the same order: the time as an offset, or as a rank if that is too long.

    The end of time is the offset after the last.
    """

    bits: int
    low: int
    high: int
    ranked: Ticks | None

    @staticmethod
    def of(kinds: Sequence[Spans]) -> _Packing:
        low = min((int(spans.start.min()) for spans in kinds if len(spans)), default=0)
        ends = [int(spans.end.max(where=spans.end < FOREVER, initial=low)) for spans in kinds]
        high = max([low, *ends, *(int(spans.start.max(initial=low)) for spans in kinds)])
        bits = (high - low + 1).bit_length()
        owners = max(int(spans.owner.max(initial=0)) for spans in kinds)
        if bits + owners.bit_length() < 64:
            return _Packing(bits, low, high, None)
        ranked = np.unique(np.concatenate([time for spans in kinds for time in (spans.start, spans.end)]))
        return _Packing(len(ranked).bit_length(), low, high, ranked)

    def pack(self, owner: Index, time: Ticks) -> Index:
        if self.ranked is not None:
            code = np.searchsorted(self.ranked, time)
        else:
            code = np.where(time == FOREVER, self.high + 1, time) - self.low
        packed: Index = owner << self.bits | code
        return packed

    def unpack(self, packed: Index) -> tuple[Index, Ticks]:
        owner, code = packed >> self.bits, packed & (1 << self.bits) - 1
        if self.ranked is not None:
            return owner, self.ranked[code]
        return owner, np.where(code > self.high - self.low, FOREVER, code + self.low)


def _find_edges(holds: Mask) -> tuple[Index, Index]:
    """Where each stretch on which something holds begins, and where it ends."""
    before = np.append(False, holds[:-1])[: len(holds)]
    return np.flatnonzero(holds & ~before), np.flatnonzero(before & ~holds)


def _find_ends(holds: Mask, time: Ticks) -> Ticks:
    """At the first row of each stretch the time when it ends; at all other rows their own time."""
    first, last = _find_edges(holds)
    end = time.copy()
    end[first] = time[last]
    return end
