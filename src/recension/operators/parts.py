"""The maximal parts of lifetimes that something covers, or does not, and how they change.

All lifetimes are swept at once: the ends of the spans are sorted by (owner, time), packed into one number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.ticks import Ticks
from recension.operators.state.block_table import KeyPacking


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
class SpanRevision:
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
    packing = _pack([spans])
    starts = np.sort(packing.pack(spans.owner, spans.start))
    ends = np.sort(packing.pack(spans.owner, spans.end))
    first = (np.append(True, starts[1:] > ends[:-1])[: len(starts)]).nonzero()[0]
    owner, start = packing.unpack(starts[first])
    last = np.append(first[1:], len(ends))[: len(first)] - 1
    return Spans(owner, start, packing.unpack(ends[last])[1])


def revise(parts: Spans, region: Spans, cover: Spans, *, covered: bool) -> SpanRevision:
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
    old, new = sweep.ends(was), sweep.ends(np.where(inside, is_covered == covered, was))
    part = np.full(len(old), -1)
    part[old != sweep.time] = sweep.order[sweep.order < len(parts)]
    return sweep.revision(old, new, part)


def flip(parts: Spans, stretches: Spans) -> tuple[Spans, SpanRevision]:
    """The parts after stretches were flipped, from covered to not covered or back; and what differs.

    ``parts`` are maximal. No two stretches overlap, and each is covered as a whole or not at all.

    #   parts       |=====)    |===)         |====)
    #   stretches         |----)               |--)
    #   new         |==============)         |=)
    """
    sweep = _Sweep([parts, stretches])
    was, is_flipped = (depth > 0 for depth in sweep.depth)
    old, new = sweep.ends(was), sweep.ends(was != is_flipped)
    starts = new > sweep.time
    return Spans(sweep.owner[starts], sweep.time[starts], new[starts]), sweep.revision(old, new)


class _Sweep:
    """One row per distinct (owner, time), sorted, with how many spans of each kind hold from there on.

    The counts are running sums of steps up and down; those of one owner return to zero, so they never
    spill over to the next. ``order`` is how the sort arranged the steps: first the starts of all spans,
    kind by kind, then their ends.
    """

    def __init__(self, kinds: Sequence[Spans]) -> None:
        packing = _pack(kinds)
        ends = [packing.pack(spans.owner, spans.end) for spans in kinds]
        steps = np.concatenate([packing.pack(spans.owner, spans.start) for spans in kinds] + ends)
        self.order = steps.argsort()
        steps = steps[self.order]
        last = (np.append(steps[1:] != steps[:-1], True)[: len(steps)]).nonzero()[0]
        self.owner, self.time = packing.unpack(steps[last])
        half, at = len(steps) // 2, 0
        self.depth = []
        for spans in kinds:
            step = np.zeros(len(steps), np.int64)
            step[at : at + len(spans)] = 1
            step[half + at : half + at + len(spans)] = -1
            self.depth.append(step[self.order].cumsum()[last])
            at += len(spans)

    def ends(self, holds: Mask) -> Ticks:
        """When each stretch ends on which something holds, at its first row; at other rows their own time."""
        before = np.append(False, holds[:-1])[: len(holds)]
        end = self.time.copy()
        end[holds & ~before] = self.time[before & ~holds]
        return end

    def revision(self, old: Ticks, new: Ticks, part: Index | None = None) -> SpanRevision:
        """The rows where ends differ."""
        rows = (old != new).nonzero()[0]
        numbers = np.full(len(rows), -1) if part is None else part[rows]
        return SpanRevision(self.owner[rows], self.time[rows], old[rows], new[rows], numbers)


def _pack(kinds: Sequence[Spans]) -> KeyPacking:
    times = [time for spans in kinds for time in (spans.start, spans.end)]
    return KeyPacking.for_keys([spans.owner for spans in kinds], times, by_shifts=True)
