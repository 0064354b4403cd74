"""Row hashes: equal rows hash alike however they are stored, and different rows do not."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core.errors import SchemaError
from recension.core.rowhash import column_hash, key_and_row_hash, row_hash, rows_equal, rows_equal_at

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-1, 0, 1, 127, None]),
    "uint64": (pa.uint64(), [0, 1, 2**64 - 1, None]),
    "bool": (pa.bool_(), [True, False, None]),
    "float32": (pa.float32(), [0.0, 1.5, float("inf"), float("nan"), None]),
    "string": (pa.string(), ["", "a", "b", "aaaaaaaa", "aaaaaaaaa", "a" * 100, "ä", None]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", None]),
    "fixed": (pa.binary(3), [b"abc", b"abd", None]),
    "decimal": (pa.decimal128(10, 2), [decimal.Decimal("1.00"), decimal.Decimal("-1.00"), None]),
    "date": (pa.date32(), [dt.date(2020, 1, 1), None]),
    "timestamp": (pa.timestamp("us"), [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 2), None]),
    "list": (pa.list_(pa.int64()), [[], [1], [1, 2], [2, 1], [None], None]),
    "struct": (
        pa.struct([("x", pa.int64()), ("y", pa.string())]),
        [{"x": 1, "y": None}, {"x": None, "y": "1"}],
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_different_values_hash_differently(name: str) -> None:
    kind, values = VALUES[name]
    hashes = row_hash(pa.record_batch({"c": pa.array(values, kind)}))
    assert len(set(hashes.tolist())) == len(values)


@pytest.mark.parametrize("name", VALUES)
def test_a_row_hashes_alike_in_any_batch(name: str) -> None:
    kind, values = VALUES[name]
    whole = pa.record_batch({"c": pa.array(values * 2, kind)})
    hashes = row_hash(whole)
    for at in range(whole.num_rows):
        alone = pa.record_batch({"c": pa.array([values[at % len(values)]], kind)})
        assert row_hash(whole.slice(at, 1)).tolist() == [hashes[at]] == row_hash(alone).tolist()


@given(st.lists(st.one_of(st.none(), st.text(max_size=40)), max_size=30))
def test_the_encoding_does_not_matter(values: list[str | None]) -> None:
    plain = pa.array(values, pa.string())
    hashes = row_hash(pa.record_batch({"c": plain}))
    for other in (plain.dictionary_encode(), plain.cast(pa.large_string()), plain.cast(pa.string_view())):
        assert row_hash(pa.record_batch({"c": other})).tolist() == hashes.tolist()


def test_zeros_are_equal_and_so_are_nans() -> None:
    nan = np.array([0x7FF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)
    batch = pa.record_batch({"c": pa.array([0.0, -0.0, *nan])})
    hashes = row_hash(batch).tolist()
    assert hashes[0] == hashes[1]
    assert hashes[2] == hashes[3]
    assert rows_equal(batch.slice(0, 1), batch.slice(1, 1), 1).all()
    assert rows_equal(batch.slice(2, 1), batch.slice(3, 1), 1).all()


def test_columns_are_told_apart() -> None:
    left, right = (pa.record_batch({"a": pa.array([x]), "b": pa.array([y])}) for x, y in ((1, 2), (2, 1)))
    assert row_hash(left)[0] != row_hash(right)[0]


def test_a_payload_without_columns_has_the_length_it_is_told() -> None:
    hashes = row_hash(pa.record_batch([], names=[]), 3)
    assert len(hashes) == 3
    assert len(set(hashes.tolist())) == 1


def test_unsupported_types_are_named() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    with pytest.raises(SchemaError, match="union"):
        row_hash(pa.record_batch({"c": union}))


def test_a_buffer_may_be_longer_than_what_it_holds() -> None:
    """As in files of others: four bytes an offset, and one more."""
    texts = pa.array(["ab", "", "c"])
    offsets = pa.py_buffer(texts.buffers()[1].to_pybytes()[:16] + b"\0")
    longer = pa.StringArray.from_buffers(3, offsets, texts.buffers()[2])
    assert column_hash(longer).tolist() == column_hash(texts).tolist()


WITHOUT_NULLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int64 without nulls": (pa.int64(), [0, 1, 2**62 + 1, 2**62]),
    "float64 without nulls": (pa.float64(), [0.0, -0.0, 1.5, float("nan"), float("inf")]),
}


@pytest.mark.parametrize("name", [*VALUES, *WITHOUT_NULLS])
def test_rows_are_equal_wherever_they_stand(name: str) -> None:
    kind, values = (VALUES | WITHOUT_NULLS)[name]
    rows = pa.record_batch([pa.array(values, kind)], names=["x"])
    left, right = (at.ravel() for at in np.indices((len(values), len(values))))
    expected = rows_equal(rows.take(pa.array(left)), rows.take(pa.array(right)), len(left))
    assert rows_equal_at(rows.columns, left, right).tolist() == expected.tolist()
    # Also of a batch that is a part of a longer one.
    part = pa.record_batch([pa.array([values[0], *values], kind)], names=["x"]).slice(1)
    assert rows_equal_at(part.columns, left, right).tolist() == expected.tolist()


@pytest.mark.parametrize("keys", [["a"], ["b"], ["a", "b"], ["b", "a"], []])
def test_hashes_of_keys_and_rows_together(keys: list[str]) -> None:
    payload = pa.record_batch({"a": ["x", None, "a longer text"], "b": [1, 2, None], "c": [0.5, None, 1.0]})
    of_keys, of_rows = key_and_row_hash(payload, keys, len(payload))
    assert of_keys.tolist() == row_hash(payload.select(keys), len(payload)).tolist()
    assert of_rows.tolist() == row_hash(payload).tolist()


def test_rows_are_compared_where_the_columns_before_agree() -> None:
    rows = pa.record_batch(
        {
            "a": [1, 1, 2, None, 1, 1, 3, None],
            "b": [1.0, float("nan"), 2.0, 3.0, 1.0, float("nan"), 2.0, 3.0],
            "c": ["x", "y", "z", None, "x", "z", "z", None],
        }
    )
    left = np.arange(4)
    assert rows_equal_at(rows.columns, left, left + 4).tolist() == [True, False, False, True]
    assert rows_equal_at(rows.columns, left[2:3], left[2:3] + 4).tolist() == [False]
