"""The mean of values, each weighted by how long its event lives within the window.

On a grid an event has another weight in the windows where it begins and ends than in those between. On the
axis of window numbers its weight goes up and down in steps, and so do the two sums that make the mean:

    windows of 4     |----|----|----|----|
    event               =========              weights 1, 4, 4, 0: steps of +1, +3, 0, -4

Each step is kept as an end point of the axis, so a window that an event does not fill is its own stretch. Of
windows that overlap, as many have such a step as a tick lies in: size / hop, at each end of an event.

Weights are parts of a unit that no window exceeds, a power of two, so that sums stay finite and exact.
Windows of a calendar are of unequal length: there weights are parts of the window itself. That changes no
mean, and all windows that an event fills have the same weight, 1. Such parts are rounded, and differences of
them would not add up to nothing when the event has ended; so each step is kept as what comes and what goes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, new_end, old_end
from recension.core.netting import expand
from recension.core.ticks import FOREVER, Ticks
from recension.operators.base import Chunks
from recension.operators.windowed import double_double as dd
from recension.operators.windowed.accumulators import PlacedAccumulator, PlacedChanges, mean_of, number_pairs
from recension.operators.windowed.calendar import CalendarGrid
from recension.operators.windowed.double_double import Floats, Pair
from recension.operators.windowed.events import CoveringEvents
from recension.operators.windowed.grid import Grid
from recension.operators.windowed.selections import Selection
from recension.operators.windowed.steps import Contributions, Points


class WeightedMean(PlacedAccumulator):
    """Over the windows of a grid."""

    ints = 3
    pairs = 2

    def __init__(self, grid: Grid | CalendarGrid) -> None:
        self._grid, self._overlap = grid, grid.overlap
        self._unit = 2.0 ** -grid.size.bit_length() if isinstance(grid, Grid) else None

    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        """How many values there are, in every window alike."""
        assert values is not None
        zero = np.zeros(size)
        return Contributions(number_pairs(values)[0], [(zero, zero)] * self.pairs)

    def points(self, values: pa.Array, changes: PlacedChanges) -> Points:
        _, numbers = number_pairs(values)
        is_valid = values.is_valid().to_numpy(zero_copy_only=False).astype(np.float64)
        batch = changes.batch
        was = self._steps(batch.vs, old_end(batch), changes.vs, changes.old)
        now = self._steps(batch.vs, new_end(batch), changes.vs, changes.new)
        row, place = (np.concatenate([a, b]) for a, b in zip(was[:2], now[:2], strict=True))
        weight = np.concatenate([-was[2], now[2]]) * is_valid[row]
        refs = np.repeat([-1, 1], [len(was[0]), len(now[0])])
        total = dd.multiply((numbers[0][row], numbers[1][row]), weight)
        first, stop = self._touched(batch.vs, old_end(batch), new_end(batch))
        size = len(first)
        none, zero = np.zeros(2 * size, np.int64), np.zeros(2 * size)
        return Points(
            np.concatenate([changes.group[row], changes.group, changes.group]),
            np.concatenate([place, first, stop]),
            np.append(refs, none),
            np.concatenate([np.zeros(len(row), np.int64), np.ones(size, np.int64), -np.ones(size, np.int64)]),
            [np.zeros(len(row) + 2 * size, np.int64)] * self.ints,
            [
                (np.append(total[0], zero), np.append(total[1], zero)),
                (np.append(weight, zero), np.zeros(len(row) + 2 * size)),
            ],
        )

    def _touched(self, vs: Ticks, old: Ticks, new: Ticks) -> tuple[Index, Index]:
        """The windows in which an element changes an event's weight."""
        low, high = np.minimum(old, new), np.maximum(old, new)
        first, stop = self._grid.place(np.where(low < high, low, vs), high)
        return first, np.maximum(first, stop)

    def _steps(self, vs: Ticks, ve: Ticks, first: Index, stop: Index) -> tuple[Index, Index, Floats]:
        """The windows at which the weights of events change: row, window, and by how much."""
        there = np.flatnonzero(stop > first)
        vs, ve, first, stop = vs[there], ve[there], first[there], stop[there]
        is_endless = stop == FOREVER
        # From the first window on until windows lie within the event, and from there to the first without it.
        middle = np.where(is_endless, first + self._overlap + 1, np.minimum(first + self._overlap, stop) + 1)
        tail = np.where(is_endless, middle, np.maximum(stop, self._overlap + middle) - self._overlap)
        head_row, head = expand(first, middle)
        tail_row, last = expand(tail, np.where(is_endless, middle, np.maximum(stop + 1, tail)))
        row, place = np.concatenate([head_row, tail_row]), np.concatenate([head, last])
        comes = self._weight(vs, ve, first, stop, row, place)
        goes = self._weight(vs, ve, first, stop, row, place - 1)
        if self._unit is not None:
            return there[row], place, comes - goes
        return np.tile(there[row], 2), np.tile(place, 2), np.append(comes, -goes)

    def _weight(self, vs: Ticks, ve: Ticks, first: Index, stop: Index, row: Index, window: Index) -> Floats:
        """How long each event lives within a window, in parts of the unit."""
        is_in = (first[row] <= window) & (window < stop[row])
        window = np.where(is_in, window, first[row])
        start, end = self._grid.start(window), self._grid.end(window)
        length = np.minimum(ve[row], end) - np.maximum(vs[row], start)
        parts = length / (end - start) if self._unit is None else length * self._unit
        return np.where(is_in, parts, 0.0)

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        return mean_of(pairs[0], pairs[1], ints)

    def forget_before(self, place: int) -> None:
        """All that is kept are sums."""

    def rows(self) -> int:
        return 0

    def nbytes(self) -> int:
        return 0

    def snapshot(self) -> Chunks:
        return {}

    def restore(self, chunks: Chunks) -> None:
        """There is nothing but the sums."""


class WeightedMeanOfEvents(Selection):
    """Over windows in which events need not be all the time: each window looks at its events."""

    sees_ends = True

    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        counts, numbers = number_pairs(values)
        valid = np.flatnonzero(counts[0])
        window, event = events.incidence_in(valid)
        start = np.maximum(events.vs[event], events.low[window])
        end = np.minimum(events.ve[event], events.high[window])
        # A difference that wraps is right as a number without sign.
        weight = np.where(end > start, (end - start).astype(np.uint64), np.uint64(0))
        # Sorted, the same events give the same digits, in whatever order they came.
        order = np.lexsort((weight, numbers[1][event], numbers[0][event], window))
        order = order[weight[order] > 0]
        window, event = window[order], event[order]
        lengths = np.bincount(window, minlength=events.snapshots)
        scaled = weight[order] * 2.0**-64
        total = dd.multiply((numbers[0][event], numbers[1][event]), scaled)
        is_filled = lengths > 0
        sums = [np.zeros((2, events.snapshots)) for _ in range(2)]
        for found, pair in zip(sums, (total, (scaled, np.zeros(len(scaled)))), strict=True):
            if len(scaled):
                found[:, is_filled] = dd.sums(pair, lengths[is_filled])
        of_windows = [np.bincount(window, x[event], events.snapshots).astype(np.int64) for x in counts]
        return mean_of((sums[0][0], sums[0][1]), (sums[1][0], sums[1][1]), of_windows)
