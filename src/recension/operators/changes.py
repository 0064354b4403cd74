"""Changes of events: from a batch of elements to one change of end per event, and back to elements.

I(1,5)  R(1,5->3)  R(1,3->8)        is        absent -> 8
R(1,5->3)  I(1,5)                   is        absent -> 3, since equal events are interchangeable

An end equal to the start means that the event is absent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, RETRACT, EventBatch, Index, Mask, all_zero
from recension.core.netting import cancel, order_of
from recension.core.records import record
from recension.core.rowhash import Hashes, combine, row_hash
from recension.core.ticks import FOREVER, Ticks


@record
class NetChanges:
    """Event by event: the end moves from ``old`` to ``new``; equal to ``vs`` means "not there".

    ``row`` is an element of the batch that holds the payload, ``hash`` the payload's hash.
    """

    row: Index
    vs: Ticks
    old: Ticks
    new: Ticks
    hash: Hashes

    def __len__(self) -> int:
        return len(self.row)

    def take(self, at: Index | Mask) -> NetChanges:
        """Some of the changes."""
        return NetChanges(self.row[at], self.vs[at], self.old[at], self.new[at], self.hash[at])

    @property
    def is_insert_only(self) -> bool:
        """Is every event new?"""
        return self.old is self.vs


def identity(payload_hash: Hashes, vs: Ticks, ve: Ticks) -> Hashes:
    """A hash of the whole event."""
    return combine(combine(payload_hash, vs), ve)


def plain_inserts(batch: EventBatch) -> NetChanges:
    """The changes of a stream that takes nothing back: nobody will look for an event by its hash."""
    assert not bool(batch.kind.any()), "a stream that is known to be insert-only holds something else"
    nothing = np.zeros(len(batch), np.uint64)
    return NetChanges(np.arange(len(batch)), batch.vs, batch.vs, batch.ve, nothing)


def net_changes(batch: EventBatch, hashes: Hashes | None = None) -> NetChanges:
    """The net effect of a batch of inserts and retractions, in order of arrival.

    ``hashes`` are those of the payloads, if they are known.
    """
    if hashes is None:
        hashes = row_hash(batch.payload, len(batch))
    if not bool(batch.kind.any()):
        return NetChanges(np.arange(len(batch)), batch.vs, batch.vs, batch.ve, hashes)
    retract = batch.kind == RETRACT
    end = np.where(batch.kind == INSERT, batch.ve, batch.new_ve)
    gone = np.flatnonzero(retract)
    come = np.flatnonzero(end != batch.vs)
    gone, come = _cancel_within(batch, hashes, end, gone, come)
    return _pair_ends(batch, hashes, end, gone, come)


def _cancel_within(
    batch: EventBatch, hashes: Hashes, end: Ticks, gone: Index, come: Index
) -> tuple[Index, Index]:
    """An event that comes and goes, or goes and comes back, within the batch does neither."""
    added = identity(hashes[come], batch.vs[come], end[come])
    removed = identity(hashes[gone], batch.vs[gone], batch.ve[gone])
    stays, _, cancelled = cancel(added, removed)
    return np.delete(gone, cancelled), come[stays]


def _pair_ends(batch: EventBatch, hashes: Hashes, end: Ticks, gone: Index, come: Index) -> NetChanges:
    """What goes and what comes of one (vs, payload) make one change.

    Any pairing is right, because equal events are interchangeable, and keeps to the CTIs: each end that
    goes or comes is at or after the sync time of the element that named it.
    """
    start = combine(hashes, batch.vs)
    alone, came, went = cancel(start[come], start[gone])
    row = np.concatenate([come[came], come[alone], np.delete(gone, went)])
    old = np.concatenate([batch.ve[gone[went]], batch.vs[come[alone]], batch.ve[np.delete(gone, went)]])
    new = np.concatenate([end[come[came]], end[come[alone]], batch.vs[np.delete(gone, went)]])
    order = np.argsort(row)
    row = row[order]
    return NetChanges(row, batch.vs[row], old[order], new[order], hashes[row])


@record
class EventRows:
    """Events by lifetime and the hash of their payload."""

    vs: Ticks
    ve: Ticks
    hash: Hashes

    def __len__(self) -> int:
        return len(self.vs)


def transition(
    old: EventRows, new: EventRows, payload: Callable[[Index], pa.RecordBatch], *, moves_ends: bool = True
) -> EventBatch:
    """The elements that take one bag of events to the other, by time, and at one time what goes first.

    ``payload`` gives the payloads by position, the old events counted before the new ones. Without
    ``moves_ends`` an event whose end alone differs is taken back whole and shown anew.
    """
    stays, _, cancelled = cancel(identity(new.hash, new.vs, new.ve), identity(old.hash, old.vs, old.ve))
    come, gone = np.flatnonzero(stays), np.delete(np.arange(len(old)), cancelled)
    fresh, lost, moved = come, gone, (come[:0], gone[:0])
    if moves_ends:
        started, had_started = combine(new.hash[come], new.vs[come]), combine(old.hash[gone], old.vs[gone])
        alone, came, went = cancel(started, had_started)
        fresh, lost, moved = come[alone], np.delete(gone, went), (come[came], gone[went])
    to, since = moved
    at = np.concatenate([len(old) + to, len(old) + fresh, lost])
    before = np.concatenate([old.ve[since], new.vs[fresh], old.ve[lost]])
    after = np.concatenate([new.ve[to], new.ve[fresh], old.vs[lost]])
    vs = np.concatenate([new.vs[to], new.vs[fresh], old.vs[lost]])
    order = order_of_changes(vs, before, after)
    return changes(vs[order], before[order], after[order], payload(at[order]))


def insert_rows(vs: Ticks, ve: Ticks, payload: Callable[[Index], pa.RecordBatch]) -> EventBatch:
    """The elements that show a bag of events where nothing was shown before."""
    order = np.argsort(vs, kind="stable")
    starts = vs[order]
    return changes(starts, starts, ve[order], payload(order))


def changes(vs: Ticks, old: Ticks, new: Ticks, payload: pa.RecordBatch) -> EventBatch:
    """Elements that take each event's end from ``old`` to ``new``; equal to ``vs`` means "not there".

    The caller leaves out rows that change nothing (ruling A3).
    """
    is_insert = old == vs
    kind = (~is_insert).view(np.uint8)  # a retraction is 1
    new_ve = np.where(is_insert, np.int64(FOREVER), new)
    return EventBatch(kind, vs, np.where(is_insert, new, old), new_ve, all_zero(len(vs)), payload)


def order_of_changes(vs: Ticks, old: Ticks, new: Ticks) -> Index:
    """How `changes` are put in order of time, and at one time what goes before what comes."""
    is_insert = old == vs
    # Of an insert the old end is its start, and the new one is later.
    sync = np.minimum(old, new)
    first = int(sync.min(initial=FOREVER))
    if int(sync.max(initial=first)) - first < 2**61:
        return order_of((sync - first << 1) + is_insert)
    return np.lexsort((is_insert, sync))
