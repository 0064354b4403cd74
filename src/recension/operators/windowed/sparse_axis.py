"""Steps of new events that are equally long and lie far apart, as where there are many groups.

What ends began a fixed time earlier. So only beginnings are sorted, and ends take their places between them:

    beginnings    b0    b1 b2              b0, b1, b2: in order
    steps         b0 e0 b1 b2 e1 e2        e0, e1, e2: as many after their beginnings, in the same order
                  |--|  |--------|         segments; that of one event alone has nothing to add up
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.netting import order_of
from recension.operators.windowed.dense_axis import constant, is_constant


@dataclass(frozen=True, slots=True)
class SparseAxis:
    """Distinct beginnings in order, and where they and their ends stand among all steps.

    ``order`` sorts the events by beginning; ``first`` are the places in it where another one begins, and
    ``count`` says how many events begin there. Where ``is_alone`` holds, the segment is that of one event.
    """

    order: Index
    first: Index
    count: Index
    at_begin: Index
    at_end: Index
    size: int
    is_alone: Mask

    @staticmethod
    def build(begins: Index, lag: int) -> SparseAxis:
        """Of at least one beginning; each has its end ``lag`` later, which is more than nothing."""
        order = order_of(begins)
        own = begins[order]
        first = np.concatenate(([True], own[1:] != own[:-1])).nonzero()[0]
        points, size = own[first], len(first)
        count = np.concatenate((first[1:], [len(own)])) - first
        # Only where the next one begins before this one has ended is anything between the two ends.
        is_close = points[1:] - points[:-1] <= lag
        is_alone = count == 1
        is_alone[1:] &= ~is_close
        is_alone[:-1] &= ~is_close
        places = np.arange(0, 2 * size, 2)
        if not bool(is_close.any()):
            return SparseAxis(order, first, count, places, places + 1, 2 * size, is_alone)
        close, ends = is_close.nonzero()[0], points + lag
        at_begin, at_end = places, places + 1
        ended, begun = np.searchsorted(ends, points[close + 1]), np.searchsorted(points, ends[close])
        at_begin[close + 1] += ended - (close + 1)
        at_end[close] += begun - (close + 1)
        # Where one begins as another ends there is a single step.
        met = np.zeros(size + 1, np.int64)
        met[close + 2] = ends[ended] == points[close + 1]
        met = met.cumsum()
        at_begin -= met[:size]
        earlier = np.arange(1, size + 1)
        earlier[close] = begun
        at_end -= met[earlier]
        return SparseAxis(order, first, count, at_begin, at_end, 2 * size - int(met[-1]), is_alone)

    def spread(self, values: Index) -> Index:
        """A value of each beginning, at its step and at that of its end."""
        steps = np.empty(self.size, np.int64)
        steps[self.at_end] = values
        steps[self.at_begin] = values
        return steps

    def refs(self) -> Index:
        """How many events begin or end at each step."""
        steps = np.zeros(self.size, np.int64)
        steps[self.at_begin] = self.count
        steps[self.at_end] += self.count
        return steps

    def running_total(self, by: Index | None, n: Index | None) -> Index:
        """What is added by the events that live on from each step; by one each, if nothing else is given."""
        if by is not None and n is not None and (is_constant(by) or bool((by == by[0]).all())):
            return n * int(by[0]) if by[0] else constant(0, self.size)
        added = self.count if by is None else np.add.reduceat(by[self.order], self.first)
        steps = np.zeros(self.size, np.int64)
        steps[self.at_begin] = added
        steps[self.at_end] -= added
        return steps.cumsum()

    def together(self) -> tuple[Index, Index]:
        """The events that share a segment with others, and which beginning is theirs."""
        if bool(self.is_alone.all()):
            return self.first[:0], self.first[:0]
        own = np.repeat(np.arange(len(self.first)), self.count)
        at = (~self.is_alone[own]).nonzero()[0]
        return self.order[at], own[at]
