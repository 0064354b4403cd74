"""What lies inside structs, lists and maps is cast as exactly as a column of it would be."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recension.core.values import cast_exactly, exact_array

CENTS = [cents / 100 for cents in range(1, 2000)]
EXACT = [Decimal(cents) / 100 for cents in range(1, 2000)]
PRICE = pa.decimal128(10, 2)
INSIDE: dict[str, Any] = {
    "struct": (lambda x: {"a": x}, lambda of: pa.struct([("a", of)])),
    "list": (lambda x: [x, None], pa.list_),
    "large list": (lambda x: [x], pa.large_list),
    "pair": (lambda x: [x, x], lambda of: pa.list_(of, 2)),
    "map": (lambda x: [("k", x)], lambda of: pa.map_(pa.string(), of)),
    "list in a struct": (lambda x: {"a": [x]}, lambda of: pa.struct([("a", pa.list_(of))])),
    "map in a list": (lambda x: [[("k", x)], None], lambda of: pa.list_(pa.map_(pa.string(), of))),
}


@pytest.mark.parametrize("inside", INSIDE)
def test_each_amount_is_the_decimal_it_is_written_as(inside: str) -> None:
    put, kind = INSIDE[inside]
    floats = pa.array([None, *map(put, CENTS), None], kind(pa.float64()))
    expected = [None, *map(put, EXACT), None]
    assert cast_exactly(floats, kind(PRICE)).to_pylist() == expected
    assert cast_exactly(floats[1:-5][3:], kind(PRICE)).to_pylist() == expected[1:-5][3:]
    assert exact_array(floats.to_pylist(), kind(PRICE)).to_pylist() == expected


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize(
    ("value", "old", "new"),
    [
        (3.333, pa.float64(), PRICE),
        (float("nan"), pa.float64(), PRICE),
        (1e300, pa.float64(), pa.float32()),
        (dt.datetime(2024, 1, 1, 5), pa.timestamp("us"), pa.date32()),
        (Decimal("3.333"), pa.decimal128(10, 3), PRICE),
        (123_456_789, pa.int64(), PRICE),
        (3.5, pa.float64(), pa.int64()),
    ],
)
def test_what_would_change_inside_is_refused(inside: str, value: Any, old: Any, new: Any) -> None:
    put, kind = INSIDE[inside]
    column = pa.array([put(value)], kind(old))
    with pytest.raises(pa.ArrowInvalid):
        cast_exactly(column, kind(new))


def test_whole_numbers_and_short_floats_are_decimals() -> None:
    assert cast_exactly(pa.array([3, None, -7]), PRICE).to_pylist() == [Decimal(3), None, Decimal(-7)]
    assert cast_exactly(pa.array([2**64 - 1], pa.uint64()), pa.decimal128(22, 2))[0].as_py() == 2**64 - 1
    halves = pa.array([np.float16(3.3), None], pa.float16())
    assert cast_exactly(halves, PRICE).to_pylist() == [Decimal("3.30"), None]
    with pytest.raises(pa.ArrowInvalid, match=r"123456789 is not the same as decimal128\(10, 2\)"):
        cast_exactly(pa.array([123_456_789]), PRICE)


def test_fields_are_found_by_name() -> None:
    given = pa.array([{"b": 2.5, "a": 1.0}], pa.struct([("b", pa.float64()), ("a", pa.float64())]))
    wanted = pa.struct([("a", PRICE), ("b", PRICE)])
    assert cast_exactly(given, wanted).to_pylist() == [{"a": Decimal(1), "b": Decimal("2.50")}]
    pairs = [[("a", 1.1)], [("a", 2.2)]]
    assert exact_array(pairs, pa.struct([("a", PRICE)])).to_pylist() == [
        {"a": Decimal("1.10")},
        {"a": Decimal("2.20")},
    ]
