"""Orphans: retractions that name an event which is not there at that moment.

Within a batch this is a walk per event identity that may not go below zero: each announcement steps up,
each retraction steps down. A step that would go below zero is an orphan and is not taken; since it then
announces nothing either, its own successor may become an orphan, so the walk is repeated until nothing
changes. Taking orphans away only ever makes more of them, so the least fixpoint is the sequential answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from recension.core.bag import EventBag
from recension.core.batch import RETRACT, EventBatch, Index, Mask
from recension.core.netting import group_sizes, maybe_in
from recension.core.rowhash import Hashes, combine, row_hash
from recension.core.ticks import Ticks


@dataclass(frozen=True, slots=True)
class Steps:
    """Every step of the walk: row, event identity, +1 or -1, and the end that identity carries."""

    row: Index
    key: Hashes
    step: Index
    end: Ticks

    def take(self, at: Index | Mask) -> Steps:
        """Some of the steps."""
        return Steps(self.row[at], self.key[at], self.step[at], self.end[at])


_NONE: Final = np.zeros(0, np.int64)
NO_STEPS: Final = Steps(_NONE, np.zeros(0, np.uint64), _NONE, _NONE)


class Known(Protocol):
    """Knows what is there."""

    def count(self, keys: Hashes) -> Index:
        """How often each of the keys is present now."""


def steps_of(batch: EventBatch, considered: Mask) -> Steps:
    """What the considered inserts and retractions take away and announce."""
    retract = batch.kind == RETRACT
    after = np.where(retract, batch.new_ve, batch.ve)
    down = np.flatnonzero(retract & considered)
    up = np.flatnonzero(considered & batch.is_data() & (after > batch.vs))
    start = combine(row_hash(batch.payload, len(batch)), batch.vs)
    row = np.concatenate([down, up])
    end = np.concatenate([batch.ve[down], after[up]])
    return Steps(row, combine(start[row], end), np.repeat(np.array([-1, 1]), [len(down), len(up)]), end)


def find_orphans(steps: Steps, live: Known, size: int, is_exempt: Mask | None = None) -> Mask:
    """Which of a batch's ``size`` rows retract an event that is not there; exempt ones are not asked."""
    orphan = np.zeros(size, np.bool_)
    named = steps.key[steps.step < 0]
    if not len(named):
        return orphan
    # Only what some retraction names can be missing.
    walk = steps.take(maybe_in(steps.key, named))
    walk = walk.take(np.lexsort((walk.row, walk.key)))
    while True:
        # A retraction that is not carried out steps down all the same, in vain; it announces nothing.
        stands = (walk.step < 0) | ~orphan[walk.row]
        fresh = steps_in_vain(walk.take(stands), live)
        if is_exempt is not None:
            fresh = fresh[~is_exempt[fresh]]
        if bool(orphan[fresh].all()):
            return orphan
        orphan[fresh] = True


def note_changes(steps: Steps, live: EventBag, dropped: Mask) -> None:
    """Record what the elements announce and take away, but for the dropped rows."""
    if bool(dropped.any()):
        steps = steps.take(~dropped[steps.row])
    if len(steps.row):
        live.change(steps.key, steps.step, steps.end)


def steps_in_vain(walk: Steps, live: Known) -> Index:
    """The rows whose step down would go below zero; steps are by key, then by arrival."""
    group, sizes = group_sizes(walk.key)
    first = np.cumsum(sizes) - sizes
    level = np.cumsum(walk.step)
    level += (live.count(walk.key[first]) - level[first] + walk.step[first])[group]
    rows: Index = walk.row[(walk.step < 0) & (level < _lowest_before(level, group, first))]
    return rows


def _lowest_before(level: Index, group: Index, first: Index) -> Index:
    """The lowest level each walk has touched before each step, at most 0."""
    # One running minimum serves all walks: each is sunk below everything the walks before it touched.
    sunk = -group * np.int64(len(level) + 1)
    before = np.concatenate([[0], np.minimum(level, 0)[:-1] + sunk[:-1]])
    before[first] = sunk[first]
    lowest: Index = np.minimum.accumulate(before) - sunk
    return lowest
