"""Key rows by number, against a dictionary: numbers go from one key to another, and blocks are united."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from recension.operators.state import key_rows
from recension.operators.state.key_rows import KeyRows


@pytest.mark.parametrize("longest", [4, 64, 1 << 17])
def test_every_number_has_the_row_it_got_last(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_rows, "_LONGEST", longest)
    rng, schema = np.random.default_rng(longest), pa.schema({"key": pa.string()})
    rows, model = KeyRows(schema), dict[int, str]()
    for step in range(200):
        again = rng.permutation(len(model))[: int(rng.integers(0, len(model) + 1))]
        fresh = np.arange(len(model), len(model) + int(rng.integers(0, 6)))
        numbers = np.concatenate((again if step % 3 else again[:1], fresh)).astype(np.int64)
        texts = [f"{step}-{number}" for number in numbers]
        rows.put(numbers, pa.record_batch([pa.array(texts, pa.string())], schema=schema))
        model |= dict(zip(numbers.tolist(), texts, strict=True))
        wanted = rng.integers(0, max(1, len(model)), 20 if model else 0)
        assert rows.take(wanted).column("key").to_pylist() == [model[number] for number in wanted.tolist()]


def test_rows_that_are_of_no_use_are_given_up() -> None:
    schema, numbers = pa.schema({"key": pa.string()}), np.arange(1000)
    rows = KeyRows(schema)
    for step in range(50):
        rows.put(numbers, pa.record_batch([pa.array([f"{step:>8}"] * 1000)], schema=schema))
    one = KeyRows(schema)
    one.put(numbers, pa.record_batch([pa.array([f"{0:>8}"] * 1000)], schema=schema))
    assert rows.nbytes() <= 2 * one.nbytes()
