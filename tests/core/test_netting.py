"""Sorting and telling hashes apart without comparisons, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core import netting
from recension.core.netting import first_of_equal, order_of


@pytest.fixture(autouse=True)
def _always_by_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netting, "_MANY", 1)


@given(st.lists(st.integers(-(2**62), 2**62) | st.integers(-3, 2**20), max_size=40), st.integers(0, 62))
def test_numbers_are_put_in_order(numbers: list[int], shift: int) -> None:
    given = np.array(numbers, np.int64) >> shift
    order = order_of(given)
    assert sorted(order.tolist()) == list(range(len(numbers)))
    assert given[order].tolist() == sorted(given.tolist())


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5) | st.integers(0, 5).map(lambda i: i << 60)))
def test_the_first_of_equal_hashes_stands_for_all(hashes: list[int]) -> None:
    """Also where most bits of different hashes are alike."""
    found = first_of_equal(np.array(hashes, np.uint64))
    assert found.tolist() == [hashes.index(one) for one in hashes]
