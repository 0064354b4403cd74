"""What changed in what is shown: from the answers of stretches before and after to retractions and inserts.

What stays is not touched (ruling B16). A stretch of a grid stands for many windows of equal content: the
answer is compared once, and written out for each window that comes or goes. A window that data make and that
keeps its answer may have its end moved by a single retraction, where the index allows it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, take_rows
from recension.core.netting import expand
from recension.core.rowhash import rows_equal
from recension.operators.base import changes, order_of_changes
from recension.operators.windowed.index import Change, WindowIndex


@dataclass(frozen=True, slots=True)
class Results:
    """The rows of some stretches, in order; ``counts`` tells how many each has, one if it is not given."""

    rows: pa.RecordBatch
    counts: Index | None = None


def emit(change: Change, index: WindowIndex, old: Results, new: Results) -> EventBatch:
    """Retractions and inserts that take the old answers to the new ones."""
    pairs = _pair_rows(change, old, new)
    low, had, has = change.low, change.old_end, change.new_end
    if pairs.slot is not None:
        low, had, has = low[pairs.slot], had[pairs.slot], has[pairs.slot]
    stays = pairs.was & pairs.now
    stays[stays] = _are_equal(old.rows, pairs.old_row[stays], new.rows, pairs.new_row[stays])
    kept, is_moved = _keep(index, stays, low, had, has)
    moves = np.flatnonzero(is_moved)
    goes = np.flatnonzero(pairs.was & (had > kept) & ~is_moved)
    comes = np.flatnonzero(pairs.now & (has > kept) & ~is_moved)
    gone, come = index.expand(kept[goes], had[goes]), index.expand(kept[comes], has[comes])
    vs = np.concatenate([low[moves], gone.start, come.start])
    before = np.concatenate([had[moves], gone.end, come.start])
    after = np.concatenate([has[moves], gone.start, come.end])
    goes, comes = goes[gone.stretch], comes[come.stretch]
    row = np.concatenate(
        [pairs.old_row[moves], pairs.old_row[goes], old.rows.num_rows + pairs.new_row[comes]]
    )
    if index.emits_in_order:
        order = order_of_changes(vs, before, after)
    else:
        # By group and time, and at each place the retraction first: three sorted runs, which are merged.
        order = np.argsort(np.concatenate([moves, goes, comes]), kind="stable")
    payload = take_rows(pa.concat_batches([old.rows, new.rows]), row[order])
    return changes(vs[order], before[order], after[order], payload)


def _keep(index: WindowIndex, stays: Mask, low: Index, had: Index, has: Index) -> tuple[Index, Mask]:
    """Up to where stretches are left alone, and where the end moves instead, if the answer ``stays``."""
    if index.is_fixed:
        return np.where(stays, np.minimum(had, has), low), np.zeros(len(low), np.bool_)
    is_same = stays & (had == has)
    may_move = index.moves == "both" or ((has < had) & (index.moves == "shorten"))
    return np.where(is_same, had, low), stays & ~is_same & may_move


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The k-th row of a stretch before and its k-th row after, side by side; one each without ``slot``."""

    slot: Index | None
    was: Mask
    now: Mask
    old_row: Index
    new_row: Index


def _pair_rows(change: Change, old: Results, new: Results) -> _Pairs:
    was, now = change.old_end > change.low, change.new_end > change.low
    if old.counts is None or new.counts is None:
        return _Pairs(None, was, now, np.cumsum(was) - 1, np.cumsum(now) - 1)
    had, has = np.zeros(len(was), np.int64), np.zeros(len(was), np.int64)
    had[was], has[now] = old.counts, new.counts
    slot, k = expand(np.zeros(len(was), np.int64), np.maximum(had, has))
    first_old, first_new = np.cumsum(had) - had, np.cumsum(has) - has
    return _Pairs(slot, k < had[slot], k < has[slot], first_old[slot] + k, first_new[slot] + k)


def _are_equal(old: pa.RecordBatch, old_row: Index, new: pa.RecordBatch, new_row: Index) -> Mask:
    """Row by row: is it the same?"""
    return rows_equal(take_rows(old, old_row), take_rows(new, new_row), len(old_row))
