"""Semi, anti and left join against the oracle, for any streams, batching and interleaving."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from recension.core.batch import Mask
from recension.core.events import Cti, Element, Event, Insert, Payload, Retract
from recension.core.ticks import FOREVER
from recension.denote.join import How, join
from recension.denote.order import canonical
from recension.operators.base import Operator
from recension.operators.left_join import LeftJoin
from recension.operators.matching import LEFT, RIGHT, JoinedColumn, JoinSide, Predicate
from recension.operators.semijoin import AntiJoin, SemiJoin
from recension.testing.driver import Driver
from recension.testing.model import StreamModel
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

COLUMNS = [JoinedColumn(LEFT, "k", "k"), JoinedColumn(LEFT, "v", "v"), JoinedColumn(RIGHT, "v", "v_right")]
CROSSED = [*COLUMNS[:2], JoinedColumn(RIGHT, "k", "k_right"), COLUMNS[2]]
JOINS: dict[How, type[SemiJoin | AntiJoin | LeftJoin]] = {
    "semi": SemiJoin,
    "anti": AntiJoin,
    "left": LeftJoin,
}


def differs(joined: pa.RecordBatch) -> Mask:
    unequal = pc.fill_null(pc.not_equal(joined.column("v"), joined.column("v_right")), False)
    return np.asarray(unequal.to_numpy(zero_copy_only=False), np.bool_)


def is_different(joined: Payload) -> bool:
    return None not in (joined["v"], joined["v_right"]) and bool(joined["v"] != joined["v_right"])


def steps(data: DataObject) -> list[tuple[int, list[Element]]]:
    """Batches of two streams, in any interleaving."""
    streams = [data.draw(physical_streams(data.draw(histories()), schema=SCHEMA)) for _ in range(2)]
    batches = [data.draw(batchings(stream)) for stream in streams]
    ports = data.draw(st.permutations([0] * len(batches[0]) + [1] * len(batches[1])))
    return [(port, batches[port].pop(0)) for port in ports]


@pytest.mark.parametrize("how", ["semi", "anti", "left"])
@given(st.data(), st.booleans(), st.booleans())
def test_it_is_the_oracle_after_every_step(how: How, data: DataObject, keyed: bool, filtered: bool) -> None:
    on, columns = (("k",), COLUMNS) if keyed else ((), CROSSED)
    driver = Driver(lambda: make(how, on, columns, differs if filtered else None), SCHEMA, SCHEMA)
    inputs = (StreamModel(), StreamModel())
    for port, elements in steps(data):
        driver.feed(elements, port)
        for element in elements:
            inputs[port].take(element)
        left, right = (walk.events() for walk in inputs)
        where = is_different if filtered else None
        expected = join(left, right, on, where, how, right_columns=["k", "v"])
        assert canonical(driver.history()) == canonical(expected)
        assert driver.cti == min(walk.cti for walk in inputs)
        assert driver.operator.state_rows() <= most_remembered(inputs, driver)
        if data.draw(st.booleans()):
            driver.restore_twin()
    assert driver.operator.state_rows() == 0


def make(how: How, on: Sequence[str], columns: Sequence[JoinedColumn], where: Predicate | None) -> Operator:
    side = JoinSide(SCHEMA, tuple(on))
    return JOINS[how](side, side, columns, where)


def most_remembered(inputs: Sequence[StreamModel], driver: Driver) -> int:
    """Whatever ends at or after the least CTI: of both inputs and, for the parts shown, of the output."""
    events = [event for walk in inputs for event in walk.events()] + driver.history()
    return sum(event.ve >= driver.cti for event in events)


NAME = pa.schema([("p", pa.string())])
P = {"p": "l"}


def drive(how: How, *elements: tuple[int, Element]) -> Driver:
    side = JoinSide(NAME, ("p",))
    columns = [JoinedColumn(LEFT, "p", "p"), JoinedColumn(RIGHT, "p", "q")]
    driver = Driver(lambda: JOINS[how](side, side, columns), NAME, NAME)
    for port, element in elements:
        driver.feed([element], port)
    return driver


def test_anti_join_of_the_rulings() -> None:
    """Rulings H, ANTI."""
    right = [(RIGHT, Insert(P, 2, 4)), (RIGHT, Insert(P, 3, 6))]
    driver = drive("anti", (LEFT, Insert(P, 0, 10)), (LEFT, Insert(P, 0, 10)), *right)
    assert driver.history() == [Event(P, 0, 2), Event(P, 0, 2), Event(P, 6, 10), Event(P, 6, 10)]


def test_an_uncovered_part_keeps_its_start_after_the_event_before_it_is_forgotten() -> None:
    """Only ends move, so a CTI need not wait for parts that began before it."""
    driver = drive(
        "anti",
        (LEFT, Insert(P, 0)),
        (RIGHT, Insert(P, 0, 2)),
        (LEFT, Cti(50)),
        (RIGHT, Cti(50)),
        (RIGHT, Insert(P, 100)),
        (RIGHT, Retract(P, 100, FOREVER, 100)),
    )
    assert list(map(str, driver.output)) == [
        "insert [0, ∞) {'p': 'l'}",
        "retract [0, ∞) -> 0 {'p': 'l'}",
        "insert [2, ∞) {'p': 'l'}",
        "cti 50",
        "retract [2, ∞) -> 100 {'p': 'l'}",
        "retract [2, 100) -> ∞ {'p': 'l'}",
    ]


def test_covered_parts_grow_together_when_the_gap_closes() -> None:
    right = [(RIGHT, Insert(P, 1, 3)), (RIGHT, Insert(P, 5, 7)), (RIGHT, Insert(P, 3, 5))]
    driver = drive("semi", (LEFT, Insert(P, 0, 9)), *right)
    assert driver.history() == [Event(P, 1, 7)]


def test_null_keys_match_nothing() -> None:
    nobody = {"p": None}
    feed = [(LEFT, Insert(nobody, 0, 9)), (RIGHT, Insert(nobody, 0, 9))]
    assert drive("semi", *feed).history() == []
    assert drive("anti", *feed).history() == [Event(nobody, 0, 9)]
    assert drive("left", *feed).history() == [Event({"p": None, "q": None}, 0, 9)]
