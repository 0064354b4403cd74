"""The events behind a stretch of snapshots, for aggregates that must look at the events themselves.

Each event covers a range of neighbouring snapshots, so that "the least value in every snapshot" is a
question about overlapping ranges, not about every (event, snapshot) pair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, take_rows
from recension.core.rowhash import Hashes
from recension.core.ticks import FOREVER, Ticks
from recension.operators.base import Chunks
from recension.operators.changes import identity, net_changes, plain_inserts
from recension.operators.state.block_table import sort_keys
from recension.operators.state.event_store import EventStore
from recension.operators.value_order import payload_order

Placement: TypeAlias = Callable[[Ticks, Ticks], tuple[Index, Index]]
"""Puts lifetimes on another axis than that of time."""


@dataclass(frozen=True)
class CoveringEvents:
    """Events with the range ``[first, stop)`` of snapshots each of them is alive in."""

    snapshots: int
    first: Index
    stop: Index
    vs: Ticks
    ve: Ticks
    payload: pa.RecordBatch

    @cached_property
    def order(self) -> Index:
        """The events by (vs, ve, payload), the order that breaks ties."""
        order = np.lexsort((self.ve, self.vs))
        vs, ve = self.vs[order], self.ve[order]
        tied = np.append(False, (vs[1:] == vs[:-1]) & (ve[1:] == ve[:-1]))
        tied |= np.append(tied[1:], False)
        if bool(tied.any()):
            rows = order[tied]
            by_payload = rows[payload_order(take_rows(self.payload, rows), len(rows))]
            rank = np.empty(len(order), np.int64)
            rank[by_payload] = np.arange(len(rows))
            order[tied] = rows[np.lexsort((rank[rows], self.ve[rows], self.vs[rows]))]
        return order

    @cached_property
    def incidence(self) -> tuple[Index, Index]:
        """Every (snapshot, event) pair, by snapshot and then in the order of the events."""
        return self.incidence_in(self.order)

    def incidence_in(self, order: Index) -> tuple[Index, Index]:
        """The same with the events of a snapshot in another order; only events in ``order`` occur."""
        first, length = self.first[order], (self.stop - self.first)[order]
        event = np.repeat(order, length)
        within = np.arange(len(event)) - np.repeat(np.cumsum(length) - length, length)
        snapshot = np.repeat(first, length) + within
        by_snapshot = np.argsort(snapshot, kind="stable")
        return snapshot[by_snapshot], event[by_snapshot]

    def least_rank(self, rank: Index, order: Index) -> Index:
        """For every snapshot the least rank among the events named, or -1."""
        best = range_minimum(self.snapshots, self.first[order], self.stop[order], rank)
        return np.where(best == _NONE, -1, best)


class EventsOfGroups:
    """The live events behind the snapshots.

    ``place`` puts lifetimes on another axis, such as that of window numbers; events are then found there, but
    keep their own lifetimes, which break ties. ``insert_only`` events are never retracted, so they need no
    identity.
    """

    def __init__(self, schema: pa.Schema, place: Placement | None = None, *, insert_only: bool = False):
        self._place = place
        self._changes = plain_inserts if insert_only else net_changes
        self._live = EventStore(schema, () if place is None else ("start", "end"))
        self._own = ("vs", "ve") if place is None else ("start", "end")

    def __len__(self) -> int:
        return len(self._live)

    def take(self, batch: EventBatch, group: Hashes) -> None:
        """Take over the changes of a batch."""
        change = self._changes(batch)
        if self._place is None:
            self._live.apply(change, group[change.row], batch.payload)
            return
        known = np.flatnonzero(change.old != change.vs)
        if len(known):
            found = self._live.find(identity(change.hash[known], change.vs[known], change.old[known]))
            self._live.remove(found[found >= 0])
        vs, ve = self._place(change.vs, change.new)
        there = (ve > vs) & (ve > self._live.expired_until)
        if not bool(there.all()):
            stays = np.flatnonzero(there)
            change, vs, ve = change.take(stays), vs[stays], ve[stays]
        start, end = change.vs, change.new
        tag = identity(change.hash, start, end) if self._changes is net_changes else change.hash
        is_all = change.is_insert_only and len(change) == len(batch)
        rows = batch.payload if is_all else take_rows(batch.payload, change.row)
        own = group if is_all else group[change.row]
        self._live.insert(own, vs, ve, tag, rows, start=start, end=end)

    def find_within(
        self, group_hash: Callable[[Index], Hashes], group: Index, start: Ticks, end: Ticks
    ) -> CoveringEvents:
        """The events alive in some intervals, which are sorted by group, then by start and also by end."""
        is_first = np.append(True, (group[1:] != group[:-1]) | (start[1:] > end[:-1]))[: len(group)]
        first = np.flatnonzero(is_first)
        last = np.append(first[1:], len(group))[: len(first)] - 1
        low, high = start[first], end[last]
        run, at = self._live.find_overlaps(group_hash(group[first]), low, high)
        vs, ve = self._live.column("vs", at), self._live.column("ve", at)
        own = np.cumsum(is_first) - 1
        starts, ends, begin, stop = sort_keys(
            [own, own, run, run], [start, end, np.maximum(vs, low[run]), np.minimum(ve, high[run])]
        )
        # Those intervals that end after the event begins and begin before it ends.
        begins, stops = np.searchsorted(ends, begin, "right"), np.searchsorted(starts, stop)
        vs, ve = (self._live.column(name, at) for name in self._own)
        return CoveringEvents(len(group), begins, stops, vs, ve, self._live.payload(at))

    def earliest_tie(self, t: int) -> int:
        """Where the first two events begin that share a start before ``t`` and whose ends can still move.

        Their ends decide which of the two comes first, so that is not known before the ends are final.
        FOREVER if there are none.
        """
        return int(self._live.column(self._own[0], self._find_ties(t)).min(initial=FOREVER))

    def _find_ties(self, t: int) -> Index:
        at = self._live.positions()
        start, end = (self._live.column(name, at) for name in self._own)
        at, start = at[(start < t) & (end >= t)], start[(start < t) & (end >= t)]
        group = self._live.column("group", at)
        order = np.lexsort((start, group))
        start, group = start[order], group[order]
        tied: Index = at[order[1:][(start[1:] == start[:-1]) & (group[1:] == group[:-1])]]
        return tied

    def earliest_ending(self, t: int) -> int:
        """Where the first event starts that ends at ``t`` or later; FOREVER if none does."""
        at = self._live.positions()
        start, end = (self._live.column(name, at) for name in self._own)
        return int(start[end >= t].min(initial=FOREVER))

    def remove_at(self, group: Hashes, at: Ticks) -> None:
        """Forget the events at these instants of these groups."""
        self._live.remove(self._live.find_overlaps(group, at, at + 1)[1])

    def expire(self, t: int) -> None:
        """Forget the events that end, on their axis, at ``t`` or before."""
        self._live.expire(t)

    def nbytes(self) -> int:
        """Memory taken by the events."""
        return self._live.nbytes()

    def snapshot(self) -> Chunks:
        """The events as named Arrow tables."""
        return self._live.snapshot("events")

    def restore(self, chunks: Chunks) -> None:
        """Become what `snapshot` gave."""
        self._live.restore("events", chunks)


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
