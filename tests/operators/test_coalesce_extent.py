"""Coalescing over window extents: eager = lazy = oracle after every arrival."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operators.equivalences import EQUIVALENCES
from tests.operators.readings_strategy import SCHEMA, reading_streams

from recension.core.events import Cti, Element, Event, Insert, Payload
from recension.core.ticks import BEGINNING
from recension.denote import coalesce_range, coalesce_rows
from recension.operators.extents import extent
from recension.operators.extents.operator import CoalesceExtent
from recension.operators.extents.query import CoalescingQuery, Equivalent
from recension.operators.extents.windows import RangeWindow, RowsWindow
from recension.operators.state import block_table
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.strategies import batchings

Oracle = Callable[[Payload, Payload], bool] | None
Scheme = Literal["eager", "lazy"]
LIKE: list[tuple[Equivalent | None, Oracle]] = [(None, None), (None, None), *EQUIVALENCES]
WINDOWS = [
    RangeWindow(3, 1),
    RangeWindow(4, 3),
    RangeWindow(0, 1),
    RangeWindow(2, 5),
    RowsWindow(1, 1),
    RowsWindow(3, 1),
    RowsWindow(3, 2),
    RowsWindow(2, 3),
    RowsWindow(9, 4),
]
VALID = [pa.field("valid_start", pa.int64()), pa.field("valid_end", pa.int64())]


def operator(
    window: RangeWindow | RowsWindow,
    scheme: Scheme,
    equivalent: Equivalent | None = None,
    schema: pa.Schema = SCHEMA,
) -> CoalesceExtent:
    query = CoalescingQuery(["k"], ["v"], equivalent)
    answers = pa.schema([schema.field("k"), schema.field("v"), *VALID])
    return CoalesceExtent(answers, schema, query, window, scheme)


def meaning(
    readings: list[Event], window: RangeWindow | RowsWindow, watermark: int, oracle: Oracle
) -> list[Event]:
    if isinstance(window, RowsWindow):
        passed = [e for e in readings if e.vs < watermark]
        return coalesce_rows(passed, window.size, window.slide, "v", "k", oracle)
    found = coalesce_range(readings, window.span, window.slide, "v", "k", oracle)
    return [e for e in found if e.vs < watermark]


class Play:
    """An extent of either scheme over the same readings."""

    def __init__(self, window: RangeWindow | RowsWindow, like: tuple[Equivalent | None, Oracle]) -> None:
        self.window, self.oracle, self.watermark = window, like[1], BEGINNING
        self.drivers = [
            Driver(lambda: operator(window, "eager", like[0]), SCHEMA),
            Driver(lambda: operator(window, "lazy", like[0]), SCHEMA),
        ]

    def feed(self, elements: list[Element]) -> None:
        starts = [e.vs if isinstance(e, Insert) else e.t for e in elements if isinstance(e, Insert | Cti)]
        self.watermark = max([self.watermark, *starts])
        for driver in self.drivers:
            driver.feed(elements)
        eager, lazy = self.drivers
        assert_equivalent(lazy.history(), meaning(lazy.given(), self.window, self.watermark, self.oracle))
        assert_equivalent(eager.history(), lazy.history())
        assert eager.cti == lazy.cti == lazy.given_cti()


def check(
    data: st.DataObject, window: RangeWindow | RowsWindow, like: tuple[Equivalent | None, Oracle]
) -> None:
    play = Play(window, like)
    for batch in data.draw(batchings(data.draw(reading_streams()))):
        play.feed(batch)
        if data.draw(st.booleans()):
            for driver in play.drivers:
                driver.revive()
    for driver in play.drivers:
        assert driver.operator.state_rows() == driver.operator.state_bytes() == 0


@given(st.data(), st.sampled_from(WINDOWS), st.sampled_from(LIKE))
def test_eager_lazy_and_oracle_agree_after_every_batch(
    data: st.DataObject, window: RangeWindow | RowsWindow, like: tuple[Equivalent | None, Oracle]
) -> None:
    check(data, window, like)


@given(st.data(), st.sampled_from(WINDOWS), st.sampled_from(LIKE))
def test_blocks_and_rows_do_not_matter(
    data: st.DataObject, window: RangeWindow | RowsWindow, like: tuple[Equivalent | None, Oracle]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_table, "_BLOCK", 1)
        patch.setattr(extent, "_SLACK", 0)
        check(data, window, like)


@given(st.data(), st.sampled_from(WINDOWS), st.sampled_from(LIKE))
def test_after_every_arrival(
    data: st.DataObject, window: RangeWindow | RowsWindow, like: tuple[Equivalent | None, Oracle]
) -> None:
    play = Play(window, like)
    for element in data.draw(reading_streams()):
        play.feed([element])
