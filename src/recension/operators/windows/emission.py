"""What changed in the windows shown, as retractions and inserts of whole windows.

On the axis of window numbers each stretch between two end points stands for that many windows of equal
content; the result is computed once for the stretch and written out for each of them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, RETRACT, EventBatch, Index, take_rows
from recension.core.errors import RecensionError
from recension.core.ticks import FOREVER, Ticks
from recension.operators.snapshot.emission import Compute, equal_rows, slots_of
from recension.operators.snapshot.working_set import WorkingSet, next_in_group
from recension.operators.state.ranges import expand
from recension.operators.windows.grid import Grid


def emit_windows(
    work: WorkingSet, grid: Grid, shown: tuple[Ticks, Ticks], before: Compute, after: Compute
) -> EventBatch:
    """Take the windows shown before to those shown now.

    ``shown`` tells for each stretch up to which window it was, and is now, shown.
    """
    end = next_in_group(work.group, work.time)
    # Where nothing changed only the windows that came into view are new.
    low = np.where(work.is_changed, work.time, np.maximum(work.time, shown[0]))
    had, has = (
        np.where(side.n > 0, np.minimum(end, limit), work.time)
        for side, limit in zip((work.old, work.new), shown, strict=True)
    )
    high = np.maximum(had, has)
    unclear = np.flatnonzero((high > low) & ~work.is_context)
    _refuse_endless(high[unclear])
    was, now = work.old.n[unclear] > 0, work.new.n[unclear] > 0
    old, new = before(unclear[was]), after(unclear[now])
    slots = slots_of(unclear, was, now, old, new)
    owner, window = expand(low[slots.at], high[slots.at])
    was = slots.was[owner] & (window < had[slots.at][owner])
    now = slots.now[owner] & (window < has[slots.at][owner])
    both = np.flatnonzero(slots.was & slots.now)
    same = np.zeros(len(slots.at), np.bool_)
    same[both] = equal_rows(old.rows, slots.old_row[both], new.rows, slots.new_row[both])
    stays = was & now & same[owner]
    goes, comes = np.flatnonzero(was & ~stays), np.flatnonzero(now & ~stays)
    rows = np.concatenate([slots.old_row[owner[goes]], old.rows.num_rows + slots.new_row[owner[comes]]])
    payload = take_rows(pa.concat_batches([old.rows, new.rows]), rows)
    return _elements(grid, window[goes], window[comes], payload)


def _refuse_endless(high: Index) -> None:
    if bool((high == FOREVER).any()):
        raise RecensionError(
            "windows over an event that never ends go on for ever: name a last start with until="
        )


def _elements(grid: Grid, goes: Index, comes: Index, payload: pa.RecordBatch) -> EventBatch:
    """Windows by start, at each start those that go before those that come."""
    window = np.concatenate([goes, comes])
    vs = grid.start(window)
    kind = np.repeat(np.array([RETRACT, INSERT], np.uint8), [len(goes), len(comes)])
    new_ve = np.where(kind == RETRACT, vs, np.int64(FOREVER))
    out = EventBatch(kind, vs, grid.end(window), new_ve, np.zeros(len(vs), np.int64), payload)
    return out.take(np.lexsort((kind == INSERT, vs)))
