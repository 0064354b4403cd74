"""The k-th of the values of a group's live events at any time, without a look at the events.

An event with value ``x`` adds ``x`` at its start and takes it away at its end. An end that moves from ``a``
to ``b`` adds it at ``a`` and takes it away at ``b``. So there are two lists of points (time, value), and

    live at t, below v   =   added by t, below v   -   taken away by t, below v

The points stand in runs that never change, each several times as long as the next. A run has both lists by
group and time. As each change goes into both, they have the same values, and what belongs to earlier groups
cancels. `BitLevels` of the places of values among all values of the run then find the k-th one.

Of several runs, the values of all are placed among those of the first and counted together:

    first run        10        20        30        places 1, 3, 5; between them 0, 2, 4, 6
    others                15   20  22              places 2, 3, 4

The answer is a value of the first run, or it lies between two of them: then it is looked for in the other
runs, within these bounds, and so on.

Cost        O(log n) a question and run; O(log n) a change, over time, by merges that are done in one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.netting import cancel, maybe_in
from recension.core.rowhash import Hashes, combine
from recension.core.ticks import BEGINNING, Ticks
from recension.operators.state.bit_levels import BitLevels

_RATIO = 4
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_HIGHEST_BIT: Final = np.uint64(1 << 63)
_Side: TypeAlias = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class _Points:
    """Each column has two rows: what adds, and what takes away."""

    group: Hashes
    time: Ticks
    value: Index

    def __len__(self) -> int:
        return int(self.time.shape[1])

    @staticmethod
    def unite(parts: list[_Points], since: int) -> _Points:
        """All points, as if time began at ``since``; what is added and taken away at one time is left out."""
        group = np.concatenate([part.group for part in parts], axis=1)
        time = np.maximum(np.concatenate([part.time for part in parts], axis=1), since)
        value = np.concatenate([part.value for part in parts], axis=1)
        adds, removes = combine(combine(group, value), time)
        candidates = (maybe_in(removes, adds)).nonzero()[0]
        _, added, removed = cancel(adds, removes[candidates])
        rest = np.ones((2, len(group[0])), np.bool_)
        rest[0, added] = rest[1, candidates[removed]] = False
        group, time, value = (column[rest].reshape(2, -1) for column in (group, time, value))
        return _Points(group, time, value)


class _Run:
    """Points that never change."""

    def __init__(self, points: _Points) -> None:
        by_time = _order(points.group, points.time)
        group = np.take_along_axis(points.group, by_time, 1)
        value = np.take_along_axis(points.value, by_time, 1)
        self.times = np.take_along_axis(points.time, by_time, 1)
        self.groups, bounds = np.unique(group[0], return_index=True)
        self._bounds = np.append(bounds, len(group[0]))
        # The same values in both lists: sorted, they stand side by side.
        by_value = _order(group, value)
        group, value = group[0][by_value[0]], value[0][by_value[0]]
        is_first = np.append(True, (group[1:] != group[:-1]) | (value[1:] != value[:-1]))
        self.values: Index = value[is_first]
        self._value_bounds = np.append(group[is_first].searchsorted(self.groups), len(self.values))
        self._ranks = np.empty(by_value.shape, np.int32)
        np.put_along_axis(self._ranks, by_value, (is_first.cumsum() - 1)[None, :], 1)
        self._levels: list[tuple[_Run, BitLevels]] = []

    def __len__(self) -> int:
        return int(self.times.shape[1])

    def nbytes(self) -> int:
        """Memory taken."""
        own = self.times.nbytes + self.values.nbytes + self._ranks.nbytes
        return own + sum(levels.nbytes() for _, levels in self._levels)

    def points(self) -> _Points:
        """What it was made of."""
        group = self.groups.repeat(np.diff(self._bounds))
        return _Points(np.stack([group, group]), self.times, self.values[self._ranks])

    def find_positions(self, group: Hashes, time: Ticks) -> Index:
        """Where the points of a group up to a time end, in both lists."""
        part = self._part(self._bounds, group)
        return np.stack([_search(times, *part, time, "right") for times in self.times])

    def find_places(self, group: Hashes, value: Index, side: _Side) -> Index:
        """Where values stand among those of their group."""
        return _search(self.values, *self._part(self._value_bounds, group), value, side)

    def _part(self, bounds: Index, group: Hashes) -> tuple[Index, Index]:
        return bounds[self.groups.searchsorted(group)], bounds[self.groups.searchsorted(group, "right")]

    def find_bounds(self, group: Hashes, place: Index) -> tuple[Index, Index]:
        """The least and the greatest number between the value at a place and the one before it."""
        first, stop = self._part(self._value_bounds, group)
        after, before = np.full(len(place), _LEAST), np.full(len(place), _MOST)
        has_left, has_right = place > first, place < stop
        after[has_left] = self.values[place[has_left] - 1] + 1
        before[has_right] = self.values[place[has_right]] - 1
        return after, before

    def count_levels(self) -> int:
        """How many bits the places among its values have."""
        return (2 * len(self.values)).bit_length()

    def levels_in(self, base: _Run) -> BitLevels:
        """Of the places of its values among those of another run: odd if the value is there."""
        for run, levels in self._levels:
            if run is base:
                return levels
        group = self.groups.repeat(np.diff(self._value_bounds))
        places = base.find_places(group, self.values, "left") + base.find_places(group, self.values, "right")
        levels = BitLevels(places.astype(np.int32)[self._ranks], base.count_levels())
        self._levels.append((base, levels))
        return levels

    def forget_all_but(self, runs: list[_Run]) -> None:
        """These are the runs that are left."""
        self._levels = [known for known in self._levels if any(known[0] is run for run in runs)]


class ValueCounts:
    """Numbers of one type, by group and time; nulls do not count, NaN is greater than every number.

    What is asked follows from the changes, so none of it is in a snapshot.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._runs: list[_Run] = []
        self._fresh: list[_Points] = []
        self._since = BEGINNING

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def count_fresh(self) -> int:
        """How many changes have come since the last question."""
        return sum(map(len, self._fresh))

    def nbytes(self) -> int:
        """Memory taken."""
        return sum(run.nbytes() for run in self._runs) + 48 * self.count_fresh()

    def change(self, group: Hashes, values: pa.Array, added: Ticks, removed: Ticks) -> None:
        """Values that live from ``added`` to ``removed``, or are dead from ``removed`` to ``added``."""
        rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False) & (added != removed))
        group, value, time = group[rows], _encode(values.take(pa.array(rows))), np.stack([added, removed])
        self._fresh.append(_Points(np.stack([group, group]), time[:, rows], np.stack([value, value])))

    def expire(self, t: int) -> None:
        """No question will be about a time before ``t``."""
        self._since = max(self._since, t)

    def look_at(self, group: Hashes, time: Ticks) -> ValuesAt:
        """The values of groups at some times."""
        self._merge()
        time = np.maximum(time, self._since)
        positions = [run.find_positions(group, time) for run in self._runs]
        return ValuesAt(list(self._runs), group, positions, self._kind)

    def _merge(self) -> None:
        """A run of what has come since, and of the last runs if they are not much longer."""
        parts, total = self._fresh, self.count_fresh()
        self._fresh = []
        if not total:
            return
        while self._runs and len(self._runs[-1]) <= _RATIO * total:
            total += len(self._runs[-1])
            parts = [self._runs.pop().points(), *parts]
        if len(points := _Points.unite(parts, self._since)):
            self._runs.append(_Run(points))
        for run in self._runs:
            run.forget_all_but(self._runs)


@dataclass(frozen=True, slots=True)
class ValuesAt:
    """The values of groups at some times; good until the next change."""

    _runs: list[_Run]
    _group: Hashes
    _positions: list[Index]
    _kind: pa.DataType

    def count(self) -> Index:
        """How many there are of each."""
        total = np.zeros(len(self._group), np.int64)
        for added, removed in self._positions:
            total += added - removed
        return total

    def find(self, rows: Index, rank: Index) -> npt.NDArray[np.float64]:
        """The values of some rows, of rows of ranks, from 0, as the nearest floats."""
        rows = np.broadcast_to(rows, rank.shape).ravel()
        found = self._find(rows, rank.ravel())
        return _decode(found, self._kind).reshape(rank.shape)

    def _find(self, rows: Index, rank: Index) -> Index:
        found = np.empty(len(rows), np.int64)
        low, high, rest = np.full(len(rows), _LEAST), np.full(len(rows), _MOST), np.arange(len(rows))
        for number, base in enumerate(self._runs):
            group, at = self._group[rows[rest]], [at[:, rows[rest]] for at in self._positions[number:]]
            limits = (
                2 * base.find_places(group, low[rest], "left"),
                2 * base.find_places(group, high[rest], "right"),
            )
            place, rank = _descend(self._runs[number:], at, rank, limits)
            is_found = (place & 1) > 0
            found[rest[is_found]] = base.values[place[is_found] >> 1]
            rest, rank = rest[~is_found], rank[~is_found]
            if not len(rest):
                break
            after, before = base.find_bounds(group[~is_found], place[~is_found] >> 1)
            low[rest], high[rest] = np.maximum(low[rest], after), np.minimum(high[rest], before)
        return found


def _descend(
    runs: list[_Run], at: list[Index], rank: Index, limits: tuple[Index, Index]
) -> tuple[Index, Index]:
    """The place of each rank among the values of the first run, and its rank in the other runs.

    It lies within ``limits``. Elsewhere counts of later runs may fall as values grow, for they take away what
    is counted in earlier runs.
    """
    base, levels = runs[0], [run.levels_in(runs[0]) for run in runs]
    place, own_below = np.zeros(len(rank), np.int64), np.zeros(len(rank), np.int64)
    below = np.zeros(len(rank), np.int64)
    for level in range(base.count_levels()):
        ones = [each.count_ones(level, own) for each, own in zip(levels, at, strict=True)]
        zeros = [own[0] - own[1] - one[0] + one[1] for own, one in zip(at, ones, strict=True)]
        split, total = place + (1 << (base.count_levels() - 1 - level)), below + sum(zeros)
        is_high = ((total <= rank) | (split <= limits[0])) & (split <= limits[1])
        place, below = np.where(is_high, split, place), np.where(is_high, total, below)
        own_below = np.where(is_high, own_below + zeros[0], own_below)
        at = [each.go_down(level, own, one, is_high) for each, own, one in zip(levels, at, ones, strict=True)]
    return place, rank - own_below


def _order(group: Hashes, key: Index) -> Index:
    """Rows of two lists by group and key."""
    if bool((group == group[0, 0]).all()):
        return key.argsort(axis=1, kind="stable")
    return np.stack([np.lexsort(columns) for columns in zip(key, group, strict=True)])


def _search(keys: Index, first: Index, stop: Index, wanted: Index, side: _Side) -> Index:
    """Where numbers stand among those from ``first`` to ``stop``, which are sorted."""
    if len(first) and bool(((first == first[0]) & (stop == stop[0])).all()):
        place: Index = np.searchsorted(keys[first[0] : stop[0]], wanted, side) + first[0]
        return place
    low, high = first.copy(), stop.copy()
    while bool((is_open := low < high).any()):
        middle = np.minimum((low + high) >> 1, len(keys) - 1)
        is_before: Mask = keys[middle] < wanted if side == "left" else keys[middle] <= wanted
        low, high = (
            np.where(is_open & is_before, middle + 1, low),
            np.where(is_open & ~is_before, middle, high),
        )
    return low


def _encode(values: pa.Array) -> Index:
    """Whole numbers in the order of these numbers; -0.0 and 0.0 are one, and so are all NaN."""
    if pa.types.is_floating(values.type):
        numbers = values.cast(pa.float64()).to_numpy() + 0.0
        bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
        return np.where(bits < 0, bits ^ _MOST, bits)
    if pa.types.is_uint64(values.type):
        moved: Index = (values.to_numpy() ^ _HIGHEST_BIT).view(np.int64)
        return moved
    whole: Index = values.cast(pa.int64()).to_numpy()
    return whole


def _decode(codes: Index, kind: pa.DataType) -> npt.NDArray[np.float64]:
    if pa.types.is_floating(kind):
        return np.where(codes < 0, codes ^ _MOST, codes).view(np.float64)
    if pa.types.is_uint64(kind):
        return (codes.view(np.uint64) ^ _HIGHEST_BIT).astype(np.float64)
    return codes.astype(np.float64)
