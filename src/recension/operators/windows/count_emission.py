"""What changed in the count windows shown, as retractions and inserts of whole windows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, RETRACT, EventBatch, Mask, take_rows
from recension.core.ticks import FOREVER, Ticks
from recension.operators.snapshot.emission import Results, equal_rows, slots_of
from recension.operators.windows.consecutive import Consecutive


def emit_counted(
    size: int,
    old: Consecutive,
    new: Consecutive,
    before: Callable[[Consecutive], Results],
    after: Callable[[Consecutive], Results],
) -> EventBatch:
    """Take the windows shown before to those shown now, on an axis of ``size`` moments.

    A window that still has its end and its rows is left alone (ruling B16).
    """
    had, has = _ends(size, old), _ends(size, new)
    is_old, is_new = _begins(size, old), _begins(size, new)
    unclear = np.flatnonzero(is_old | is_new)
    start = np.zeros(size, np.int64)
    start[old.row], start[new.row] = old.start, new.start
    was, now = before(old), after(new)
    slots = slots_of(unclear, is_old[unclear], is_new[unclear], was, now)
    stays = slots.was & slots.now & (had[slots.at] == has[slots.at])
    stays[stays] = equal_rows(was.rows, slots.old_row[stays], now.rows, slots.new_row[stays])
    goes, comes = np.flatnonzero(slots.was & ~stays), np.flatnonzero(slots.now & ~stays)
    rows = np.concatenate([slots.old_row[goes], was.rows.num_rows + slots.new_row[comes]])
    payload = take_rows(pa.concat_batches([was.rows, now.rows]), rows)
    kind = np.repeat(np.array([RETRACT, INSERT], np.uint8), [len(goes), len(comes)])
    vs = start[slots.at[np.concatenate([goes, comes])]]
    ve = np.concatenate([had[slots.at[goes]], has[slots.at[comes]]])
    new_ve = np.where(kind == RETRACT, vs, np.int64(FOREVER))
    out = EventBatch(kind, vs, ve, new_ve, np.zeros(len(vs), np.int64), payload)
    return out.take(np.lexsort((kind == INSERT, vs)))


def _begins(size: int, windows: Consecutive) -> Mask:
    """Does a window begin at each moment?"""
    begins = np.zeros(size, np.bool_)
    begins[windows.row] = True
    return begins


def _ends(size: int, windows: Consecutive) -> Ticks:
    """The end of the window that begins at each moment, anything where none does."""
    ends = np.full(size, FOREVER)
    ends[windows.row] = windows.end
    return ends
