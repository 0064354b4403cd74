"""A coalescing query: the readings it sees before and after a batch, and the runs it makes of either side.

kept so far     a1      a5   b9            the late reading c3 stands between a1 and a5: those two no
arriving            c3                     longer are neighbours, and two new pairs are compared

    readings of a group    a1  a3  a5      b9         runs a{1,3,5}, b{9}
    a window over [2, 7]      |a3  a5|                a from 3, its first in the window, to 5, its last
    a window over [4, 9]          |a5      b9|        a from 5 to 9, where the next run begins; b at 9

A reading shows in the windows in which it is the first of its run: that begins with it, or whose earlier
readings have left. So each reading has one range of windows, and an answer costs what it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.errors import StreamError
from recension.core.netting import cancel
from recension.core.rowhash import Hashes, combine
from recension.core.ticks import Ticks, add
from recension.core.time_kind import describe_time_in_message
from recension.operators.extents.extent import HashedPayload, MergedReadings
from recension.operators.value_order import value_ranks

Equivalent: TypeAlias = Callable[[pa.RecordBatch, pa.RecordBatch], Mask]


@dataclass(frozen=True)
class CoalescingQuery:
    """``equivalent`` compares the ``on`` columns of neighbours; None: they must be equal."""

    group_by: Sequence[str]
    on: Sequence[str]
    equivalent: Equivalent | None = None

    @property
    def columns(self) -> list[str]:
        """The columns of an answer but for the interval."""
        return [*self.group_by, *(name for name in self.on if name not in self.group_by)]

    def hashes(self, readings: HashedPayload) -> tuple[Hashes, Hashes]:
        """Of each reading, a hash of its group and one of all that an answer shows of it."""
        group = readings.hash_columns(self.group_by)
        return group, readings.hash_columns((name for name in self.on if name not in self.group_by), group)

    def continues_run(self, readings: pa.RecordBatch, before: Index, after: Index) -> Mask:
        """Does the reading ``after`` continue the one ``before``, for each pair of positions?"""
        if self.equivalent is None or not len(after):
            return np.zeros(len(after), np.bool_)
        values = readings.select(list(self.on))
        return self.equivalent(values.take(pa.array(before)), values.take(pa.array(after)))


@dataclass(frozen=True, slots=True)
class ReadingRuns:
    """Readings of one side, before or after a batch, by group and place.

    ``at`` is where each stands among the readings of both sides. ``x`` is its place in the sense of the
    window, a time or a number; ``previous`` that of the one before it in its group, if ``has_previous``.
    ``following`` is the position of the next run's first reading, or of the next group's.
    """

    at: Index
    group: Index
    time: Ticks
    x: Index
    begins: Mask
    has_previous: Mask
    following: Index

    def __len__(self) -> int:
        return len(self.at)

    def windows(self, width: int) -> tuple[Index, Index]:
        """The first and the last place of a window, ``width`` wide, in which each reading leads its run."""
        last = add(self.x, width)
        left = add(np.append(0, self.x[:-1])[: len(self.x)], width)
        after = np.maximum(self.x, np.where(left == np.iinfo(np.int64).max, left, left + 1))
        return np.where(self.begins, self.x, after), last

    def ends(self, i: Index, y: Index) -> Ticks:
        """Up to where the run that reading ``i`` leads is valid in the window at ``y``."""
        following = self.following[i]
        inside = np.minimum(following, len(self) - 1)
        is_over = (following < len(self)) & (self.group[inside] == self.group[i]) & (self.x[inside] <= y)
        ends = self.time[inside]
        open_ = np.flatnonzero(~is_over)
        ends[open_] = self.time[self._last_until(i[open_], following[open_], y[open_])]
        return ends

    def _last_until(self, low: Index, high: Index, y: Index) -> Index:
        """The last of the readings ``[low, high)`` whose place is at most ``y``.

        The first reading always qualifies.
        """
        low, high = low.copy(), high.copy()
        while bool((high - low > 1).any()):
            middle = (low + high) >> 1
            is_inside = self.x[np.minimum(middle, len(self) - 1)] <= y
            narrower = high - low > 1
            low = np.where(narrower & is_inside, middle, low)
            high = np.where(narrower & ~is_inside, middle, high)
        return low


def find_runs(at: Index, group: Index, time: Ticks, x: Index, begins: Mask) -> ReadingRuns:
    """The runs of readings sorted by (group, place); the first of a group always begins one."""
    is_first = np.append(True, group[1:] != group[:-1])[: len(group)]
    starts = begins | is_first
    places = np.append(np.flatnonzero(starts), len(group))
    following = places[np.cumsum(starts)]
    return ReadingRuns(at, group, time, x, starts, ~is_first, following)


@dataclass(frozen=True, slots=True)
class Region:
    """Readings by time, those of one time by group; ``source`` is their place among kept and arriving ones.

    ``begins`` and ``began`` say whether a run starts with each, now and before the batch.
    """

    time: Ticks
    group: Index
    fact: Hashes
    source: Index
    is_old: Mask
    is_new: Mask
    begins: Mask
    began: Mask

    def __len__(self) -> int:
        return len(self.time)

    @property
    def is_changed(self) -> Mask:
        """Which come or go."""
        changed: Mask = self.is_old != self.is_new
        return changed

    def runs(self, side: Mask, begins: Mask, x: Index) -> ReadingRuns:
        """The runs of the readings of a side, at places ``x``."""
        at = np.flatnonzero(side)
        at = at[np.argsort(self.group[at], kind="stable")]
        return find_runs(at, self.group[at], self.time[at], x[at], begins[at])


def find_region(merged: MergedReadings, query: CoalescingQuery, *, links_kept: bool, ties: bool) -> Region:
    """What a query sees of the readings that a batch lays over a stretch of an extent.

    ``links_kept``: the extent knows what begins a run. ``ties``: the order of readings of one time matters.
    """
    of_group, of_fact = query.hashes(merged.hashed)
    is_old, is_new = np.arange(len(merged.time)) < merged.kept, np.ones(len(merged.time), np.bool_)
    if len(merged.gone_at):
        is_new[: merged.kept] = find_staying(of_group, merged, query)
    group = number_hashes(of_group)[merged.source]
    order = _order(merged, group, query, ties=ties)
    time, group, source, began = merged.time[order], group[order], merged.source[order], merged.began[order]
    is_old, is_new = is_old[order], is_new[order]
    _check(time, group, is_new)
    fact = of_fact[source]
    has, had = _find_previous(group, is_new), _find_previous(group, is_old)
    links = _ReadingLinks(query, merged.payload, fact, source)
    begins = links.find_run_starts(
        has, np.flatnonzero(~(is_old & (has == had))) if links_kept else None, began
    )
    if not links_kept:
        began = links.find_run_starts(had, np.flatnonzero(is_old & (has != had)), begins)
    return Region(time, group, fact, source, is_old, is_new, begins, began)


@dataclass(frozen=True, slots=True)
class _ReadingLinks:
    """Which readings continue the one before them."""

    query: CoalescingQuery
    payload: pa.RecordBatch
    fact: Hashes
    source: Index

    def find_run_starts(self, previous: Index, ask: Index | None, known: Mask) -> Mask:
        """Which readings begin a run; it is ``known`` but for those to ask for (None: for all).

        Where the one before is not here no window in question holds both, and what is known stays.
        """
        ask = np.arange(len(previous)) if ask is None else ask
        ask = ask[previous[ask] >= 0]
        begins = known.copy()
        begins[ask] = ~self._compare(previous[ask], ask)
        return begins

    def _compare(self, before: Index, after: Index) -> Mask:
        if self.query.equivalent is None:
            same: Mask = self.fact[before] == self.fact[after]
            return same
        return self.query.continues_run(self.payload, self.source[before], self.source[after])


def find_staying(of_group: Hashes, merged: MergedReadings, query: CoalescingQuery) -> Mask:
    """Which of the readings kept are not taken back."""
    held = of_group[merged.source[: merged.kept]]
    gone = merged.gone.hash_columns(query.group_by)
    stays, _, found = cancel(combine(held, merged.time[: merged.kept]), combine(gone, merged.gone_at))
    if len(found) < len(gone):
        raise StreamError("a reading was retracted that had never been inserted")
    return stays


def _order(merged: MergedReadings, group: Index, query: CoalescingQuery, *, ties: bool) -> Index:
    """By time, and at one time by group; if that order matters, by the values that tell groups apart."""
    if not merged.has_ties:
        return merged.order
    keys = merged.payload.select(list(query.group_by)) if ties else None
    ranks = [value_ranks(column)[merged.source] for column in reversed(keys.columns)] if keys else []
    return np.lexsort((group, *ranks, merged.time))


def number_hashes(hashes: Hashes) -> Index:
    """The same small number for equal hashes. Dense numbers, because they are sorted."""
    encoded = pa.array(hashes).dictionary_encode()
    kind = np.uint16 if len(encoded.dictionary) <= 2**16 else np.int64
    numbers: Index = encoded.indices.to_numpy().astype(kind)
    return numbers


def _find_previous(group: Index, side: Mask) -> Index:
    """The position of the one before in the group, among those of a side; -1 for the others."""
    at = np.flatnonzero(side)
    at = at[np.argsort(group[at], kind="stable")]
    previous = np.full(len(group), -1)
    if len(at) > 1:
        previous[at[1:]] = np.where(group[at[1:]] == group[at[:-1]], at[:-1], -1)
    return previous


def _check(time: Ticks, group: Index, is_new: Mask) -> None:
    at = np.flatnonzero(is_new)
    twice = (time[at][1:] == time[at][:-1]) & (group[at][1:] == group[at][:-1])
    if bool(twice.any()):
        moment = describe_time_in_message(int(time[at][1:][np.argmax(twice)]))
        raise StreamError(
            f"two readings of one group at {moment}: name what tells them apart in coalesce(group_by=...)"
        )
