"""Interval joins against the oracle, for any streams, batching and interleaving."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from tests.operators.test_semijoin import COLUMNS, CROSSED, differs, is_different, steps

from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.interval_join import interval_join, unless
from recension.denote.join import How
from recension.denote.order import History, canonical
from recension.operators import start_matches, starts
from recension.operators.base import Operator
from recension.operators.interval_join import PairsByStart
from recension.operators.matching import LEFT, RIGHT, JoinSide, Predicate
from recension.operators.start_matches import Kept, MatchesByStart
from recension.operators.starts import StartRange
from recension.testing.driver import Driver
from recension.testing.model import StreamModel
from recension.testing.strategies import SCHEMA

HOWS: list[How] = ["inner", "left", "semi", "anti"]


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, int]:
    low, high = draw(st.integers(-6, 6)), draw(st.integers(-1, 8))
    return low, max(low, low + high) if draw(st.integers(0, 9)) else low - 1


def make(
    how: How, starts: tuple[int, int], on: Sequence[str], where: Predicate | None, within: int | None = None
) -> Operator:
    side, columns = JoinSide(SCHEMA, tuple(on)), COLUMNS if on else CROSSED
    if how == "inner":
        return PairsByStart(side, side, columns, where, StartRange(*starts))
    kept = Kept(how == "semi", how == "left", within)
    return MatchesByStart(side, side, columns, where, StartRange(*starts), kept)


def held(inputs: Sequence[StreamModel], high: int, on: Sequence[str]) -> int:
    """The least start of a left event whose range the right CTI has not passed."""
    undecided = (
        event.vs
        for event in inputs[LEFT].events()
        if event.vs + high >= inputs[RIGHT].cti and not any(event.payload[key] is None for key in on)
    )
    return min(undecided, default=FOREVER) if inputs[RIGHT].cti < FOREVER else FOREVER


@pytest.fixture(params=["at once", "in pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every question were about too much."""
    if request.param == "in pieces":
        monkeypatch.setattr(starts, "_MOST_CANDIDATES", 0)
        monkeypatch.setattr(start_matches, "_MANY", 0)
        monkeypatch.setattr(start_matches, "_FEW", 0)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("how", HOWS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), ranges(), st.booleans(), st.booleans())
def test_it_is_the_oracle_after_every_step(
    how: How, data: DataObject, within: tuple[int, int], keyed: bool, filtered: bool
) -> None:
    on: tuple[str, ...] = ("k",) if keyed else ()
    where = is_different if filtered else None

    def meaning(left: History, right: History) -> History:
        return interval_join(left, right, within, "both", on, where, how, right_columns=["k", "v"])

    driver = Driver(lambda: make(how, within, on, differs if filtered else None), SCHEMA, SCHEMA)
    inputs = (StreamModel(), StreamModel())
    for port, elements in steps(data):
        driver.feed(elements, port)
        for element in elements:
            inputs[port].take(element)
        assert canonical(driver.history()) == canonical(meaning(*(walk.events() for walk in inputs)))
        hold = FOREVER if how == "inner" else held(inputs, within[1], on)
        assert driver.cti == min(*(walk.cti for walk in inputs), max(hold, BEGINNING))
        assert driver.operator.state_rows() <= most_remembered(inputs, within)
        if data.draw(st.booleans()):
            driver.restore_twin()
    assert driver.operator.state_rows() == 0


def most_remembered(inputs: Sequence[StreamModel], starts: tuple[int, int]) -> int:
    """Right events that a left one may meet; left events, twice, that may meet or whose end may move."""
    (left, right), (low, high) = inputs, starts
    span = max(high + 1, 1)
    ours = sum(
        e.vs + high >= right.cti or e.vs + span >= left.cti - 1 or e.ve >= left.cti for e in left.events()
    )
    theirs = sum(e.vs - low >= left.cti or e.vs - low + high >= right.cti for e in right.events())
    return 2 * ours + theirs


@pytest.mark.usefixtures("pieces")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.integers(1, 8), st.booleans())
def test_unless_is_the_oracle_after_every_step(data: DataObject, within: int, filtered: bool) -> None:
    where = is_different if filtered else None
    between = (1, within - 1)
    driver = Driver(
        lambda: make("anti", between, ("k",), differs if filtered else None, within), SCHEMA, SCHEMA
    )
    inputs = (StreamModel(), StreamModel())
    for port, elements in steps(data):
        driver.feed(elements, port)
        for element in elements:
            inputs[port].take(element)
        left, right = (walk.events() for walk in inputs)
        expected = unless(left, right, within, "k", where)
        assert canonical(driver.history()) == canonical(expected)
        assert driver.cti == min(*(walk.cti for walk in inputs), held(inputs, within - 1, ("k",)))
        if data.draw(st.booleans()):
            driver.restore_twin()
    assert driver.operator.state_rows() == 0


def drive(how: How, starts: tuple[int, int], *elements: tuple[int, Element]) -> Driver:
    driver = Driver(lambda: make(how, starts, ("k",), None), SCHEMA, SCHEMA)
    for port, element in elements:
        driver.feed([element], port)
    return driver


A = {"k": "a", "v": 1}


def test_the_end_of_an_unmatched_event_moves_long_after_its_range_is_past() -> None:
    driver = drive(
        "anti",
        (0, 5),
        (LEFT, Insert(A, 0, 100)),
        (LEFT, Insert({"k": "b", "v": 1}, 0, 100)),
        (RIGHT, Insert(A, 2, 3)),
        (RIGHT, Cti(50)),
        (LEFT, Cti(50)),
        (LEFT, Retract(A, 0, 100, 60)),
        (LEFT, Retract({"k": "b", "v": 1}, 0, 100, 60)),
    )
    assert driver.history() == [Event({"k": "b", "v": 1}, 0, 60)]
    assert list(map(str, driver.output[-2:])) == ["cti 50", "retract [0, 100) -> 60 {'k': 'b', 'v': 1}"]


def test_at_the_ends_of_time_distances_are_exact() -> None:
    first, last = Insert(A, BEGINNING, BEGINNING + 5), Insert(A, FOREVER - 1, FOREVER)
    for how in HOWS:
        for within in ((0, 5), (-5, 5), (-3, 2)):
            driver = drive(how, within, (LEFT, first), (RIGHT, last), (LEFT, last), (RIGHT, first))
            events = driver.input_history(LEFT), driver.input_history(RIGHT)
            expected = interval_join(*events, within, on="k", how=how, right_columns=["k", "v"])
            assert canonical(driver.history()) == canonical(expected)
            driver.feed([Cti(FOREVER)], LEFT)
            driver.feed([Cti(FOREVER)], RIGHT)
            assert driver.operator.state_rows() == 0


def test_a_hot_key_is_looked_at_once() -> None:
    """Matches beyond the first cost nothing: the unmatched stand apart."""
    rows = 20_000
    driver = make("anti", (0, rows), ("k",), None)
    import numpy as np
    import pyarrow as pa

    from recension.core.batch import inserts

    vs = np.arange(rows)
    payload = pa.record_batch({"k": ["a"] * rows, "v": vs}, schema=SCHEMA)
    driver.on_batch(LEFT, inserts(vs, vs + 1, payload))
    for at in (rows - 1, rows - 2, 5):
        gone = driver.on_batch(RIGHT, inserts(vs[at:], vs[at:] + 1, payload.slice(at)))
        assert len(gone) == (rows if at == rows - 1 else 0)
