"""The events behind a stretch of snapshots, for aggregates that must look at the events themselves.

Each event covers a range of neighbouring snapshots, so that "the least value in every snapshot" is a
question about overlapping ranges, not about every (event, snapshot) pair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, take_rows
from recension.core.rowhash import Hashes
from recension.core.ticks import FOREVER, Ticks
from recension.operators.base import Chunks
from recension.operators.changes import NetChanges, identity, net_changes, plain_inserts
from recension.operators.state.block_table import sort_keys
from recension.operators.state.leaf_table import unique_numbers
from recension.operators.state.ranked_events import Pick, RankedEvents
from recension.operators.state.tied_starts import TiedStarts
from recension.operators.state.value_counts import ValueCounts, ValuesAt
from recension.operators.value_order import payload_order

Argument: TypeAlias = Callable[[pa.RecordBatch], pa.Array]
"""A value for each payload."""
Placement: TypeAlias = Callable[[Ticks, Ticks], tuple[Index, Index]]
"""Puts lifetimes on another axis than that of time."""

# A stretch is deep if it has so many times more events than snapshots. All deep ones together must have at
# least so many events, or a look at all of them costs less than the search.
_DEEP = 8
_LEAST_DEEP = 8192
# Where values are found by counting: so many events to a snapshot, and pairs of the two in all.
_MANY = 128
_LEAST_PAIRS = 1 << 16
# Counts are given up when so many more changes have come since the last question than there are values.
_UNASKED = 1 << 17


@dataclass(frozen=True)
class CoveringEvents:
    """Events with the range ``[first, stop)`` of snapshots each of them is alive in."""

    snapshots: int
    first: Index
    stop: Index
    vs: Ticks
    ve: Ticks
    payload: pa.RecordBatch
    is_deep: Mask
    """Of which snapshots only events are here that can be picked."""
    deep: Callable[[Argument], ValuesAt] | None = None
    """The values of all events of the deep ones, if some were asked to be counted."""
    low: Index = field(default_factory=lambda: np.zeros(0, np.int64))
    high: Index = field(default_factory=lambda: np.zeros(0, np.int64))
    """Where each snapshot begins and ends on the axis, if that is known."""

    @cached_property
    def order(self) -> Index:
        """The events by (vs, ve, payload), the order that breaks ties."""
        return order_of_events(self.vs, self.ve, self.payload)

    def take(self, rows: Index) -> CoveringEvents:
        """Some of the events."""
        first, stop, vs, ve = (column[rows] for column in (self.first, self.stop, self.vs, self.ve))
        return replace(self, first=first, stop=stop, vs=vs, ve=ve, payload=take_rows(self.payload, rows))

    @cached_property
    def incidence(self) -> tuple[Index, Index]:
        """Every (snapshot, event) pair, by snapshot and then in the order of the events."""
        return self.incidence_in(self.order)

    def incidence_in(self, order: Index) -> tuple[Index, Index]:
        """The same with the events of a snapshot in another order; only events in ``order`` occur."""
        first, length = self.first[order], (self.stop - self.first)[order]
        event = order.repeat(length)
        within = np.arange(len(event)) - np.repeat(length.cumsum() - length, length)
        snapshot = first.repeat(length) + within
        by_snapshot = snapshot.argsort(kind="stable")
        return snapshot[by_snapshot], event[by_snapshot]

    def least_rank(self, rank: Index, order: Index) -> Index:
        """For every snapshot the least rank among the events named, or -1."""
        best = range_minimum(self.snapshots, self.first[order], self.stop[order], rank)
        return np.where(best == _NONE, -1, best)


def order_of_events(vs: Ticks, ve: Ticks, payload: pa.RecordBatch) -> Index:
    """Events by (vs, ve, payload)."""
    order = np.lexsort((ve, vs))
    tied = np.append(False, (np.diff(vs[order]) == 0) & (np.diff(ve[order]) == 0))[: len(order)]
    tied |= np.append(tied[1:], False)[: len(order)]
    if bool(tied.any()):
        rows = order[tied]
        by_payload = rows[payload_order(take_rows(payload, rows), len(rows))]
        rank = np.empty(len(order), np.int64)
        rank[by_payload] = np.arange(len(rows))
        order[tied] = rows[np.lexsort((rank[rows], ve[rows], vs[rows]))]
    return order


@dataclass(frozen=True, slots=True)
class Deciding:
    """What decides answers: the first events in some orders, and values by their ranks among all."""

    picks: Sequence[Pick] = ()
    counted: Sequence[Argument] = ()


NOTHING_KNOWN: Final = Deciding()


class EventsOfGroups:
    """The live events behind the snapshots.

    ``place`` puts lifetimes on another axis, such as that of window numbers; events are then found there, but
    keep their own lifetimes, which break ties. ``insert_only`` events are never retracted, so they need no
    identity.
    """

    def __init__(self, schema: pa.Schema, place: Placement | None = None, *, insert_only: bool = False):
        self._place = place
        self._changes = plain_inserts if insert_only else net_changes
        self._own = ("vs", "ve") if place is None else ("start", "end")
        self._live = RankedEvents(schema, () if place is None else self._own, self._own)
        # Both are followed from the first time they are asked for.
        self._ties: TiedStarts | None = None
        self._counts: dict[Argument, ValueCounts] = {}

    def __len__(self) -> int:
        return len(self._live)

    def take(self, batch: EventBatch, group: Hashes) -> None:
        """Take over the changes of a batch."""
        change = self._changes(batch)
        if self._ties is not None:
            self._ties.change(group[change.row], change.vs, change.old, change.new)
        self._count(change, group, batch.payload)
        if self._place is None:
            self._live.apply(change, group[change.row], batch.payload)
            return
        known = (change.old != change.vs).nonzero()[0]
        if len(known):
            found = self._live.find(identity(change.hash[known], change.vs[known], change.old[known]))
            self._live.remove(found[found >= 0])
        vs, ve = self._place(change.vs, change.new)
        there = (ve > vs) & (ve > self._live.expired_until)
        if not bool(there.all()):
            stays = there.nonzero()[0]
            change, vs, ve = change.take(stays), vs[stays], ve[stays]
        start, end = change.vs, change.new
        tag = identity(change.hash, start, end) if self._changes is net_changes else change.hash
        is_all = change.is_insert_only and len(change) == len(batch)
        rows = batch.payload if is_all else take_rows(batch.payload, change.row)
        own = group if is_all else group[change.row]
        self._live.insert(own, vs, ve, tag, rows, start=start, end=end)

    def _count(self, change: NetChanges, group: Hashes, payload: pa.RecordBatch) -> None:
        if not self._counts:
            return
        old, new = change.old, change.new
        if self._place is not None:
            old, new = (self._place(change.vs, end)[1] for end in (old, new))
        for argument, counts in list(self._counts.items()):
            counts.change(group[change.row], argument(payload).take(pa.array(change.row)), old, new)
            if counts.count_fresh() > len(counts) + _UNASKED:
                del self._counts[argument]

    def find_within(
        self,
        group_hash: Callable[[Index], Hashes],
        group: Index,
        start: Ticks,
        end: Ticks,
        alive: Index | None = None,
        deciding: Deciding = NOTHING_KNOWN,
    ) -> CoveringEvents:
        """The events alive in some intervals, which are sorted by group, then by start and also by end.

        Those suffice that are ``deciding``, if that is known; ``alive`` is how many each interval holds.
        """
        is_first = np.append(True, (group[1:] != group[:-1]) | (start[1:] > end[:-1]))[: len(group)]
        first = is_first.nonzero()[0]
        last = np.append(first[1:], len(group))[: len(first)] - 1
        low, high, hashes = start[first], end[last], group_hash(group[first])
        is_deep = np.zeros(len(first), np.bool_)
        if alive is not None and len(first):
            is_deep = _find_deep(deciding, alive, first, last)
        own = is_first.cumsum() - 1
        shallow, asked = (~is_deep).nonzero()[0], is_deep[own].nonzero()[0]
        run, at = self._live.find_overlaps(hashes[shallow], low[shallow], high[shallow])
        run = shallow[run]
        if len(asked):
            found = self._find_deciding(hashes, own[asked], start[asked], end[asked], deciding.picks)
            run, at = np.append(run, found[0]), np.append(at, found[1])
            order = run.argsort(kind="stable")
            run, at = run[order], at[order]
        vs, ve = self._live.column("vs", at), self._live.column("ve", at)
        starts, ends, begin, stop = sort_keys(
            [own, own, run, run], [start, end, np.maximum(vs, low[run]), np.minimum(ve, high[run])]
        )
        # Those intervals that end after the event begins and begin before it ends.
        begins, stops = ends.searchsorted(begin, "right"), starts.searchsorted(stop)
        vs, ve = (self._live.column(name, at) for name in self._own)
        rows = is_deep[own]
        deep = (
            partial(self._look_at, hashes[own[rows]], start[rows])
            if deciding.counted and rows.any()
            else None
        )
        payload = self._live.payload(at)
        return CoveringEvents(len(group), begins, stops, vs, ve, payload, rows, deep, start, end)

    def _look_at(self, group: Hashes, time: Ticks, argument: Argument) -> ValuesAt:
        """The values of all events of groups at some times."""
        counts = self._counts.get(argument)
        if counts is None:
            at = self._live.positions()
            values = argument(self._live.payload(at))
            counts = self._counts[argument] = ValueCounts(values.type)
            counts.expire(self._live.expired_until)
            counts.change(
                *(self._live.column("group", at), values), *(self._live.column(n, at) for n in ("vs", "ve"))
            )
        return counts.look_at(group, time)

    def _find_deciding(
        self, group: Hashes, run: Index, start: Ticks, end: Ticks, picks: Sequence[Pick]
    ) -> tuple[Index, Index]:
        """Pairs (run, position), by run: of the events in its intervals those that can be picked.

        Each interval is asked by itself: windows that meet have hardly an event in common, and over all of
        them together the walk by rank would not come to an end before the last event.
        """
        question, at = self._live.find_deciding(group[run], start, end, picks)
        codes = unique_numbers(run[question] * len(self._live) + at)
        return np.divmod(codes, max(1, len(self._live)))

    def earliest_tie(self, t: int) -> int:
        """Where the first two events begin that share a start before ``t`` and whose ends can still move.

        Their ends decide which of the two comes first, so that is not known before the ends are final.
        FOREVER if there are none.
        """
        if self._ties is None:
            self._ties, at = TiedStarts(), self._live.positions()
            start, end = (self._live.column(name, at) for name in self._own)
            self._ties.change(self._live.column("group", at), start, start, end)
        return self._ties.earliest(t, self._is_alive)

    def _is_alive(self, start: Ticks, end: Ticks) -> Mask:
        """Whether events with these lifetimes are among the live ones, if they came at all."""
        vs, ve = (start, end) if self._place is None else self._place(start, end)
        return (ve > vs) & (ve > self._live.expired_until)

    def earliest_ending(self, t: int) -> int:
        """Where the first event starts that ends at ``t`` or later; FOREVER if none does."""
        at = self._live.positions()
        start, end = (self._live.column(name, at) for name in self._own)
        return int(start[end >= t].min(initial=FOREVER))

    def remove_within(self, group: Hashes, low: Ticks, high: Ticks) -> None:
        """Forget the events alive in these intervals of these groups, each of which is in one of them."""
        gone = self._live.find_overlaps(group, low, high)[1]
        if self._ties is not None:
            start, end = (self._live.column(name, gone) for name in self._own)
            self._ties.change(self._live.column("group", gone), start, end, start)
        self._live.remove(gone)

    def expire(self, t: int) -> None:
        """Forget the events that end, on their axis, at ``t`` or before."""
        self._live.expire(t)
        for counts in self._counts.values():
            counts.expire(t)

    def nbytes(self) -> int:
        """Memory taken by the events."""
        return self._live.nbytes() + sum(counts.nbytes() for counts in self._counts.values())

    def snapshot(self) -> Chunks:
        """The events as named Arrow tables."""
        return self._live.parts("events")

    def restore(self, chunks: Chunks) -> None:
        """Become what `snapshot` gave."""
        self._live.restore("events", chunks)
        self._ties, self._counts = None, {}


def _find_deep(deciding: Deciding, alive: Index, first: Index, last: Index) -> Mask:
    """Which stretches ``[first, last]`` of intervals are better not looked at event by event."""
    most = np.maximum.reduceat(alive, first)
    if deciding.counted:
        is_deep = most > _MANY
        return is_deep & (int(np.add.reduceat(alive, first)[is_deep].sum()) > _LEAST_PAIRS)
    is_deep = most > _DEEP * (last - first + sum(pick.count for pick in deciding.picks))
    return is_deep & bool(deciding.picks) & (int(most[is_deep].sum()) > _LEAST_DEEP)


_NONE = np.iinfo(np.int64).max


def range_minimum(size: int, first: Index, stop: Index, value: Index) -> Index:
    """For every place the least value of the ranges over it, in O((size + ranges) log size).

    A range is the union of two ranges of a power-of-two length; a minimum over such a length is handed
    down to its two halves.
    """
    length = stop - first
    level = np.frexp(length.astype(np.float64))[1] - 1
    best = np.full(size, _NONE)
    for k in range(int(level.max(initial=0)), -1, -1):
        rows, half = level == k, 1 << k
        np.minimum.at(best, first[rows], value[rows])
        np.minimum.at(best, stop[rows] - half, value[rows])
        if k:
            down = best.copy()
            shift = half >> 1
            down[shift:] = np.minimum(down[shift:], best[:-shift] if shift < size else best[:0])
            best = down
    return best


def least_of_ranges(size: int, first: Index, stop: Index, count: int) -> Index:
    """A row for each place: the first ``count`` ranges over it, by their numbers, then -1.

    In ``count`` rounds; what was found is cut out of its range, of which pieces to either side are left.
    """
    best, owner = np.full((size, count), -1), np.arange(len(first))
    for column in range(count):
        least = range_minimum(size, first, stop, owner)
        is_first = np.append(True, least[1:] != least[:-1])[:size] & (least < _NONE)
        is_last = np.append(least[1:] != least[:-1], True)[:size] & (least < _NONE)
        begin, end = is_first.nonzero()[0], is_last.nonzero()[0] + 1
        if not len(begin):
            break
        best[:, column] = np.where(least < _NONE, least, -1)
        starts = np.append(owner, least[begin]), np.append(first, end)
        stops = np.append(owner, least[begin]), np.append(stop, begin)
        left, right = np.lexsort(starts[::-1]), np.lexsort(stops[::-1])
        owner, first, stop = starts[0][left], starts[1][left], stops[1][right]
        rest = (first < stop).nonzero()[0]
        owner, first, stop = owner[rest], first[rest], stop[rest]
    return best
