"""The readings that a batch looks at, before and after it, and the runs of either side.

kept so far     a1      a5   b9            the late reading c3 stands between a1 and a5: those two no
arriving            c3                     longer are neighbours, and two new pairs are compared
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.errors import StreamError
from recension.core.netting import surviving
from recension.core.rowhash import Hashes, combine
from recension.core.ticks import Ticks
from recension.core.time_kind import describe_time_in_message
from recension.operators.extents.laid import Laid
from recension.operators.extents.query import CoalescingQuery
from recension.operators.extents.runs import Runs, runs_of
from recension.operators.value_order import value_ranks


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


def region_of(laid: Laid, query: CoalescingQuery, *, links_kept: bool, ties: bool) -> Region:
    """What a query sees of the readings that a batch lays over a stretch of an extent.

    ``links_kept``: the extent knows what begins a run. ``ties``: the order of readings of one time matters.
    """
    of_group, of_fact = query.hashes(laid.hashed)
    is_old, is_new = np.arange(len(laid.time)) < laid.kept, np.ones(len(laid.time), np.bool_)
    if len(laid.gone_at):
        is_new[: laid.kept] = staying(of_group, laid, query)
    group = numbered(of_group)[laid.source]
    order = _order(laid, group, query, ties=ties)
    time, group, source, began = laid.time[order], group[order], laid.source[order], laid.began[order]
    is_old, is_new = is_old[order], is_new[order]
    _check(time, group, is_new)
    fact = of_fact[source]
    has, had = _previous(group, is_new), _previous(group, is_old)
    links = _Links(query, laid.payload, fact, source)
    begins = links.of(has, np.flatnonzero(~(is_old & (has == had))) if links_kept else None, began)
    if not links_kept:
        began = links.of(had, np.flatnonzero(is_old & (has != had)), begins)
    return Region(time, group, fact, source, is_old, is_new, begins, began)


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


def staying(of_group: Hashes, laid: Laid, query: CoalescingQuery) -> Mask:
    """Which of the readings kept are not taken back."""
    held = of_group[laid.source[: laid.kept]]
    gone = laid.gone.of(query.group_by)
    stays, _, found = surviving(combine(held, laid.time[: laid.kept]), combine(gone, laid.gone_at))
    if len(found) < len(gone):
        raise StreamError("a reading was retracted that had never been inserted")
    return stays


def _order(laid: Laid, group: Index, query: CoalescingQuery, *, ties: bool) -> Index:
    """By time, and at one time by group; if that order matters, by the values that tell groups apart."""
    if not laid.has_ties:
        return laid.order
    keys = laid.payload.select(list(query.group_by)) if ties else None
    ranks = [value_ranks(column)[laid.source] for column in reversed(keys.columns)] if keys else []
    return np.lexsort((group, *ranks, laid.time))


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
        moment = describe_time_in_message(int(time[at][1:][np.argmax(twice)]))
        raise StreamError(
            f"two readings of one group at {moment}: name what tells them apart in coalesce(group_by=...)"
        )
