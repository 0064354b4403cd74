"""The temporal equijoin against the oracle, for any streams, batching and interleaving."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

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
from recension.denote.join import join
from recension.denote.order import History, canonical
from recension.operators.join import Join
from recension.operators.matching import LEFT, RIGHT, JoinedColumn, JoinSide
from recension.testing.driver import Driver
from recension.testing.model import StreamModel
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

COLUMNS = [JoinedColumn(LEFT, "k", "k"), JoinedColumn(LEFT, "v", "v"), JoinedColumn(RIGHT, "v", "v_right")]
CROSSED = [*COLUMNS[:2], JoinedColumn(RIGHT, "k", "k_right"), COLUMNS[2]]


def smaller(joined: pa.RecordBatch) -> Mask:
    less = pc.fill_null(pc.less(joined.column("v"), joined.column("v_right")), False)
    return np.asarray(less.to_numpy(zero_copy_only=False), np.bool_)


def is_smaller(joined: Payload) -> bool:
    return None not in (joined["v"], joined["v_right"]) and bool(joined["v"] < joined["v_right"])


def steps(data: DataObject) -> list[tuple[int, list[Element]]]:
    """Batches of two streams, in any interleaving."""
    streams = [data.draw(physical_streams(data.draw(histories()), schema=SCHEMA)) for _ in range(2)]
    batches = [data.draw(batchings(stream)) for stream in streams]
    ports = data.draw(st.permutations([0] * len(batches[0]) + [1] * len(batches[1])))
    return [(port, batches[port].pop(0)) for port in ports]


@given(st.data(), st.booleans(), st.booleans())
def test_join_is_the_oracle_after_every_step(data: DataObject, keyed: bool, filtered: bool) -> None:
    on, columns = (("k",), COLUMNS) if keyed else ((), CROSSED)
    side, where = JoinSide(SCHEMA, on), smaller if filtered else None
    driver = Driver(lambda: Join(side, side, columns, where), SCHEMA, SCHEMA)
    inputs = (StreamModel(), StreamModel())
    for port, elements in steps(data):
        driver.feed(elements, port)
        for element in elements:
            inputs[port].take(element)
        left, right = (walk.events() for walk in inputs)
        expected = join(left, right, on, is_smaller if filtered else None)
        assert canonical(driver.history()) == canonical(expected)
        assert driver.cti == min(walk.cti for walk in inputs)
        assert driver.operator.state_rows() == remembered(inputs, on)
        if data.draw(st.booleans()):
            driver.restore_twin()
    assert driver.operator.state_rows() == 0


def remembered(inputs: Sequence[StreamModel], on: Sequence[str]) -> int:
    """The events whose end the other input's CTI has not passed (ruling C2)."""
    return sum(
        event.ve > other.cti and all(event.payload[key] is not None for key in on)
        for own, other in (inputs, inputs[::-1])
        for event in own.events()
    )


TEXT = pa.schema([("p", pa.string())])


def drive(*elements: tuple[int, Element], at_once: bool = False) -> list[str]:
    """The output of a join on the one column there is, an element at a time or port by port."""
    side = JoinSide(TEXT, ("p",))
    driver = Driver(lambda: Join(side, side, [JoinedColumn(LEFT, "p", "p")]), TEXT, TEXT)
    if at_once:
        for port in (LEFT, RIGHT):
            driver.feed([element for on, element in elements if on == port], port)
    else:
        for port, element in elements:
            driver.feed([element], port)
    return list(map(str, driver.output))


P = {"p": "A1"}
Fed: TypeAlias = list[tuple[int, Element]]
TABLES: Fed = [
    (LEFT, Insert({"p": "A0"}, 0, 2)),
    (LEFT, Cti(1)),
    (LEFT, Insert(P, 2, 6)),
    (RIGHT, Insert(P, 3, 5)),
    (RIGHT, Cti(3)),
    (LEFT, Retract(P, 2, 6, 4)),
]


def test_tables_1_to_4_of_the_paper() -> None:
    assert drive(*TABLES) == ["insert [3, 5) {'p': 'A1'}", "cti 1", "retract [3, 5) -> 4 {'p': 'A1'}"]


def test_a_batch_shows_its_net_effect_only() -> None:
    assert drive(*TABLES, at_once=True) == ["insert [3, 4) {'p': 'A1'}", "cti 1"]


def test_a_removed_event_joins_nothing() -> None:
    """Ruling C1."""
    gone: Fed = [(RIGHT, Insert(P, 6)), (RIGHT, Retract(P, 6, FOREVER, 6))]
    assert drive(*gone, (LEFT, Insert(P, 5, 10))) == []


def test_an_event_that_grows_past_the_other_cti_is_remembered_again() -> None:
    """Ruling C4."""
    grown: Fed = [
        (RIGHT, Insert(P, 1, 6)),
        (LEFT, Insert(P, 1, 3)),
        (RIGHT, Cti(6)),
        (LEFT, Retract(P, 1, 3, 7)),
        (RIGHT, Retract(P, 1, 6, FOREVER)),
    ]
    assert drive(*grown)[-1] == "retract [1, 6) -> 7 {'p': 'A1'}"


def test_which_keys_are_equal() -> None:
    """NaN equals NaN and 0.0 equals -0.0, but a null equals nothing."""
    schema = pa.schema([("k", pa.float64())])
    side = JoinSide(schema, ("k",))
    driver = Driver(lambda: Join(side, side, [JoinedColumn(LEFT, "k", "k")]), schema, schema)
    driver.feed([Insert({"k": k}, 0, 9) for k in (float("nan"), 0.0, 1.0, None)], LEFT)
    driver.feed([Insert({"k": k}, 0, 9) for k in (float("nan"), -0.0, 2.0, None)], RIGHT)
    assert [str(e.payload["k"]) for e in driver.history()] == ["nan", "0.0"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 20, 400])
def test_a_long_stream_in_batches_of_any_size(size: int) -> None:
    """Long enough for runs to be merged and events to be swept out."""
    streams = [long_stream(seed) for seed in (1, 2)]
    side = JoinSide(SCHEMA, ("k",))
    driver = Driver(lambda: Join(side, side, COLUMNS), SCHEMA, SCHEMA)
    for start in range(0, 400, size):
        for port in (LEFT, RIGHT):
            batch = streams[port][start : start + size]
            driver.feed([*batch, Cti(batch[0].vs)], port)
        if start == 240:
            driver.restore_twin()
    left, right = ([Event(e.payload, e.vs, e.ve) for e in stream] for stream in streams)
    assert bag(driver.history()) == bag(join(left, right, "k"))


def long_stream(seed: int) -> list[Insert]:
    rng = np.random.default_rng(seed)
    starts = np.sort(rng.integers(0, 2000, 400)).tolist()
    lengths = (2 ** rng.integers(0, 9, 400) + rng.integers(0, 3, 400)).tolist()
    return [
        Insert({"k": "abc"[i % 3], "v": i % 5}, start, start + length if i % 50 else FOREVER)
        for i, (start, length) in enumerate(zip(starts, lengths, strict=True))
    ]


def bag(history: History) -> Counter[str]:
    return Counter(map(str, history))


def test_feedback_keeps_events_that_may_be_lengthened() -> None:
    """What a reader does not want now, it wants when it has grown: the pair must have been inserted then."""
    side, event = JoinSide(SCHEMA, ("k",)), {"k": "a", "v": 1}
    driver = Driver(lambda: Join(side, side, COLUMNS), SCHEMA, SCHEMA)
    driver.feed([Insert(event, 0, 5)], LEFT)
    assert driver.operator.on_feedback(10, [False, True]) == [10, 10]
    driver.feed([Insert(event, 0, 30)], RIGHT)
    driver.feed([Retract(event, 0, 5, 20)], LEFT)
    assert driver.history() == [Event({"k": "a", "v": 1, "v_right": 1}, 0, 20)]
