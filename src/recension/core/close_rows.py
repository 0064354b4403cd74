"""Which rows of two sides can be paired so that the floats of every pair are within a tolerance?

Being close is not transitive, and the order of two floats says nothing about the next column: to sort both
sides and compare them row by row would take equal bags for different ones. As many rows are paired as can be.
Rows are parted first wherever the floats of a column leave a gap. Where what is left together is not simply
as many rows of each side in one order, pairs are searched: in order for one column of floats, as the greatest
flow from one side to the other for several.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.comparable import Comparable, Floats
from recension.core.netting import group_sizes, number_rows

# Of a list in a row, so many floats help to part rows; all are compared.
_LEADING: Final = 8


def match_close_rows(rows: Comparable, side: Index, group: Index, equal: Mask, tolerance: float) -> Mask:
    """Which rows have a partner on the other side: of their group, with floats that are all close.

    The ``equal`` rows have one with the same floats, to begin with. Where another pairing leaves fewer rows
    without a partner, it takes the place of theirs.
    """
    longest = [int(one.lengths.max(initial=0)) for one in rows.lists]
    leading = [
        one.nth(n) for one, most in zip(rows.lists, longest, strict=True) for n in range(min(_LEADING, most))
    ]
    columns = [*rows.floats, *leading]
    cluster = _part(group, columns, tolerance)
    order = np.lexsort((*reversed(columns), side, cluster))
    matched = equal.copy()
    open_clusters = _zip_rest(rows, order[~equal[order]], cluster, side, matched, tolerance)
    starts = np.searchsorted(cluster[order], open_clusters, "left").tolist()
    ends = np.searchsorted(cluster[order], open_clusters, "right").tolist()
    for start, end in zip(starts, ends, strict=True):
        members = order[start:end]
        matched[members] = _match(rows, members, side[members], tolerance)
    return matched


def _part(group: Index, columns: list[Floats], tolerance: float) -> Index:
    """Parts of the groups between which no two rows are close."""
    parts = -1
    while True:
        for column in columns:
            order = np.lexsort((column, group))
            values, names = column[order], group[order]
            is_new = np.ones(len(order), np.bool_)
            is_new[1:] = (names[1:] != names[:-1]) | ~_close(values[1:], values[:-1], tolerance)
            group = np.empty_like(group)
            group[order] = np.cumsum(is_new)
        found = int(group.max(initial=0))
        if found == parts or len(columns) < 2:
            return group
        parts = found


def _close(a: Floats, b: Floats, tolerance: float) -> Mask:
    """Within a relative tolerance; infinities only as such, and NaN with NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(a - b) <= tolerance * np.maximum(np.abs(a), np.abs(b))
    near &= np.isfinite(a) & np.isfinite(b)
    found: Mask = near | (a == b) | (np.isnan(a) & np.isnan(b))
    return found


def _are_close(rows: Comparable, left: Index, right: Index, tolerance: float) -> Mask:
    """Pair by pair; both have as many floats."""
    found = np.ones(len(left), np.bool_)
    for column in rows.floats:
        found &= _close(column[left], column[right], tolerance)
    for one in rows.lists:
        sides = [one.take(at) for at in (left, right)]
        close = _close(sides[0].values, sides[1].values, tolerance)
        found[np.repeat(np.arange(len(left)), sides[0].lengths)[~close]] = False
    return found


def _zip_rest(
    rows: Comparable, rest: Index, cluster: Index, side: Index, matched: Mask, tolerance: float
) -> Index:
    """Pair what has no equal, in order, where that leaves nothing over; the clusters where it does not.

    A cluster in which only one side is left over has as many pairs as can be.
    """
    names, size = group_sizes(cluster[rest])
    first = np.cumsum(size) - size
    half = np.bincount(names, weights=side[rest], minlength=len(size)).astype(np.int64)
    is_even = 2 * half == size
    even = np.flatnonzero(is_even)
    within = np.arange(int(half[even].sum())) - np.repeat(np.cumsum(half[even]) - half[even], half[even])
    at = np.repeat(first[even], half[even]) + within
    left, right = rest[at], rest[at + np.repeat(half[even], half[even])]
    owner = np.repeat(even, half[even])
    failed = np.zeros(len(size), np.bool_)
    failed[owner[~_are_close(rows, left, right, tolerance)]] = True
    done = ~failed[owner]
    matched[left[done]] = matched[right[done]] = True
    is_open = ((half > 0) & (half < size)) & (failed | ~is_even)
    found: Index = cluster[rest[first[is_open]]]
    return found


def _match(rows: Comparable, members: Index, side: Index, tolerance: float) -> Mask:
    """Which rows of one cluster have a partner; those of side 0 come first, each side in order."""
    cut = int((side == 0).sum())
    left, right = members[:cut], members[cut:]
    if len(rows.floats) == 1 and not rows.lists:
        return _match_in_order(rows.floats[0][left], rows.floats[0][right], tolerance)
    kinds = number_rows(rows.take(members).exact_words())
    supply, demand = _Supply.of(left, kinds[:cut]), _Supply.of(right, kinds[cut:])
    used = _Flow(rows, supply, demand, tolerance).used()
    return np.concatenate([supply.mark(used[0]), demand.mark(used[1])])


def _match_in_order(left: Floats, right: Floats, tolerance: float) -> Mask:
    """Of two sorted columns: who has nobody near that is not behind will have none later."""
    matched = np.zeros(len(left) + len(right), np.bool_)
    a, b = left.tolist(), right.tolist()
    i = j = 0
    while i < len(a) and j < len(b):
        x, y = a[i], b[j]
        if x == y or (x != x and y != y) or abs(x - y) <= tolerance * max(abs(x), abs(y)) < np.inf:
            matched[i] = matched[len(a) + j] = True
            i, j = i + 1, j + 1
        elif x < y:
            i += 1
        else:
            j += 1
    return matched


@dataclass(frozen=True)
class _Supply:
    """Rows of one side, equal ones as one with a count."""

    rows: Index
    count: Index
    kind: Index
    """The number of each kind of row, the same on both sides."""
    inverse: Index

    @staticmethod
    def of(rows: Index, kinds: Index) -> _Supply:
        kind, first, inverse, count = np.unique(
            kinds, return_index=True, return_inverse=True, return_counts=True
        )
        return _Supply(rows[first], count, kind, inverse)

    def mark(self, used: Index) -> Mask:
        """Which rows are used, so many of each kind."""
        order = np.argsort(self.inverse, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(self.count) - self.count, self.count)
        found: Mask = rank < used[self.inverse]
        return found


class _Flow:
    """The greatest flow from rows of one side to close rows of the other, as many as there are of each."""

    def __init__(self, rows: Comparable, left: _Supply, right: _Supply, tolerance: float) -> None:
        self._rows, self._left, self._right, self._tolerance = rows, left, right, tolerance
        self._supply, self._demand = left.count.copy(), right.count.copy()
        self._given: list[dict[int, int]] = [{} for _ in right.rows]  # by right row, from which left rows

    def used(self) -> tuple[Index, Index]:
        """How many of each row have a partner."""
        _, one, other = np.intersect1d(self._left.kind, self._right.kind, return_indices=True)
        for a, b in zip(one.tolist(), other.tolist(), strict=True):
            self._move([(a, b)], [])
        for row in range(len(self._supply)):
            while self._supply[row] and self._augment(row):
                pass
        return self._left.count - self._supply, self._right.count - self._demand

    def _augment(self, row: int) -> bool:
        """Breadth first from a row that has no partner, by way of pairs that could be made otherwise."""
        came_from = np.full(len(self._demand), -1)
        via: dict[int, int] = {row: -1}
        waiting = deque([row])
        while waiting:
            one = waiting.popleft()
            rest = np.flatnonzero(came_from < 0)
            starts = np.full(len(rest), self._left.rows[one])
            near = rest[_are_close(self._rows, starts, self._right.rows[rest], self._tolerance)]
            came_from[near] = one
            if len(free := near[self._demand[near] > 0]):
                self._turn(int(free[0]), came_from, via)
                return True
            for at in near.tolist():
                for holder in self._given[at].keys() - via.keys():
                    via[holder] = at
                    waiting.append(holder)
        return False

    def _turn(self, at: int, came_from: Index, via: dict[int, int]) -> None:
        """Along the path that ends here, pairs are made and those between them undone."""
        made, undone = list[tuple[int, int]](), list[tuple[int, int]]()
        while at >= 0:
            one = int(came_from[at])
            made.append((one, at))
            at = via[one]
            if at >= 0:
                undone.append((one, at))
        self._move(made, undone)

    def _move(self, made: list[tuple[int, int]], undone: list[tuple[int, int]]) -> None:
        """As much as the whole path can carry; it begins with the last made and ends with the first."""
        start, end = made[-1][0], made[0][1]
        held = [self._given[at][one] for one, at in undone]
        amount = int(min(self._supply[start], self._demand[end], *held))
        for one, at in made:
            self._given[at][one] = self._given[at].get(one, 0) + amount
        for one, at in undone:
            self._given[at][one] -= amount
            if not self._given[at][one]:
                del self._given[at][one]
        self._supply[start] -= amount
        self._demand[end] -= amount
