"""Windows with boundaries from a table: the index asks for numbers and lifetimes, and knows of no hop."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recension import denote
from recension.core.batch import Index
from recension.core.events import Event
from recension.core.ticks import Ticks
from recension.denote.order import History
from recension.operators.base import Chunks
from recension.operators.windowed.accumulators import CountEvents, SumIntegers
from recension.operators.windowed.aggregates import AggregateSpec, Aggregation, aggregate_over
from recension.operators.windowed.index import View
from recension.operators.windowed.numbered import NumberedIndex
from recension.operators.windowed.operator import WindowedOperator
from recension.operators.windowed.selections import Extreme
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

CUTS = [-(10**9), -7, -3, 0, 1, 6, 8, 13, 14, 21, 34, 10**9]
"""Where one window ends and the next begins, at uneven distances. After the last there are no windows."""


class Table:
    """Windows from each boundary of a table to the next."""

    def __init__(self, boundaries: list[int]) -> None:
        self._at = np.array(boundaries)

    def place(self, vs: Ticks, ve: Ticks) -> tuple[Index, Index]:
        first = self._count_until(vs) - 1
        return first, np.where(ve == vs, first, np.minimum(np.searchsorted(self._at, ve), len(self._at) - 1))

    def start(self, window: Index) -> Ticks:
        return self._at[window]

    def end(self, window: Index) -> Ticks:
        return self._at[window + 1]

    def first_ending_after(self, t: int) -> int:
        return int(self._count_until(np.array([t]))[0]) - 1

    def first_starting_after(self, t: int) -> int:
        return int(self._count_until(np.array([t]))[0])

    def open_start(self, window: int, t: int) -> int:
        return min(t, int(self._at[max(window, 0)]))

    def snapshot(self, closed: int) -> Chunks:
        return {}

    def restore(self, chunks: Chunks) -> None:
        pass

    def _count_until(self, t: Ticks) -> Index:
        return np.searchsorted(self._at, t, "right")


def operator(view: View) -> WindowedOperator:
    int64 = pa.int64()
    schema = pa.schema([("n", int64), ("s", int64), ("top", int64)])
    value = partial(pa.RecordBatch.column, i="v")
    aggregations = [
        Aggregation(None, CountEvents()),
        Aggregation(value, SumIntegers()),
        Aggregation(value, Extreme(greatest=True)),
    ]
    spec = AggregateSpec(schema, SCHEMA, aggregations)
    return aggregate_over(spec, view, lambda of: NumberedIndex(of, Table(CUTS)))


def meaning(history: History) -> History:
    rows = denote.agg(n=denote.count(), s=denote.sum("v"), top=denote.max("v"))
    shown = []
    for start, end in pairwise(CUTS):
        held = [e for e in history if e.vs < end and e.ve > start]
        shown += [Event(row, start, end) for row in rows(held)] if held else []
    return shown


@pytest.mark.parametrize("view", ["ended", "all"])
@given(st.data())
@settings(max_examples=max(10, settings().max_examples // 4))
def test_windows_from_a_table(view: View, data: st.DataObject) -> None:
    history = data.draw(histories(min_size=1, max_size=5))
    driver = Driver(lambda: operator(view), SCHEMA)
    for number, batch in enumerate(data.draw(batchings(data.draw(physical_streams(history))))):
        if number == 1:
            driver.restore_twin()
        driver.feed(batch)
    assert_equivalent(driver.history(), meaning(driver.input_history()))
    assert driver.operator.state_rows() == 0
