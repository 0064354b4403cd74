"""From rows shown before to rows shown now: what stays is left alone, what differs in its end moves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index
from recension.core.netting import surviving
from recension.core.rowhash import Hashes, combine
from recension.core.ticks import Ticks
from recension.operators.base import changes, order_of_changes
from recension.operators.state.net_changes import identity


@dataclass(frozen=True, slots=True)
class Shown:
    """Events by lifetime and the hash of their payload."""

    vs: Ticks
    ve: Ticks
    hash: Hashes

    def __len__(self) -> int:
        return len(self.vs)


def transition(
    old: Shown, new: Shown, payload: Callable[[Index], pa.RecordBatch], *, moves_ends: bool = True
) -> EventBatch:
    """The elements that take one bag of events to the other, by time, and at one time what goes first.

    ``payload`` gives the payloads by position, the old events counted before the new ones. Without
    ``moves_ends`` an event whose end alone differs is taken back whole and shown anew.
    """
    stays, _, cancelled = surviving(identity(new.hash, new.vs, new.ve), identity(old.hash, old.vs, old.ve))
    come, gone = np.flatnonzero(stays), np.delete(np.arange(len(old)), cancelled)
    fresh, lost, moved = come, gone, (come[:0], gone[:0])
    if moves_ends:
        started, had_started = combine(new.hash[come], new.vs[come]), combine(old.hash[gone], old.vs[gone])
        alone, came, went = surviving(started, had_started)
        fresh, lost, moved = come[alone], np.delete(gone, went), (come[came], gone[went])
    to, since = moved
    at = np.concatenate([len(old) + to, len(old) + fresh, lost])
    before = np.concatenate([old.ve[since], new.vs[fresh], old.ve[lost]])
    after = np.concatenate([new.ve[to], new.ve[fresh], old.vs[lost]])
    vs = np.concatenate([new.vs[to], new.vs[fresh], old.vs[lost]])
    order = order_of_changes(vs, before, after)
    return changes(vs[order], before[order], after[order], payload(at[order]))


def first_shown(vs: Ticks, ve: Ticks, payload: Callable[[Index], pa.RecordBatch]) -> EventBatch:
    """The elements that show a bag of events where nothing was shown before."""
    order = np.argsort(vs, kind="stable")
    starts = vs[order]
    return changes(starts, starts, ve[order], payload(order))
