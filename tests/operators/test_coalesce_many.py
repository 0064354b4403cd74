"""Many queries over shared extents: each answers as alone, whatever its scheme and whenever it moves."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.operators.equivalences import EQUIVALENCES
from tests.operators.readings_strategy import reading_streams
from tests.operators.test_coalesce_extent import VALID, WINDOWS

from recension.core.batch import inserts
from recension.core.events import Cti, Element, Event, Insert
from recension.core.ticks import FOREVER
from recension.operators.extents import extent
from recension.operators.extents import operator as operator_module
from recension.operators.extents.calibration import readings
from recension.operators.extents.many import CoalesceMany, QuerySpec
from recension.operators.extents.operator import CoalesceExtent
from recension.operators.extents.query import CoalescingQuery
from recension.operators.extents.windows import RangeWindow, RowsWindow
from recension.operators.schemes.constants import Constants
from recension.operators.schemes.costs import Weights
from recension.operators.schemes.plan import Planner, Sizes
from recension.operators.state import block_table
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.strategies import batchings

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("w", pa.int64())])
QUERIES = [
    CoalescingQuery(["k"], ["v"]),
    CoalescingQuery(["k", "w"], ["w"]),
    CoalescingQuery(["k"], ["w"], None),
    CoalescingQuery(["k"], ["v"], EQUIVALENCES[0][0]),
]
TOGETHER = pa.schema([("query", pa.int32()), *SCHEMA, *VALID])
masks = st.lists(st.booleans(), min_size=len(QUERIES), max_size=len(QUERIES))

Window = RangeWindow | RowsWindow


def asked(query: CoalescingQuery) -> QuerySpec:
    return QuerySpec(query, pa.schema([*(SCHEMA.field(name) for name in query.columns), *VALID]))


def many(window: Window, eager: list[bool], planner: Planner | None = None) -> CoalesceMany:
    return CoalesceMany(TOGETHER, SCHEMA, list(map(asked, QUERIES)), window, np.array(eager), planner)


def alone(window: Window, query: CoalescingQuery) -> CoalesceExtent:
    return CoalesceExtent(asked(query).answers, SCHEMA, query, window, "eager")


def answers(history: list[Event], number: int) -> list[Event]:
    """Those of one query, with its own columns."""
    names = asked(QUERIES[number]).answers.names
    own = [event for event in history if event.payload["query"] == number]
    return [Event({name: e.payload[name] for name in names}, e.vs, e.ve) for e in own]


def widened(element: Element) -> Element:
    """With a second value, which changes more seldom."""
    if isinstance(element, Cti):
        return element
    value = element.payload["v"]  # type: ignore[union-attr]
    return replace(element, payload={**element.payload, "w": (value or 0) // 2})  # type: ignore


class Play:
    """The queries together, and each alone."""

    def __init__(self, window: Window, eager: list[bool]) -> None:
        self.together = Driver(lambda: many(window, eager), SCHEMA)
        self.apart = [Driver(partial(alone, window, query), SCHEMA) for query in QUERIES]

    def feed(self, elements: list[Element]) -> None:
        for driver in (self.together, *self.apart):
            driver.feed(elements)
        for number, driver in enumerate(self.apart):
            assert_equivalent(answers(self.together.history(), number), driver.history())
        assert self.together.cti == self.apart[0].cti

    def move(self, eager: list[bool]) -> None:
        for operator in self.together._operators:
            assert isinstance(operator, CoalesceMany)
            operator.move(np.array(eager))


@given(st.data(), st.sampled_from(WINDOWS), masks)
@settings(max_examples=examples(20))
def test_queries_answer_as_alone_while_they_move(
    data: st.DataObject, window: Window, eager: list[bool]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(block_table, "_BLOCK", 1)
            patch.setattr(extent, "_SLACK", 0)
            patch.setattr(operator_module, "_REACH", 1)
        play = Play(window, eager)
        for batch in data.draw(batchings([widened(e) for e in data.draw(reading_streams())])):
            play.feed(batch)
            match data.draw(st.integers(0, 2)):
                case 0:
                    play.together.restore_twin()
                case 1:
                    play.move(data.draw(masks))
        assert play.together.operator.state_rows() == play.together.operator.state_bytes() == 0


@pytest.mark.parametrize("eager", [[False] * 4, [False, True, True, False]])
def test_readings_of_one_time_are_not_parted(eager: list[bool]) -> None:
    """Each query has its own order of them, which is not that of the shared extent."""
    told = [("b", 0), ("a", 1), ("b", 1), ("", 1), ("a", 2), ("a", 3), ("a", 4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_table, "_BLOCK", 1)
        play = Play(RowsWindow(3, 1), eager)
        play.feed([Insert({"k": key, "v": 1, "w": 0}, time, time + 1) for key, time in told])
        play.feed([Cti(4)])
        play.move([False, False, True, True])
        play.feed([Insert({"k": "c", "v": 2, "w": 0}, 5, 6), Cti(5)])
        play.feed([Cti(FOREVER)])


def element(time: int, value: int) -> Insert:
    return Insert({"k": "a", "v": value, "w": 0}, time, time + 1)


def test_a_lazy_extent_is_relied_on_when_it_is_one_window_old() -> None:
    """Ruling 36: it is begun while all queries are eager, and they stay so until it has all that matters."""
    play = Play(RangeWindow(4, 1), [True] * 4)
    operator = play.together.operator
    assert isinstance(operator, CoalesceMany)
    play.feed([element(time, time // 2) for time in range(6)])
    play.move([False] * 4)
    play.feed([element(7, 1), Cti(7)])
    assert operator.is_eager.all()
    play.feed([element(9, 1), Cti(9)])
    assert operator.is_eager.all()
    play.feed([element(12, 1), Cti(11)])
    assert not operator.is_eager.any()
    # One extent now; and moving back costs a scan and no waiting.
    assert operator.state_rows() == 3
    play.move([True, False, False, True])
    assert operator.is_eager.tolist() == [True, False, False, True]
    play.feed([element(11, 5), Cti(14)])


def test_a_young_extent_that_nobody_waits_for_is_given_up() -> None:
    play = Play(RangeWindow(4, 1), [True] * 4)
    operator = play.together.operator
    play.feed([element(time, time // 2) for time in range(6)])
    rows = operator.state_rows()
    play.move([False] * 4)
    play.feed([element(6, 1), element(7, 1)])
    assert operator.state_rows() == rows + 4 * 2 + 2
    play.move([True] * 4)
    assert operator.state_rows() == rows + 4 * 2


CONSTANTS = Constants(
    read=1, coalesce=1, insert=0.035, delete=0.072, detach=0.1, merge=2, merge_late=1, split=0.07
)
NAMES = ("v by k", "w by k, w", "w by k", "v up by k")
PLANNER = Planner(
    NAMES,
    Sizes(41, (33,) * 4, (8,) * 4),
    CONSTANTS,
    Weights(1, 1, 2),
)


def batch(start: int, cp: float, size: int = 2_000) -> tuple[pa.RecordBatch, np.ndarray]:
    times, groups, values = readings(size, cp, 0.0, groups=3)
    payload = pa.record_batch(
        [groups.astype(str).tolist(), pa.array(values), pa.array(values)], schema=SCHEMA
    )
    return payload, times + start


def test_schemes_follow_what_is_learned() -> None:
    """Queries whose readings coalesce often become eager, and lazy again when they no longer do."""
    operator = many(RangeWindow(500, 100), [False] * 4, PLANNER)
    seen = []
    for part in range(16):
        payload, times = batch(part * 2_000, 0.95 if part < 3 else 0.02)
        operator.on_batch(0, inserts(times, times + 1, payload))
        operator.on_cti(0, int(times[-1]))
        seen.append(operator.is_eager.tolist())
    # A lone lazy query, of values that seldom rise, would not be worth the shared extent.
    assert seen[2] == [True, True, True, True]
    assert seen[-1] == [False, False, False, True]
    assert operator.plan is not None
    assert operator.describe_choices()[0].startswith("weights ⟨1, 1, 2⟩: this choice costs")
    restored = many(RangeWindow(500, 100), [False] * 4, PLANNER)
    restored.restore(operator.snapshot())
    assert restored.describe_choices() == operator.describe_choices()
    assert restored.is_eager.tolist() == operator.is_eager.tolist()
