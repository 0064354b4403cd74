"""Standard deviations keep their digits, however large the values are and however they were batched."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension import denote
from recension.testing import assert_equivalent, assert_valid
from recension.testing.strategies import batchings, events, physical_streams

FLOATS, INTS = (rc.source("s", {"x": kind}) for kind in ("float64", "int64"))
LOW, HIGH = -(2**63), 2**63 - 1


def answers(query: Any, values: list[Any], **how: Any) -> list[Any]:
    """What comes out of values that come one tick after the other."""
    feed = [rc.Insert({"x": x}, t, t + 1) for t, x in enumerate(values)]
    return [e.payload["d"] for e in rc.run(query, {"s": feed}, close=True, **how).history().to_events()]


@pytest.mark.parametrize("source", [FLOATS, INTS], ids=["floats", "ints"])
@pytest.mark.parametrize("batch_size", [1, 100])
def test_timestamps(source: Any, batch_size: int) -> None:
    query = source.tumbling(10).agg(d=rc.stddev("x"))
    stamps = [1_700_000_000_000_000 + i for i in range(30)]
    values = stamps if source is INTS else [float(x) for x in stamps]
    assert answers(query, values, batch_size=batch_size) == pytest.approx([(55 / 6) ** 0.5] * 3, rel=1e-14)


@pytest.mark.parametrize("batch_size", [1, 100])
def test_no_window_spoils_the_next(batch_size: int) -> None:
    query = FLOATS.tumbling(5).agg(d=rc.stddev("x"))
    values = [1e15, 0.0, None, None, None, 0.1, 0.37]
    found = answers(query, values, batch_size=batch_size)
    assert found[1] == pytest.approx(0.19091883092036782, rel=1e-14)


@pytest.mark.parametrize(
    ("values", "deviation"),
    [
        ([2**62 + 1, 2**62 + 3], 2**0.5),
        ([LOW, HIGH], (2**64 - 1) / 2**0.5),
        ([LOW, LOW + 1, LOW + 2], 1.0),
        ([7, None, 7], 0.0),
        ([7, None], None),
    ],
)
def test_whole_numbers_of_any_size(values: list[int | None], deviation: float | None) -> None:
    (found,) = answers(INTS.tumbling(10).agg(d=rc.stddev("x")), values)
    assert found == (None if deviation is None else pytest.approx(deviation, rel=1e-14))


def test_whole_numbers_without_a_sign() -> None:
    source = rc.source("s", {"x": "uint64"})
    values = [2**64 - 1, 2**64 - 3]
    assert answers(source.tumbling(10).agg(d=rc.stddev("x")), values) == pytest.approx([2**0.5], rel=1e-14)


@pytest.mark.parametrize(
    ("values", "deviation"),
    [
        ([1e308, -1e308], 2**0.5 * 1e308),
        ([1.7e308, -1.7e308], float("inf")),
        ([1e-300, 3e-300], 2**0.5 * 1e-300),
        ([5e-324] * 3, 0.0),
    ],
)
def test_floats_at_the_ends_of_their_range(values: list[float], deviation: float) -> None:
    (found,) = answers(FLOATS.tumbling(10).agg(d=rc.stddev("x")), values)
    assert found == pytest.approx(deviation, rel=1e-14)
    assert denote.stddev("x")([rc.Event({"x": x}, 0) for x in values]) == pytest.approx(deviation, rel=1e-14)


@pytest.mark.slow
def test_many_values() -> None:
    values = [1e9 + (i * 7919 % 10007) / 8 for i in range(20000)]
    (found,) = answers(FLOATS.tumbling(10**6).agg(d=rc.stddev("x")), values)
    mean = sum(map(Fraction, values)) / len(values)
    exact = sum((Fraction(x) - mean) ** 2 for x in values) / (len(values) - 1)
    assert found == pytest.approx(float(exact) ** 0.5, rel=1e-13)


ODD = [1.7e15, 1.7e15 + 1, 0.1, 0.37, 1 / 3, -1e300, 1e-200, float("nan"), float("inf"), None]
WINDOWS = denote.hopping(6, 3, until=12)


@pytest.mark.parametrize("speculate", ["perfect", "ordered", "eager"])
@given(data=st.data())
def test_what_was_shown_is_retracted_to_the_last_bit(speculate: Any, data: st.DataObject) -> None:
    """Ends that move change the order of the events of a window, and must not change its answer."""
    history = data.draw(st.lists(events(st.fixed_dictionaries({"x": st.sampled_from(ODD)})), max_size=6))
    session = rc.session(FLOATS.hopping(6, 3, until=12).agg(d=rc.stddev("x"), speculate=speculate))
    shown: list[Any] = []
    for batch in data.draw(batchings(data.draw(physical_streams(history)))):
        session.push("s", batch)
        shown += session.read().elements()
    assert_valid(shown)
    meaning = denote.window_aggregate(history, WINDOWS, denote.agg(d=denote.stddev("x")))
    assert_equivalent(shown, meaning)
