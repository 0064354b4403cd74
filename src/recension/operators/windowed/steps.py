"""A batch as steps along the time axis of each group.

An element takes an event's end from ``a`` to ``b`` (``a == vs``: it was not there; ``b == vs``: it goes).
Whatever is counted over live events therefore changes by ``+x`` at ``a`` and ``-x`` at ``b``, and the
number of end points at a time changes so:

    at a   +1 for an insert (its start appears)       -1 for a retraction (its old end goes)
    at b   -1 for a removal (its start goes)          +1 otherwise (its new end appears)
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Final

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.netting import order_of
from recension.core.records import record
from recension.core.ticks import Ticks
from recension.operators.state.block_table import KeyPacking, sort_keys
from recension.operators.windowed import double_double as dd
from recension.operators.windowed.dense_axis import DenseAxis, common_lag
from recension.operators.windowed.double_double import Pair
from recension.operators.windowed.sparse_axis import SparseAxis


@record
class Points:
    """Changes of the sums at points of the axis, which do not follow from what each event adds.

    ``refs`` and ``cover`` as in `PointChanges`: what is to be kept beyond the batch needs an end point.
    """

    group: Index
    time: Ticks
    refs: Index
    cover: Index
    ints: list[Index]
    pairs: list[Pair]

    def widen(self, lanes: int) -> Points:
        """With pairs for so many lanes: these are in the first."""
        return replace(self, pairs=_in_lanes(self.pairs, len(self.time), lanes))


def _in_lanes(pairs: list[Pair], size: int, lanes: int) -> list[Pair]:
    return pairs + [(np.zeros(size), np.zeros(size))] * (len(pairs) * (lanes - 1))


@record
class Contributions:
    """What each event adds to the accumulators: whole numbers exactly, floats as pairs."""

    ints: list[Index]
    pairs: list[Pair]
    points: Points | None = field(default=None, kw_only=True)

    def widen(self, lanes: int) -> Contributions:
        """Those of no events, for so many lanes."""
        return self if lanes == 1 else replace(self, pairs=_in_lanes(self.pairs, 0, lanes))


_NONE: Final = np.zeros(0, np.int64)
_ZERO: Final = np.zeros(1, np.int64)
_TRUE: Final = np.ones(1, np.bool_)
_FIRST_OF_TWO: Final = np.array([True, False])

NOTHING = Contributions([], [])
"""Where nothing is summed but the number of events."""


@record
class PointChanges(Contributions):
    """What changes at points of the axis, instead of what events add; a point may be there more than once.

    ``refs`` counts end points and ``n`` events; ``cover`` is +1 where a touched stretch begins, -1 where it
    ends. These are differences, so those of several parts of the events are put together by adding them.
    """

    time: Ticks
    refs: Index
    cover: Index
    n: Index


@record
class AxisSteps:
    """One row per distinct (group, time), sorted; amounts are running totals within their segment.

    A segment is a maximal stretch of a group's time axis over which some event changes; ``covered`` tells
    whether the stretch from this step to the next belongs to it.
    """

    group: Index
    time: Ticks
    refs: Index
    n: Index
    covered: Mask
    ints: list[Index]
    pairs: list[Pair]

    def segments(self) -> tuple[Index, Ticks, Ticks]:
        """Group, first and last time of each segment."""
        last = (~self.covered).nonzero()[0]
        first = np.concatenate((_ZERO, last[:-1] + 1))
        return self.group[last], self.time[first], self.time[last]


def axis_steps(
    group: Index,
    vs: Ticks,
    a: Ticks,
    b: Ticks,
    amounts: Contributions,
    *,
    look: tuple[Ticks, Index] | None = None,
    since: Ticks | None = None,
    spans: tuple[Index, Ticks, Ticks] | None = None,
) -> AxisSteps:
    """The steps of a batch of changes.

    A change touches what lies between ``a`` and ``b``, or from ``since`` on if that is given. ``look`` names
    further (time, group) points to look at, ``spans`` further stretches (group, from, to) that are touched.
    """
    extra = _Extra.collect(group, since, look, spans, amounts.points)
    if len(group) == 1 and not len(extra.time) and a[0] != b[0]:
        return _step_once(group, vs, a, b, amounts)
    change = _EndChange(group, vs, a, b, since)
    packing = KeyPacking.for_keys([group, extra.group], [a, b, extra.time])
    begins, ends, looked = (
        packing.pack(*keys) for keys in ((group, a), (group, b), (extra.group, extra.time))
    )
    if amounts.points is None:
        dense = DenseAxis.try_build(begins, ends, looked, amounts.ints)
        steps = None if dense is None else _count_steps(dense, packing, change, amounts, extra)
        if steps is None and dense is None and not len(extra.time):
            steps = _place_steps(begins, ends, change, amounts)
        if steps is not None:
            return steps
    return _sort_steps(np.concatenate([begins, ends, looked]), change, amounts, extra)


def _step_once(group: Index, vs: Ticks, a: Ticks, b: Ticks, amounts: Contributions) -> AxisSteps:
    """The steps of a single change, which has two ends: nothing to sort, and nothing to add up."""
    refs = np.array([1 if a[0] == vs[0] else -1, -1 if b[0] == vs[0] else 1])
    sign, time = 1, np.concatenate((a, b))
    if a[0] > b[0]:
        sign, time, refs = -1, time[::-1], refs[::-1]
    there = np.array([sign, 0])
    return AxisSteps(
        group.repeat(2), time, refs, there, _FIRST_OF_TWO,
        [x * there for x in amounts.ints],
        [(np.array([sign * high[0], 0.0]), np.array([sign * low[0], 0.0])) for high, low in amounts.pairs],
    )  # fmt: skip


def point_changes(
    group: Index, vs: Ticks, a: Ticks, b: Ticks, amounts: Contributions
) -> tuple[Index, PointChanges]:
    """The steps of a batch of changes before they are summed along the axis: groups, and changes there."""
    steps = axis_steps(group, vs, a, b, Contributions(amounts.ints, []))
    begins, ends, points = sort_keys([group, group, steps.group], [a, b, steps.time])
    ints = [np.diff(x, prepend=0) for x in (steps.covered.astype(np.int64), steps.n, *steps.ints)]
    pairs = []
    if amounts.pairs:
        at = np.searchsorted(points, np.concatenate([begins, ends]))
        order, lengths = np.argsort(at, kind="stable"), np.bincount(at, minlength=len(points))
        for pair in amounts.pairs:
            high, low = (np.concatenate([part, -part])[order] for part in pair)
            pairs.append(dd.sums((high, low), lengths))
    return steps.group, PointChanges(ints[2:], pairs, steps.time, steps.refs, ints[0], ints[1])


def sum_points(
    group: Index,
    changes: PointChanges,
    *,
    look: tuple[Ticks, Index] | None = None,
    spans: tuple[Index, Ticks, Ticks] | None = None,
) -> AxisSteps:
    """The steps of changes at points; ``look`` and ``spans`` as for `axis_steps`."""
    extra = _Extra.collect(group, None, look, spans, None)
    none, zero = np.zeros(len(extra.time), np.int64), np.zeros(len(extra.time))
    keys = np.concatenate(sort_keys([group, extra.group], [changes.time, extra.time]))
    whole = PointChanges(
        [np.concatenate([x, none]) for x in changes.ints],
        [(np.concatenate([high, zero]), np.concatenate([low, zero])) for high, low in changes.pairs],
        np.concatenate([changes.time, extra.time]),
        np.concatenate([changes.refs, none]),
        np.concatenate([changes.cover, extra.cover]),
        np.concatenate([changes.n, none]),
    )
    return _sum_along(keys, np.concatenate([group, extra.group]), whole)


@record
class _EndChange:
    """What each element does at its two ends."""

    group: Index
    vs: Ticks
    a: Ticks
    b: Ticks
    since: Ticks | None

    def is_fresh(self) -> bool:
        """Are all elements new events, each of which lasts?"""
        return self.a is self.vs and self.since is None and not bool((self.a == self.b).any())

    def refs(self) -> tuple[Index, Index]:
        """By how much the number of end points changes at ``a`` and at ``b``."""
        return np.where(self.a > self.vs, -1, 1), np.where(self.b > self.vs, 1, -1)

    def cover(self) -> tuple[Index, Index]:
        """+1 where a touched stretch begins, -1 where it ends, at ``a`` and at ``b``."""
        if self.since is None:
            begins = np.where(self.a < self.b, 1, -1)
            return begins, -begins
        return np.where(self.a < self.b, 0, -1), np.where(self.a < self.b, -1, 0)


def _count_steps(
    dense: DenseAxis, packing: KeyPacking, change: _EndChange, amounts: Contributions, extra: _Extra
) -> AxisSteps | None:
    """None if floats cannot be added without rounding."""
    at, is_fresh = dense.points(), change.is_fresh()
    n = np.cumsum((dense.come - dense.go)[at])
    # As many values as this are added to one number: at a point, and along the axis.
    added = max(2 * dense.most_at_one_place, int(n.max(initial=0))) if is_fresh else 2 * len(change.a)
    pairs = dense.running_pairs(amounts.pairs, at, added)
    if pairs is None:
        return None
    refs, covered = (dense.come + dense.go)[at], n > 0
    if not is_fresh:
        refs = dense.sum(change.refs())[at]
    if not is_fresh or len(extra.cover):
        cover = dense.come - dense.go if is_fresh else dense.sum(change.cover())
        covered = np.cumsum((cover + dense.sum_looked(extra.cover))[at]) > 0
    group, time = packing.unpack(at + dense.low)
    return AxisSteps(
        group, time, refs, n, covered, [dense.running_total(x, at, n) for x in amounts.ints], pairs
    )


def _place_steps(begins: Index, ends: Index, change: _EndChange, amounts: Contributions) -> AxisSteps | None:
    """None if not all elements are new events of equal length."""
    lag = common_lag(begins, ends)
    if not lag or not change.is_fresh():
        return None
    axis = SparseAxis.build(begins, lag)
    first, n = axis.order[axis.first], axis.running_total(None, None)
    time = axis.spread(change.b[first])
    time[axis.at_begin] = change.a[first]
    covered = n > 0
    return AxisSteps(
        axis.spread(change.group[first]), time, axis.refs(), n, covered,
        [axis.running_total(x, n) for x in amounts.ints],
        [_place_pair(pair, axis, first, covered) for pair in amounts.pairs],
    )  # fmt: skip


def _place_pair(pair: Pair, axis: SparseAxis, first: Index, covered: Mask) -> Pair:
    """Totals along the axis: most events are alone in their segments, and the others are added up."""
    high, low = np.zeros(axis.size), np.zeros(axis.size)
    high[axis.at_begin], low[axis.at_begin] = pair[0][first], pair[1][first]
    rows, own = axis.together()
    if len(rows):
        places = np.concatenate((axis.at_begin[own], axis.at_end[own]))
        order = order_of(places)
        last = np.concatenate((np.diff(places[order]) > 0, [True])).nonzero()[0]
        at = places[order[last]]
        both = [np.concatenate((part[rows], -part[rows])) for part in pair]
        high[at], low[at] = _running_pair((both[0], both[1]), order, last, covered[at])
    return high, low


def _sort_steps(keys: Index, change: _EndChange, amounts: Contributions, extra: _Extra) -> AxisSteps:
    none, one = np.zeros(len(extra.time), np.int64), np.ones(len(change.a), np.int64)
    refs, ints, pairs = extra.amounts(len(amounts.ints), len(amounts.pairs))
    changes = PointChanges(
        [np.concatenate([x, -x, more]) for x, more in zip(amounts.ints, ints, strict=True)],
        [
            (np.concatenate([high, -high, more[0]]), np.concatenate([low, -low, more[1]]))
            for (high, low), more in zip(amounts.pairs, pairs, strict=True)
        ],
        np.concatenate([change.a, change.b, extra.time]),
        np.concatenate([*change.refs(), refs]),
        np.concatenate([*change.cover(), extra.cover]),
        np.concatenate([one, -one, none]),
    )
    return _sum_along(keys, np.concatenate([change.group, change.group, extra.group]), changes)


def _sum_along(keys: Index, group: Index, changes: PointChanges) -> AxisSteps:
    """Changes in any order as running totals; ``keys`` sort them by group and time."""
    order = order_of(keys)
    keys = keys[order]
    last = np.concatenate((keys[1:] != keys[:-1], _TRUE)).nonzero()[0]
    ints = (changes.refs, changes.cover, changes.n, *changes.ints)
    refs, cover, n, *sums = (_running_total(column, order, last) for column in ints)
    at, covered = order[last], cover > 0
    pairs = [_running_pair(pair, order, last, covered) for pair in changes.pairs]
    return AxisSteps(group[at], changes.time[at], _differences(refs), n, covered, sums, pairs)


def _differences(totals: Index) -> Index:
    """What running totals are the totals of."""
    amounts = totals.copy()
    amounts[1:] -= totals[:-1]
    return amounts


@record
class _Extra:
    """Further points: where a touched stretch begins or ends, or that are only looked at.

    The last of them are those of ``points``, at which sums change.
    """

    group: Index
    time: Ticks
    cover: Index
    points: Points | None

    @staticmethod
    def collect(
        group: Index,
        since: Ticks | None,
        look: tuple[Ticks, Index] | None,
        spans: tuple[Index, Ticks, Ticks] | None,
        points: Points | None,
    ) -> _Extra:
        parts: list[tuple[Index, Ticks, Index | int]] = [] if since is None else [(group, since, 1)]
        parts += [] if look is None else [(look[1], look[0], 0)]
        if spans is not None and len(spans[0]):
            parts += [(spans[0], spans[1], 1), (spans[0], spans[2], -1)]
        parts += [] if points is None else [(points.group, points.time, points.cover)]
        if not parts:
            return _Extra(_NONE, _NONE, _NONE, None)
        return _Extra(
            np.concatenate([_NONE, *(p[0] for p in parts)]),
            np.concatenate([_NONE, *(p[1] for p in parts)]),
            np.concatenate([_NONE, *(np.full(len(p[0]), p[2]) for p in parts)]),
            points,
        )

    def amounts(self, ints: int, pairs: int) -> tuple[Index, list[Index], list[Pair]]:
        """By how much end points and each of so many columns change at the points."""
        if self.points is None:
            none, zero = np.zeros(len(self.time), np.int64), np.zeros(len(self.time))
            return none, [none] * ints, [(zero, zero)] * pairs
        before = len(self.time) - len(self.points.time)
        none, zero = np.zeros(before, np.int64), np.zeros(before)
        refs, *whole = (np.append(none, x) for x in (self.points.refs, *self.points.ints))
        return refs, whole, [(np.append(zero, high), np.append(zero, low)) for high, low in self.points.pairs]


def _running_total(column: Index, order: Index, last: Index) -> Index:
    # Some are seldom used, as the counts of NaN and of the infinities.
    return column[order].cumsum()[last] if bool(column.any()) else np.zeros(len(last), np.int64)


def _running_pair(pair: Pair, order: Index, last: Index, covered: Mask) -> Pair:
    """Totals since the segment began; where no event changes they are nothing, exactly."""
    ends = last[~covered]
    lengths = _differences(ends)
    lengths[:1] += 1
    high, low = pair[0][order], pair[1][order]
    # Most segments are a single event: of two steps the second ends it, and there is nothing to sum.
    is_long = lengths > 2
    if bool(is_long.any()):
        rows = is_long.repeat(lengths).nonzero()[0]
        high[rows], low[rows] = dd.running_sum(high[rows], low[rows], lengths[is_long])
    return np.where(covered, high[last], 0.0), np.where(covered, low[last], 0.0)
