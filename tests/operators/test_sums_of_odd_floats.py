"""Sums and means of odd floats: any number of NaN and infinities, and values too huge to add up."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension.operators.windowed.accumulators import Mean, SumFloats
from recension.operators.windowed.double_double import exact_parts

SOURCE = rc.source("s", {"k": "string", "x": "float64"})
MANY = 2**21


@pytest.mark.slow
@pytest.mark.parametrize("measure", [SumFloats(), Mean()], ids=["sum", "mean"])
@pytest.mark.parametrize(
    ("odd", "expected"), [(math.nan, math.nan), (math.inf, math.inf), (-math.inf, -math.inf)]
)
@pytest.mark.parametrize("number", [1, MANY, 2 * MANY])
def test_any_number_of_values_that_are_not_finite(
    measure: SumFloats, odd: float, expected: float, number: int
) -> None:
    """Counts of them once ran over into each other from 2**21 on."""
    part = measure.contributions(pa.array(np.full(number, odd)), number)
    ints = [column.sum(keepdims=True) for column in part.ints]
    pairs = [(high.sum(keepdims=True), low.sum(keepdims=True)) for high, low in part.pairs]
    assert measure.result(np.array([number]), ints, pairs).to_pylist() == pytest.approx(
        [expected], nan_ok=True
    )


def test_infinities_of_both_signs_leave_again() -> None:
    feed = [rc.Insert({"k": "a", "x": x}, 0, end) for x, end in ((math.inf, 3), (-math.inf, 2), (1.5, 4))]
    query = SOURCE.agg(s=rc.sum("x"), speculate="eager")
    found = [e.payload["s"] for e in rc.run(query, {"s": feed}, close=True).history().to_events()]
    assert found == pytest.approx([math.nan, math.inf, 1.5], nan_ok=True)


@pytest.mark.parametrize("aggregate", [rc.sum("x"), rc.mean("x")], ids=str)
@pytest.mark.parametrize("value", [1e308, -1.7e308, math.nextafter(2.0**960, math.inf)])
def test_values_whose_sums_could_overflow_are_refused(aggregate: Any, value: float) -> None:
    """A running sum that has overflowed is NaN, in later windows too, and for ever."""
    feed = [rc.Insert({"k": "a", "x": x}, t, t + 1) for t, x in enumerate([value, value, 1.0])]
    query = SOURCE.group_by("k").tumbling(2).agg(n=rc.count(), total=aggregate)
    with pytest.raises(rc.RecensionError, match=r"\(x\) by k.*total: the value -?\d.*is beyond 2\*\*960"):
        rc.run(query, {"s": feed}, close=True)


def test_the_largest_values_that_can_be_added_up() -> None:
    feed = [rc.Insert({"k": "a", "x": x}, t, t + 1) for t, x in enumerate([2.0**960, 2.0**960, 1.0])]
    query = SOURCE.tumbling(2).agg(s=rc.sum("x"), m=rc.mean("x"))
    found = [e.payload for e in rc.run(query, {"s": feed}, close=True).history().to_events()]
    assert found == [{"s": 2.0**961, "m": 2.0**960}, {"s": 1.0, "m": 1.0}]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-1e6, 1e6) | st.floats(-1e-6, 1e-6)), max_size=40))
def test_parts_of_floats_add_up_without_rounding(values: list[tuple[int, float]]) -> None:
    place, numbers = np.array([p for p, _ in values], np.int64), np.array([v for _, v in values])
    parts = exact_parts(numbers, 2 * max(1, len(values)))
    if parts is None:  # too many digits between the largest and the least
        assert np.abs(numbers).max() / np.abs(numbers[numbers != 0]).min() > 1e10
        return
    for shuffled in (np.arange(len(place)), np.arange(len(place))[::-1]):
        sums = [np.bincount(place[shuffled], part[shuffled], 4) for part in parts]
        for at in range(4):
            own = [Fraction(v) for p, v in values if p == at]
            assert sum((Fraction(float(total[at])) for total in sums), Fraction(0)) == sum(own, Fraction(0))


def test_floats_of_very_different_sizes_are_not_parted() -> None:
    assert exact_parts(np.array([1e300, 1.0, 1e-300]), 6) is None
    assert exact_parts(np.array([0.0, -0.0]), 4) == []


_PRICES = st.integers(-(10**9), 10**9).map(lambda n: n / 1e6)
_ROWS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from("ab"), _PRICES), min_size=1, max_size=60)


@given(_ROWS, st.integers(1, 60), st.data())
def test_sums_are_rounded_once_whatever_the_order_the_batches_and_what_was_taken_back(
    rows: list[tuple[int, str, float]], size: int, data: st.DataObject
) -> None:
    """Counted or sorted, at once or one by one: the sum of what stands, rounded to the nearest float."""
    taken = data.draw(st.sets(st.integers(0, len(rows) - 1)))
    order = data.draw(st.permutations(range(len(rows))))
    inserts = [rc.Insert({"k": k, "x": x}, t, t + 1) for t, k, x in rows]
    retracts = [rc.Retract(one.payload, one.vs, one.ve, one.vs) for one in map(inserts.__getitem__, taken)]
    feed = [inserts[at] for at in order] + retracts
    query = SOURCE.group_by("k").hopping(8, 4).agg(s=rc.sum("x"), speculate="eager")
    found = rc.run(query, {"s": feed}, close=True, batch_size=size).history().to_events()
    expected = dict[tuple[str, int], list[float]]()
    for at, (t, k, x) in enumerate(rows):
        for start in (t // 4 * 4 - 4, t // 4 * 4) if at not in taken else ():
            expected.setdefault((k, start), []).append(x)
    sums = {(e.payload["k"], e.vs): e.payload["s"] for e in found}
    assert sums == {key: math.fsum(values) for key, values in expected.items()}
