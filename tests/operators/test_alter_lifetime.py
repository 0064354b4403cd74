"""AlterLifetime and Deletes: every rule against the oracle, and CTIs that hold what they promise."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension import denote
from recension.core.errors import TimeError
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.intervals import floor, plus
from recension.denote.order import History
from recension.operators.alter_lifetime import AlterLifetime
from recension.operators.base import Operator
from recension.operators.lifetimes import (
    Custom,
    Deletes,
    Extend,
    Hop,
    Inserts,
    Lifetime,
    SetDuration,
    Shift,
    ToPoints,
)
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

X = {"k": "x", "v": 1}


@dataclass(frozen=True)
class Rule:
    """A rule, what it means, and what it makes of a CTI before the end of time."""

    operator: Callable[[], Operator]
    oracle: Callable[[History], History]
    cti: Callable[[int], int] = lambda t: t


def altered(
    lifetime: Lifetime, oracle: Callable[[History], History], cti: Callable[[int], int] = lambda t: t
) -> Rule:
    return Rule(lambda: AlterLifetime(SCHEMA, lifetime), oracle, cti)


def length(vs: int, ve: int) -> int:
    return FOREVER if ve == FOREVER else ve - vs


RULES = {
    "shift forth": altered(Shift(3), lambda h: denote.shift(h, 3), lambda t: plus(t, 3)),
    "shift back": altered(Shift(-3), lambda h: denote.shift(h, -3), lambda t: plus(t, -3)),
    "set_duration": altered(SetDuration(4), lambda h: denote.set_duration(h, 4)),
    "set_duration for ever": altered(SetDuration(FOREVER), lambda h: denote.set_duration(h, FOREVER)),
    "extend": altered(Extend(2), lambda h: denote.extend(h, 2)),
    "extend back": altered(Extend(-3), lambda h: denote.extend(h, -3), lambda t: plus(t, -3)),
    "hop": altered(Hop(6, 4), lambda h: denote.hop_lifetime(h, 6, 4), lambda t: floor(t, 4)),
    "hop with gaps": altered(Hop(2, 5), lambda h: denote.hop_lifetime(h, 2, 5), lambda t: floor(t, 5)),
    "inserts": altered(Inserts(), denote.inserts),
    "to_points": altered(ToPoints(), denote.to_points),
    "deletes": Rule(lambda: AlterLifetime(SCHEMA, Deletes()), denote.deletes),
    "custom, both": altered(
        Custom(lambda vs, ve: vs // 4 * 4, lambda vs, ve: np.minimum(ve - vs, 3)),
        lambda h: denote.alter_lifetime(
            h, lambda vs, ve: vs // 4 * 4, lambda vs, ve: vs // 4 * 4 + min(ve - vs, 3)
        ),
        lambda t: BEGINNING,
    ),
    "custom start": altered(
        Custom(lambda vs, ve: vs + 1),
        lambda h: denote.alter_lifetime(
            h, lambda vs, ve: vs + 1, lambda vs, ve: plus(vs + 1, length(vs, ve))
        ),
        lambda t: BEGINNING,
    ),
    "custom start by the end": altered(
        Custom(lambda vs, ve: np.minimum(ve, 20) - 1, lambda vs, ve: 3),
        lambda h: denote.alter_lifetime(h, lambda vs, ve: min(ve, 20) - 1, lambda vs, ve: min(ve, 20) + 2),
        lambda t: BEGINNING,
    ),
    "custom duration, half": altered(
        Custom(None, lambda vs, ve: (ve - vs) // 2),
        lambda h: denote.alter_lifetime(h, lambda vs, ve: vs, lambda vs, ve: vs + (ve - vs) // 2),
        lambda t: BEGINNING,
    ),
}


@pytest.mark.parametrize("name", RULES)
@given(data=st.data())
def test_after_every_batch_the_history_is_the_oracles(name: str, data: st.DataObject) -> None:
    rule = RULES[name]
    drive, promised = Driver(rule.operator, SCHEMA), BEGINNING
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories()))))):
        drive.feed(batch)
        assert_equivalent(drive.history(), rule.oracle(drive.input_history()))
        t = drive.input_cti()
        promised = max(promised, FOREVER if t == FOREVER else rule.cti(t))
        assert drive.cti == promised
        if data.draw(st.booleans()):
            drive.restore_twin()
    assert drive.cti == FOREVER
    assert drive.operator.state_rows() == 0


EDGES = [BEGINNING, BEGINNING + 1, BEGINNING + 4, -1, 0, 2, FOREVER - 4, FOREVER - 1, FOREVER]


@pytest.mark.parametrize("name", [name for name in RULES if not name.startswith("custom")])
@pytest.mark.parametrize("vs", EDGES[:-1])
def test_time_saturates_at_both_ends(name: str, vs: int) -> None:
    rule = RULES[name]
    for ve in EDGES:
        for new_ve in (end for end in EDGES if vs < ve and vs <= end != ve):
            drive = Driver(rule.operator, SCHEMA)
            drive.feed([Insert(X, vs, ve)])
            assert_equivalent(drive.history(), rule.oracle([Event(X, vs, ve)]))
            drive.feed([Cti(min(ve, new_ve))])
            if min(ve, new_ve) < FOREVER:
                drive.feed([Retract(X, vs, ve, new_ve)])
                after = [Event(X, vs, new_ve)] if new_ve > vs else []
                assert_equivalent(drive.history(), rule.oracle(after))


def test_a_length_beyond_the_range_is_endless() -> None:
    drive = Driver(lambda: AlterLifetime(SCHEMA, Custom(lambda vs, ve: vs * 0)), SCHEMA)
    assert drive.feed([Insert(X, BEGINNING + 1, 5)]) == [Insert(X, 0, FOREVER)]


def played(operator: Callable[[], Operator], *elements: Element) -> list[list[Element]]:
    drive = Driver(operator, SCHEMA)
    return [drive.feed([element]) for element in elements]


def test_a_change_that_leaves_the_output_as_it_was_is_not_passed_on() -> None:
    """Ruling D1."""
    window = RULES["set_duration"].operator
    assert played(window, Insert(X, 4, 7), Retract(X, 4, 7, 6))[-1] == []


def test_a_removal_stays_a_removal() -> None:
    """Ruling D3."""
    window = RULES["set_duration"].operator
    assert played(window, Insert(X, 4, 7), Retract(X, 4, 7, 4))[-1] == [Retract(X, 4, 8, 4)]


def test_what_becomes_empty_goes_and_may_come_back() -> None:
    """Ruling D2: 3 ticks less of an event of 2 is nothing."""
    steps = played(
        RULES["extend back"].operator,
        Insert(X, 8, 10),
        Retract(X, 8, 10, 14),
        Retract(X, 8, 14, 13),
        Retract(X, 8, 13, 9),
    )
    assert steps == [[], [Insert(X, 8, 11)], [Retract(X, 8, 11, 10)], [Retract(X, 8, 10, 8)]]


def test_ctis_of_a_function_are_held() -> None:
    """Ruling D4: halving a lifetime changes the output before the CTI."""
    half = RULES["custom duration, half"].operator
    steps = played(half, Insert(X, 6, 46), Cti(16), Retract(X, 6, 46, 16), Cti(FOREVER))
    assert steps == [[Insert(X, 6, 26)], [], [Retract(X, 6, 26, 11)], [Cti(FOREVER)]]


def test_a_cti_goes_only_forward() -> None:
    hop = RULES["hop"].operator
    assert played(hop, Cti(-1), Cti(1), Cti(3), Cti(4)) == [[Cti(-4)], [Cti(0)], [], [Cti(4)]]


def test_deletes_come_in_order_of_time() -> None:
    """Ruling D7."""
    steps = played(
        RULES["deletes"].operator,
        Insert(X, 1),
        Retract(X, 1, FOREVER, 9),
        Retract(X, 1, 9, 5),
        Retract(X, 1, 5, 7),
        Retract(X, 1, 7, 1),
    )
    assert steps == [
        [],
        [Insert(X, 9)],
        [Insert(X, 5), Retract(X, 9, FOREVER, 9)],
        [Retract(X, 5, FOREVER, 5), Insert(X, 7)],
        [Retract(X, 7, FOREVER, 7)],
    ]


@pytest.mark.parametrize("given_", [lambda vs, ve: (ve - vs) / 2, lambda vs, ve: np.array([1, 2, 3]), "1h"])
def test_a_function_that_gives_no_ticks_is_refused(given_: Any) -> None:
    fn = given_ if callable(given_) else lambda vs, ve: given_
    with pytest.raises(TimeError, match="function of lifetimes"):
        played(lambda: AlterLifetime(SCHEMA, Custom(None, fn)), Insert(X, 1, 5))
