"""What a batch of one input says of each (vs, payload) in the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recension.core.batch import INSERT, EventBatch, Index, Mask
from recension.core.rowhash import Hashes, combine, row_hash
from recension.core.ticks import Ticks
from recension.operators.base import new_end
from recension.operators.lmerge.key_table import repeated
from recension.operators.lmerge.merge import NONE


@dataclass(frozen=True, slots=True)
class News:
    """One entry for each key, in order of its last element.

    row       that element
    end       the end the event has after it, NONE if it is removed
    is_new    was it inserted within the batch?
    first     the first element of the key
    conflict  an element, if any, that inserts an event which the batch itself has with another end
    """

    row: Index
    key: Hashes
    end: Ticks
    is_new: Mask
    first: Index
    conflict: int | None = None

    def clash(self, batch: EventBatch, held: Ticks, repeats: bool = True) -> int | None:
        """An element, if any, that inserts an event which the input has (``held``), with another end.

        With ``repeats`` an insert with the same end only says again what was said.
        """
        if self.conflict is not None:
            return self.conflict
        opening = (batch.kind[self.first] == INSERT) & (held != NONE)
        if repeats:
            opening &= held != batch.ve[self.first]
        return int(self.first[opening].min()) if bool(opening.any()) else None


def news_of(batch: EventBatch, repeats: bool = True) -> News:
    """The last word on each key, where every key has at most one event at a time."""
    keys = combine(row_hash(batch.payload, len(batch)), batch.vs)
    end = new_end(batch)
    end = np.where(end == batch.vs, np.int64(NONE), end)
    inserted = batch.kind == INSERT
    again = repeated(keys)
    if not len(again):
        rows = np.arange(len(batch))
        return News(rows, keys, end, inserted, rows)
    order = again[np.argsort(keys[again], kind="stable")]
    same = keys[order][1:] == keys[order][:-1]
    clash = order[1:][same & inserted[order][1:] & _differs(end[order], repeats)]
    first = np.flatnonzero(np.append(True, ~same))
    last = order[np.append(~same, True)]
    inserted[last] = np.logical_or.reduceat(inserted[order], first)
    keep = np.ones(len(batch), np.bool_)
    keep[order[np.append(same, False)]] = False
    opening = np.arange(len(batch))
    opening[last] = order[first]
    rows = np.flatnonzero(keep)
    conflict = int(clash.min()) if len(clash) else None
    return News(rows, keys[rows], end[rows], inserted[rows], opening[rows], conflict)


def _differs(end: Ticks, repeats: bool) -> Mask:
    """Is there an event before each but the first, with another end than the one that comes?"""
    different: Mask = (end[:-1] != NONE) & ((end[1:] != end[:-1]) | (not repeats))
    return different
