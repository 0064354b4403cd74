"""Group keys against a dictionary, with so few slots that keys lose theirs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.operators.state import keys
from recension.operators.state.keys import KeyIndex


@pytest.fixture(autouse=True)
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_PROBES": (0, 1), "_STEP": 3, "_ROOM": 1}.items():
        monkeypatch.setattr(keys, name, value)


@given(st.lists(st.lists(st.integers(0, 200), max_size=40), max_size=30), st.booleans(), st.booleans())
def test_numbers_are_those_of_a_dictionary(batches: list[list[int]], is_text: bool, restores: bool) -> None:
    kind = pa.string() if is_text else pa.int64()
    schema = pa.schema([("k", kind)])
    index, model = KeyIndex(schema), dict[int, int]()
    for batch in batches:
        values = pa.array(batch, pa.int64()).cast(kind)
        numbers = index.number(pa.record_batch([values], schema=schema))
        assert numbers.tolist() == [model.setdefault(key, len(model)) for key in batch]
        assert len(index) == len(model)
        assert index.rows(numbers).column(0).equals(values)
        if restores and len(model):
            stored = index.snapshot()
            index = KeyIndex(schema)
            index.restore(stored)


def test_most_keys_are_found_in_slots() -> None:
    """Also while a larger table is being filled."""
    schema = pa.schema([("k", pa.int64())])
    index, rng = KeyIndex(schema), np.random.default_rng(1)
    order = rng.permutation(100_000)
    for start in range(0, len(order), 1_000):
        batch = pa.record_batch([pa.array(order[start : start + 1_000])], schema=schema)
        assert index.number(batch).tolist() == list(range(start, start + 1_000))
    every = pa.record_batch([pa.array(order)], schema=schema)
    assert index.number(every).tolist() == list(range(100_000))
