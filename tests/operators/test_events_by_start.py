"""Events by start: where starts are times of today, of long ago, and the ends of time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from recension.core.batch import inserts
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.changes import net_changes
from recension.operators.state.events_by_start import EventsByStart

SCHEMA = pa.schema([("v", pa.int64())])
ROWS = 1000


# About so many keys are packed at once: among these starts their numbers would pass the end of their range.
WRAPPING = [2**63 // keys for keys in range(ROWS + 100, ROWS + 260, 2)]


@pytest.mark.parametrize("center", [0, -(2**62), 2**60, *WRAPPING])
def test_starts_of_any_size_are_in_order(center: int) -> None:
    """Keys are packed into one number, and so compared."""
    dice, held = np.random.default_rng(1), EventsByStart(SCHEMA)
    every: list[int] = []
    for rows in (8 * ROWS, ROWS, 100, 1):
        start = center + dice.integers(-(2**43), 2**43, rows)
        payload = pa.RecordBatch.from_arrays([pa.array(dice.integers(0, 2**40, rows))], schema=SCHEMA)
        batch = inserts(start, start + 1, payload)
        held.apply(net_changes(batch), batch.payload)
        every += start.tolist()
        assert held.first_start() == min(every)
    for limit in (center, center + 2**42, FOREVER):
        out, end, row = held.take_before(limit)
        assert out.tolist() == sorted(start for start in every if start < limit)
        assert (end == out + 1).all()
        held.drop(row)
        every = [start for start in every if start >= limit]
    assert len(held) == 0


def test_the_ends_of_time_are_starts() -> None:
    held, start = EventsByStart(SCHEMA), np.array([BEGINNING, 0, FOREVER - 1])
    batch = inserts(start, start + 1, pa.RecordBatch.from_arrays([pa.array([1, 2, 3])], schema=SCHEMA))
    held.apply(net_changes(batch), batch.payload)
    assert held.take_before(BEGINNING)[0].tolist() == []
    assert held.take_before(FOREVER - 1)[0].tolist() == [BEGINNING, 0]
    assert held.take_before(FOREVER)[0].tolist() == [FOREVER - 1]
