"""Coalescing over window extents: eager = lazy = oracle after every arrival."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operators.equivalences import EQUIVALENCES
from tests.operators.readings_strategy import SCHEMA, reading_streams

from recension.core.batch import inserts
from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Event, Insert, Payload, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote import coalesce_range, coalesce_rows
from recension.operators.extents import extent
from recension.operators.extents import operator as operator_module
from recension.operators.extents.calibration import readings
from recension.operators.extents.operator import CoalesceExtent
from recension.operators.extents.query import CoalescingQuery, Equivalent
from recension.operators.extents.windows import RangeWindow, RowsWindow
from recension.operators.state import block_table
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.model import StreamModel
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
        assert_equivalent(
            lazy.history(), meaning(lazy.input_history(), self.window, self.watermark, self.oracle)
        )
        assert_equivalent(eager.history(), lazy.history())
        assert eager.cti == lazy.cti == lazy.input_cti()


def check(
    data: st.DataObject, window: RangeWindow | RowsWindow, like: tuple[Equivalent | None, Oracle]
) -> None:
    play = Play(window, like)
    for batch in data.draw(batchings(data.draw(reading_streams()))):
        play.feed(batch)
        if data.draw(st.booleans()):
            for driver in play.drivers:
                driver.restore_twin()
    for driver in play.drivers:
        assert driver.operator.state_rows() == driver.operator.state_bytes() == 0


@given(st.data(), st.sampled_from(WINDOWS), st.sampled_from(LIKE), st.sampled_from([1, 1024]))
def test_eager_lazy_and_oracle_agree_after_every_batch(
    data: st.DataObject, window: RangeWindow | RowsWindow, like: tuple[Equivalent | None, Oracle], block: int
) -> None:
    """Wherever state is cut into blocks, and however often payloads are tidied up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_table, "_BLOCK", block)
        patch.setattr(extent, "_SLACK", block - 1)
        patch.setattr(operator_module, "_REACH", block)
        check(data, window, like)


def fed(
    window: RangeWindow | RowsWindow, cp: float, oop: float, equivalent: Equivalent | None, size: int = 1_500
) -> list[tuple[CoalesceExtent, CoalesceExtent]]:
    """Both schemes after each batch of many readings; a part ``cp`` goes on, a part ``oop`` comes late."""
    random, schema = np.random.default_rng(3), pa.schema([("k", pa.int64()), ("v", pa.int64())])
    groups, steps = random.integers(0, 5, size), (random.random(size) >= cp).astype(np.int64)
    late = np.argsort(np.arange(size) + np.where(random.random(size) < oop, random.integers(0, 60, size), 0))
    pair = operator(window, "eager", equivalent, schema), operator(window, "lazy", equivalent, schema)
    shown, found = (StreamModel(), StreamModel()), []
    for part in np.array_split(late, 12):
        columns = [pa.array(groups[part]), pa.array(np.cumsum(steps)[part])]
        batch = inserts(part, part + 1, pa.RecordBatch.from_arrays(columns, schema=schema))
        for extent_, walk in zip(pair, shown, strict=True):
            out = extent_.on_batch(0, batch), extent_.on_cti(0, int(part.min())).batch
            for element in (e for elements in out for e in elements.to_elements()):
                assert walk.fault(element) is None
                walk.take(element)
        found.append(pair)
        check_memory(*pair)
    assert_equivalent(shown[0].events(), shown[1].events())
    return found


def check_memory(eager: CoalesceExtent, lazy: CoalesceExtent) -> None:
    """Never above the lazy extent by more than a timestamp a reading."""
    assert eager.state_rows() == lazy.state_rows()
    assert eager.state_bytes() <= lazy.state_bytes() + 8 * eager.state_rows()


@pytest.mark.slow
@pytest.mark.parametrize("window", [RangeWindow(200, 200), RowsWindow(150, 200)], ids=str)
@pytest.mark.parametrize(("cp", "oop"), [(0.0, 0.5), (0.7, 0.5), (1.0, 0.0)])
def test_the_eager_extent_takes_no_more_memory_than_the_lazy_one_and_its_timestamps(
    window: RangeWindow | RowsWindow, cp: float, oop: float
) -> None:
    fed(window, cp, oop, None)
    fed(window, cp, oop, EQUIVALENCES[2][0], size=600)


def test_an_eager_extent_keeps_one_payload_a_run() -> None:
    eager, lazy = fed(RangeWindow(200, 200), 1.0, 0.0, None)[-1]
    assert eager.state_bytes() < 0.7 * lazy.state_bytes()


@pytest.mark.parametrize("cp", [0.0, 0.5, 0.9])
def test_payloads_of_an_eager_extent_do_not_outlive_the_window_for_long(cp: float) -> None:
    times, groups, values = readings(6_000, cp, 0.0, groups=3)
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    eager = operator(RangeWindow(500, 500), "eager", None, schema)
    for part in np.array_split(np.arange(len(times)), 24):
        payload = pa.RecordBatch.from_arrays([pa.array(groups[part]), pa.array(values[part])], schema=schema)
        eager.on_batch(0, inserts(times[part], times[part] + 1, payload))
        eager.on_cti(0, int(times[part].max()))
        # Of each reading its place, time, row and link; of each run a payload; and a quarter to spare.
        runs, spare = 1 - cp + 0.05, 0.25
        assert eager.state_bytes() <= eager.state_rows() * (25 + 16 * (runs + spare))


@pytest.mark.parametrize("window", [RangeWindow(5_000, 9_999), RowsWindow(5_000, 9_999)], ids=str)
@pytest.mark.parametrize("scheme", ["eager", "lazy"])
def test_a_small_batch_looks_at_few_of_the_readings_in_the_window(
    window: RangeWindow | RowsWindow, scheme: Scheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, groups, values = readings(4_000, 0.5, 0.2, groups=3)
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    payload = pa.RecordBatch.from_arrays([pa.array(groups), pa.array(values)], schema=schema)
    one, looked = operator(window, scheme, None, schema), list[int]()
    one.on_batch(0, inserts(times[:3_900], times[:3_900] + 1, payload.slice(0, 3_900)))
    payload_of = extent.Extent.payload

    def counted(self: extent.Extent, rows: np.ndarray) -> pa.RecordBatch:
        looked.append(len(rows))
        return payload_of(self, rows)

    monkeypatch.setattr(extent.Extent, "payload", counted)
    for at in range(3_900, 4_000):
        one.on_batch(0, inserts(times[at : at + 1], times[at : at + 1] + 1, payload.slice(at, 1)))
    assert len(looked) >= 100
    # Within a block of the table there is nothing to choose.
    assert max(looked) <= 2 * block_table._BLOCK


def told(window: RangeWindow | RowsWindow, *elements: Element) -> list[str]:
    drive = Driver(lambda: operator(window, "eager"), SCHEMA)
    return [str(e) for e in [drive.feed([element]) for element in elements][-1]]


def a(v: int) -> Payload:
    return {"k": "a", "v": v}


def test_refusals() -> None:
    for window in (RangeWindow(5, 1), RowsWindow(3, 1)):
        with pytest.raises(StreamError, match="two readings of one group at 4"):
            told(window, Insert(a(1), 4, 5), Insert(a(2), 4, 5))
        with pytest.raises(StreamError, match="never been inserted"):
            told(window, Retract(a(1), 4, 5, 4))


def test_an_end_that_moves_changes_nothing() -> None:
    for window in (RangeWindow(5, 1), RowsWindow(3, 1)):
        assert told(window, Insert(a(1), 4, 5), Insert(a(1), 6, 7), Retract(a(1), 4, 5, 99)) == []


def test_readings_no_window_holds_can_be_taken_back() -> None:
    """A slide wider than the window: found by the properties."""
    reading = Insert(a(1), 2, 9)
    assert told(RangeWindow(2, 5), reading, Cti(2), Retract(a(1), 2, 9, 2)) == []


def test_the_ends_of_time() -> None:
    """Windows that would begin before time or end after it."""
    window = RangeWindow(10, 7)
    readings = [Event(a(1), BEGINNING + 1, 0), Event(a(1), FOREVER - 3, FOREVER)]
    drive = Driver(lambda: operator(window, "lazy"), SCHEMA)
    drive.feed([Insert(e.payload, e.vs, e.ve) for e in readings])
    drive.feed([Cti(FOREVER)])
    assert_equivalent(drive.history(), coalesce_range(readings, 10, 7, "v", "k"))


@given(st.data(), st.sampled_from(WINDOWS), st.sampled_from(LIKE))
def test_after_every_arrival(
    data: st.DataObject, window: RangeWindow | RowsWindow, like: tuple[Equivalent | None, Oracle]
) -> None:
    play = Play(window, like)
    for element in data.draw(reading_streams()):
        play.feed([element])
