"""How many different values the events of a window have, by differences.

The events of a group that have one value are covered by runs: maximal stretches of the axis where there is
at least one of them (`Distinct`). A window has as many values as there are runs over it, so the count changes
where runs begin and end.

    value a       |=====|                           runs        |=========|
                      |=====|                                                 |==|
                              |==|
    value b          |===|                                         |===|
    n_unique      1  2   1    0  1   0

State       see `Distinct`; of a value only its hash is kept.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, new_end, old_end
from recension.core.rowhash import combine, row_hash
from recension.operators.base import Chunks
from recension.operators.changes import changes
from recension.operators.distinct import Distinct
from recension.operators.windowed.accumulators import PlacedAccumulator, PlacedChanges
from recension.operators.windowed.double_double import Pair
from recension.operators.windowed.steps import Points

_KEY = pa.schema([("key", pa.uint64())])


class CountDistinct(PlacedAccumulator):
    """How many different values there are; nulls do not count."""

    ints = 1

    def __init__(self) -> None:
        self._runs = Distinct(_KEY)

    def points(self, values: pa.Array, of: PlacedChanges) -> Points:
        rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False) & (of.old != of.new))
        found = row_hash(pa.record_batch([values.take(pa.array(rows))], ["value"]), len(rows))
        key = combine(of.hash[rows], found)
        payload = pa.RecordBatch.from_arrays([pa.array(key)], schema=_KEY)
        moved = self._runs.on_batch(0, changes(of.vs[rows], of.old[rows], of.new[rows], payload))
        known, first = np.unique(key, return_index=True)
        at = known.searchsorted(moved.payload.column(0).to_numpy())
        group = of.group[rows[first[at]]]
        step = np.repeat([1, -1], len(moved))
        time = np.concatenate([old_end(moved), new_end(moved)])
        none = np.zeros(len(step), np.int64)  # runs begin and end where events do, and those are end points
        return Points(np.concatenate([group, group]), time, none, none, [step], [])

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        return pa.array(ints[0])

    def forget_before(self, place: int) -> None:
        self._runs.on_cti(0, place)

    def rows(self) -> int:
        return self._runs.state_rows()

    def nbytes(self) -> int:
        return self._runs.state_bytes()

    def snapshot(self) -> Chunks:
        return self._runs.snapshot_state()

    def restore(self, chunks: Chunks) -> None:
        self._runs.restore_state(chunks)
