"""Rows by key against a dictionary, with slots that are filled anew a few at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.operators.lmerge import key_table
from recension.operators.lmerge.key_table import KeyTable


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_LEAST": 2, "_STEP": 1}.items():
        monkeypatch.setattr(key_table, name, value)


@given(st.lists(st.tuples(st.sets(st.integers(2, 60)), st.sets(st.integers(2, 60))), max_size=40))
def test_rows_keep_their_numbers_and_take_the_places_of_dead_ones(
    steps: list[tuple[set[int], set[int]]],
) -> None:
    table, model, most = KeyTable({"value": (np.int64, 0)}), dict[int, tuple[int, int]](), 0
    for place, (come, go) in enumerate(steps):
        fresh = np.array(sorted(come - set(model)), np.uint64)
        rows = table.add(fresh, value=np.full(len(fresh), place))
        model |= {int(key): (int(row), place) for key, row in zip(fresh, rows, strict=True)}
        most = max(most, len(model))
        gone = sorted(go & set(model))
        table.remove_rows(np.array([model.pop(key)[0] for key in gone], np.int64))
        found = table.find(np.arange(2, 61, dtype=np.uint64)).tolist()
        assert found == [model[key][0] if key in model else -1 for key in range(2, 61)]
        assert [int(table["value"][row]) for row, _ in model.values()] == [v for _, v in model.values()]
        assert sorted(row for row, _ in model.values()) == table.rows().tolist()
        assert len(table) <= most
