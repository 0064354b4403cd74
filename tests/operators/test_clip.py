"""Clip against the oracle, for any streams, batching and interleaving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import FOREVER
from recension.denote.alter_lifetime import clip
from recension.denote.order import canonical
from recension.operators.clip import Clip
from recension.operators.matching import LEFT, RIGHT, JoinSide
from recension.testing.driver import Driver
from recension.testing.model import StreamModel
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams


def steps(data: DataObject) -> list[tuple[int, list[Element]]]:
    """Batches of two streams, in any interleaving."""
    streams = [data.draw(physical_streams(data.draw(histories()), schema=SCHEMA)) for _ in range(2)]
    batches = [data.draw(batchings(stream)) for stream in streams]
    ports = data.draw(st.permutations([0] * len(batches[0]) + [1] * len(batches[1])))
    return [(port, batches[port].pop(0)) for port in ports]


@given(st.data(), st.sampled_from([(), ("k",), ("v", "k")]))
def test_clip_is_the_oracle_after_every_step(data: DataObject, on: tuple[str, ...]) -> None:
    side = JoinSide(SCHEMA, on)
    driver = Driver(lambda: Clip(side, side), SCHEMA, SCHEMA)
    inputs = (StreamModel(), StreamModel())
    for port, elements in steps(data):
        driver.feed(elements, port)
        for element in elements:
            inputs[port].take(element)
        left, right = (walk.events() for walk in inputs)
        assert canonical(driver.history()) == canonical(clip(left, right, on))
        assert driver.cti == min(walk.cti for walk in inputs)
        assert driver.operator.state_rows() <= most_remembered(right, driver)
        if data.draw(st.booleans()):
            driver.restore_twin()
    assert driver.operator.state_rows() == 0


def most_remembered(right: Sequence[Event], driver: Driver) -> int:
    """What is shown up to the least CTI or beyond, and starts that do not lie before it."""
    shown = sum(event.ve >= driver.cti for event in driver.history())
    return shown + sum(event.vs >= driver.cti for event in right)


NAME = pa.schema([("p", pa.string())])
P = {"p": "a"}
Fed: TypeAlias = list[tuple[int, Element]]


def drive(*elements: tuple[int, Element]) -> list[str]:
    driver = Driver(lambda: Clip(JoinSide(NAME, ("p",)), JoinSide(NAME, ("p",))), NAME, NAME)
    for port, element in elements:
        driver.feed([element], port)
    return list(map(str, driver.output))


def test_an_event_is_clipped_and_let_go_again() -> None:
    clipped: Fed = [(LEFT, Insert(P, 0)), (RIGHT, Insert(P, 7, 8)), (RIGHT, Insert(P, 4, 9))]
    freed: Fed = [(RIGHT, Retract(P, 4, 9, 4)), (RIGHT, Retract(P, 7, 8, 7))]
    assert drive(*clipped, *freed) == [
        "insert [0, ∞) {'p': 'a'}",
        "retract [0, ∞) -> 7 {'p': 'a'}",
        "retract [0, 7) -> 4 {'p': 'a'}",
        "retract [0, 4) -> 7 {'p': 'a'}",
        "retract [0, 7) -> ∞ {'p': 'a'}",
    ]


def test_what_was_clipped_before_both_ctis_stays_clipped() -> None:
    clipped: Fed = [(LEFT, Insert(P, 0)), (RIGHT, Insert(P, 4, 9)), (LEFT, Cti(5)), (RIGHT, Cti(5))]
    assert drive(*clipped, (LEFT, Retract(P, 0, FOREVER, 6)))[-1] == "cti 5"


def test_what_is_shown_up_to_the_ctis_may_still_grow() -> None:
    """Equality of sync time and CTI is legal (rulings A1, A2)."""
    ctis: Fed = [(LEFT, Cti(4)), (RIGHT, Cti(4))]
    freed = drive((LEFT, Insert(P, 0)), (RIGHT, Insert(P, 4, 9)), *ctis, (RIGHT, Retract(P, 4, 9, 4)))
    assert freed[-1] == "retract [0, 4) -> ∞ {'p': 'a'}"
    grown = drive((LEFT, Insert(P, 0, 4)), *ctis, (LEFT, Retract(P, 0, 4, 7)))
    assert grown[-1] == "retract [0, 4) -> 7 {'p': 'a'}"


def test_a_start_at_the_start_or_at_the_end_does_not_clip() -> None:
    assert drive((RIGHT, Insert(P, 0, 1)), (RIGHT, Insert(P, 5, 6)), (LEFT, Insert(P, 0, 5))) == [
        "insert [0, 5) {'p': 'a'}"
    ]


def test_removed_starts_in_the_way_are_passed_over() -> None:
    """Many instants die in front of the one that is looked for."""
    starts = [Insert(P, int(t), int(t) + 1) for t in np.arange(1, 200)]
    gone = [Retract(P, e.vs, e.ve, e.vs) for e in starts[:-1]]
    driver = Driver(lambda: Clip(JoinSide(NAME, ("p",)), JoinSide(NAME, ("p",))), NAME, NAME)
    driver.feed(starts, RIGHT)
    driver.feed(gone, RIGHT)
    driver.feed([Insert(P, 0, 1000)], LEFT)
    assert driver.history() == [Event(P, 0, 199)]


def test_a_start_that_goes_as_another_comes_there_still_clips() -> None:
    """Two events of the other stream start at one time: in one batch the first goes and the second comes."""
    other = pa.schema([("p", pa.string()), ("n", pa.int64())])
    driver = Driver(lambda: Clip(JoinSide(NAME, ("p",)), JoinSide(other, ("p",))), NAME, other)
    driver.feed([Insert({**P, "n": 1}, 4, 9)], RIGHT)
    driver.feed([Retract({**P, "n": 1}, 4, 9, 4), Insert({**P, "n": 2}, 4, 6)], RIGHT)
    driver.feed([Insert(P, 0, 10)], LEFT)
    assert driver.history() == [Event(P, 0, 4)]
