"""The readings that a batch looks at, before and after it, and the runs of either side.

kept so far     a1      a5   b9            the late reading c3 stands between a1 and a5: those two no
arriving            c3                     longer are neighbours, and two new pairs are compared
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, take_rows
from recension.core.errors import StreamError
from recension.core.netting import surviving
from recension.core.rowhash import Hashes, combine
from recension.core.ticks import Ticks
from recension.operators.extents.extent import Extent, Stretch
from recension.operators.extents.query import CoalescingQuery
from recension.operators.extents.runs import Runs, runs_of
from recension.operators.snapshot.events import value_ranks


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

    def runs(self, side: Mask, begins: Mask, x: Index) -> Runs:
        """The runs of the readings of a side, at places ``x``."""
        at = np.flatnonzero(side)
        at = at[np.argsort(self.group[at], kind="stable")]
        return runs_of(at, self.group[at], self.time[at], x[at], begins[at])


def region_of(
    extent: Extent,
    query: CoalescingQuery,
    stretch: Stretch,
    batch: EventBatch,
    changed: tuple[Index, Index],
    *,
    links_kept: bool,
    ties: bool,
) -> tuple[Region, pa.RecordBatch]:
    """Lay the readings that come and go over a stretch of the extent; also all their payloads, by source.

    ``links_kept``: the extent knows what begins a run. ``ties``: the order of readings of one time matters.
    """
    comes, goes = changed
    kept, rows = len(stretch.columns["row"]), stretch.columns["row"]
    distinct, place = np.unique(rows, return_inverse=True)
    payload = pa.concat_batches([extent.payload(distinct), take_rows(batch.payload, comes)])
    of_group, of_fact = query.hashes(payload)
    source = np.append(place, len(distinct) + np.arange(len(comes)))
    time = np.append(stretch.columns["time"], batch.vs[comes])
    stays = _staying(of_group[place], stretch.columns["time"], batch, query, goes)
    group = numbered(of_group)[source]
    order = _order(time, group, payload.select(list(query.group_by)), source, ties=ties)
    began = np.append(stretch.columns["begins"], np.ones(len(comes), np.bool_))[order]
    is_old, is_new = np.arange(len(time)) < kept, np.append(stays, np.ones(len(comes), np.bool_))
    time, group, source = time[order], group[order], source[order]
    is_old, is_new = is_old[order], is_new[order]
    _check(time, group, is_new)
    fact = of_fact[source]
    has, had = _previous(group, is_new), _previous(group, is_old)
    links = _Links(query, payload, fact, source)
    begins = links.of(has, np.flatnonzero(~(is_old & (has == had))) if links_kept else None, began)
    if not links_kept:
        began = links.of(had, np.flatnonzero(is_old & (has != had)), begins)
    return Region(time, group, fact, source, is_old, is_new, begins, began), payload


@dataclass(frozen=True, slots=True)
class _Links:
    """Which readings go on with the one before them."""

    query: CoalescingQuery
    payload: pa.RecordBatch
    fact: Hashes
    source: Index

    def of(self, previous: Index, ask: Index | None, known: Mask) -> Mask:
        """Which readings begin a run; it is ``known`` but for those to ask for (None: for all).

        Where the one before is not here no window in question holds both, and what is known stays.
        """
        ask = np.arange(len(previous)) if ask is None else ask
        ask = ask[previous[ask] >= 0]
        begins = known.copy()
        begins[ask] = ~self._compared(previous[ask], ask)
        return begins

    def _compared(self, before: Index, after: Index) -> Mask:
        if self.query.equivalent is None:
            same: Mask = self.fact[before] == self.fact[after]
            return same
        return self.query.goes_on(self.payload, self.source[before], self.source[after])


def _staying(held: Hashes, times: Ticks, batch: EventBatch, query: CoalescingQuery, goes: Index) -> Mask:
    """Which of the readings kept are not taken back."""
    gone = query.hashes(take_rows(batch.payload, goes))[0]
    stays, _, found = surviving(combine(held, times), combine(gone, batch.vs[goes]))
    if len(found) < len(goes):
        raise StreamError("a reading was retracted that had never been inserted")
    return stays


def _order(time: Ticks, group: Index, keys: pa.RecordBatch, source: Index, *, ties: bool) -> Index:
    """By time, and at one time by group; if that order matters, by the values that tell groups apart."""
    order = np.argsort(time, kind="stable")
    if not bool((time[order][1:] == time[order][:-1]).any()):
        return order
    ranks = [value_ranks(column)[source] for column in reversed(keys.columns)] if ties else []
    return np.lexsort((group, *ranks, time))


def numbered(hashes: Hashes) -> Index:
    """Small numbers, the same for equal hashes; as small as can be, for they are sorted by."""
    encoded = pa.array(hashes).dictionary_encode()
    kind = np.uint16 if len(encoded.dictionary) <= 2**16 else np.int64
    numbers: Index = encoded.indices.to_numpy().astype(kind)
    return numbers


def _previous(group: Index, side: Mask) -> Index:
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
        raise StreamError(
            f"two readings of one group at {time[at][1:][np.argmax(twice)]}: name what tells them apart in "
            "group_by"
        )
