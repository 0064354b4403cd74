"""What a module keeps is stored as plain values, and comes back as it was."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter, deque
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension.modules.stored_state import from_bytes, to_bytes

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
STATES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.frozensets(SCALARS)
        | st.lists(inner).map(lambda items: deque(items, 7))
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(STATES)
def test_states_come_back_as_they_were(state: Any) -> None:
    again = from_bytes(to_bytes(state))
    assert again == state
    assert type(again) is type(state)


@pytest.mark.parametrize(
    "state",
    [
        Counter(a=2),
        Decimal("1.50"),
        dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
        dt.date(2026, 1, 2),
        dt.timedelta(days=-1, microseconds=5),
        np.float32(0.1),
        np.int64(2**62),
        np.datetime64("2026-01-01T00:00:00.000001"),
        {1, "a"},
    ],
)
def test_other_values_too(state: Any) -> None:
    again = from_bytes(to_bytes([state]))[0]
    assert (again, type(again)) == (state, type(state))


def test_arrays_and_odd_floats() -> None:
    array, nan = from_bytes(to_bytes((np.array([[1.5, np.nan]], np.float32), math.nan)))
    np.testing.assert_array_equal(array, np.array([[1.5, np.nan]], np.float32))
    assert array.dtype == np.float32
    assert math.isnan(nan)


def test_what_is_not_plain_is_refused_by_name() -> None:
    with pytest.raises(rc.RecensionError, match="a state holds a Queue"):
        to_bytes({"a": Queue(1)})
    with pytest.raises(rc.RecensionError, match="array of objects"):
        to_bytes(np.array([object()]))


class Queue:
    """An object of a module's own."""

    def __init__(self, total: int) -> None:
        self.total = total


class Total(rc.IncrementalAggregate):
    """Keeps an object, and says how it is stored."""

    inputs = {"v": "int64"}
    result = "int64"

    def initial(self) -> Queue:
        return Queue(0)

    def add(self, state: Queue, payloads: Any) -> Queue:
        return Queue(state.total + sum(p["v"] for p in payloads))

    def remove(self, state: Queue, payloads: Any) -> Queue:
        return Queue(state.total - sum(p["v"] for p in payloads))

    def compute(self, state: Queue) -> int:
        return state.total

    def stored(self, state: Queue) -> int:
        return state.total

    def restored(self, stored: int) -> Queue:
        return Queue(stored)


def test_a_module_may_say_how_its_state_is_stored() -> None:
    query = rc.source("s", {"v": "int64"}).hopping(10, 5).agg(t=Total())
    one, other = rc.session(query), rc.session(query)
    one.push("s", [rc.Insert({"v": 2}, 1, 2), rc.Insert({"v": 3}, 13, 14)])
    other.restore(one.snapshot())
    for live in (one, other):
        live.push("s", [rc.Insert({"v": 4}, 12, 13), rc.Cti(rc.FOREVER)])
    assert one.read().batch().to_elements()[-2:] == other.read().batch().to_elements()[-2:]
