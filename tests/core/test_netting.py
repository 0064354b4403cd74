"""Sorting and telling hashes apart without comparisons, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core import netting
from recension.core.netting import cancel, expand, first_of_equal, order_of, order_of_hashes


@pytest.fixture(autouse=True)
def _always_by_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netting, "_MANY", 1)


@given(st.lists(st.integers(-(2**62), 2**62) | st.integers(-3, 2**20), max_size=40), st.integers(0, 62))
def test_numbers_are_put_in_order(numbers: list[int], shift: int) -> None:
    given = np.array(numbers, np.int64) >> shift
    order = order_of(given)
    assert sorted(order.tolist()) == list(range(len(numbers)))
    assert given[order].tolist() == sorted(given.tolist())
    assert order.tolist() == np.argsort(given, kind="stable").tolist()


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5) | st.integers(0, 5).map(lambda i: i << 60)))
def test_hashes_are_put_in_order_and_equal_ones_stay_so(hashes: list[int]) -> None:
    given = np.array(hashes, np.uint64)
    assert order_of_hashes(given).tolist() == np.argsort(given, kind="stable").tolist()


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5) | st.integers(0, 5).map(lambda i: i << 60)))
def test_the_first_of_equal_hashes_stands_for_all(hashes: list[int]) -> None:
    """Also where most bits of different hashes are alike."""
    found = first_of_equal(np.array(hashes, np.uint64))
    assert found.tolist() == [hashes.index(one) for one in hashes]


@given(st.data())
def test_every_removal_cancels_the_first_equal_addition_that_is_left(data: st.DataObject) -> None:
    """With slots and with a sort, also where most bits of different hashes are alike."""
    some = st.integers(0, 5) | st.integers(0, 5).map(lambda i: i << 60) | st.integers(0, 2**64 - 1)
    added, removed = (data.draw(st.lists(some, max_size=30)) for _ in range(2))
    pairs = [
        pair for one in {*added} for pair in zip(_places(added, one), _places(removed, one), strict=False)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(netting, "_FEW", data.draw(st.sampled_from([1, 1024])))
        survives, cancelled, by = cancel(np.array(added, np.uint64), np.array(removed, np.uint64))
    assert sorted(zip(cancelled.tolist(), by.tolist(), strict=True)) == sorted(pairs)
    assert np.flatnonzero(~survives).tolist() == sorted(place for place, _ in pairs)


def _places(hashes: list[int], one: int) -> list[int]:
    return [place for place, other in enumerate(hashes) if other == one]


@pytest.mark.parametrize("few", [0, 1024])
@given(ranges=st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), max_size=30))
def test_ranges_are_written_out(few: int, ranges: list[tuple[int, int]]) -> None:
    first, last = np.array(ranges, np.int64).reshape(-1, 2).T
    expected = [(i, at) for i, (start, stop) in enumerate(ranges) for at in range(start, stop)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(netting, "_FEW", few)
        owner, at = expand(first, last)
    assert list(zip(owner.tolist(), at.tolist(), strict=True)) == expected
