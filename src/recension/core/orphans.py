"""Orphans: retractions that name an event which is not there at that moment.

Within a batch this is a walk per event identity that may not go below zero: each announcement steps up,
each retraction steps down. A step that would go below zero is an orphan and is not taken; since it then
announces nothing either, its own successor may become an orphan, so the walk is repeated until nothing
changes. Taking orphans away only ever makes more of them, so the least fixpoint is the sequential answer.
"""

from __future__ import annotations

import numpy as np

from recension.core.bag import EventBag
from recension.core.batch import RETRACT, EventBatch, Index, Mask
from recension.core.netting import group_sizes
from recension.core.rowhash import Hashes, combine, row_hash
from recension.core.ticks import Ticks


def find_orphans(batch: EventBatch, live: EventBag, considered: Mask) -> Mask:
    """Which of the ``considered`` rows retract an event that is not there."""
    orphan = np.zeros(len(batch), np.bool_)
    considered = considered & batch.is_data()
    if not bool((considered & (batch.kind == RETRACT)).any()):
        return orphan
    while True:
        fresh = _blocked(batch, live, considered & ~orphan, considered)
        if not bool((fresh & ~orphan).any()):
            return orphan
        orphan |= fresh


def note_changes(batch: EventBatch, live: EventBag) -> None:
    """Record what the (valid) elements of a batch announce and take away."""
    if len(batch):
        everything = np.ones(len(batch), np.bool_)
        _, keys, steps, ends = _steps(batch, everything, everything)
        live.change(keys, steps, ends)


def _blocked(batch: EventBatch, live: EventBag, announcing: Mask, retracting: Mask) -> Mask:
    rows, keys, steps, _ = _steps(batch, announcing, retracting)
    # Arrival order within a key; a retraction's two steps are of different keys.
    order = np.lexsort((rows, keys))
    rows, keys, steps = rows[order], keys[order], steps[order]
    group, sizes = group_sizes(keys)
    first = np.cumsum(sizes) - sizes
    level = np.cumsum(steps)
    level += (live.count(keys[first]) - level[first] + steps[first])[group]
    is_blocked = (steps < 0) & (level < _lowest_before(level, group, first))
    blocked = np.zeros(len(batch), np.bool_)
    blocked[rows[is_blocked]] = True
    return blocked


def _lowest_before(level: Index, group: Index, first: Index) -> Index:
    """The lowest level each walk has touched before each step, at most 0."""
    # One running minimum serves all walks: each is sunk below everything the walks before it touched.
    sunk = -group * np.int64(len(level) + 1)
    before = np.concatenate([[0], np.minimum(level, 0)[:-1] + sunk[:-1]])
    before[first] = sunk[first]
    lowest: Index = np.minimum.accumulate(before) - sunk
    return lowest


def _steps(batch: EventBatch, announcing: Mask, retracting: Mask) -> tuple[Index, Hashes, Index, Ticks]:
    """Every step of the walk: row, event identity, +1 or -1, and the end that identity carries."""
    retract = batch.kind == RETRACT
    after = np.where(retract, batch.new_ve, batch.ve)
    down = np.flatnonzero(retract & retracting)
    up = np.flatnonzero(announcing & (after > batch.vs))
    start = combine(row_hash(batch.payload, len(batch)), batch.vs)
    ends = np.concatenate([batch.ve[down], after[up]])
    rows = np.concatenate([down, up])
    steps = np.repeat(np.array([-1, 1]), [len(down), len(up)])
    return rows, combine(start[rows], ends), steps, ends
