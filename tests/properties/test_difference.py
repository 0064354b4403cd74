"""The one judge of histories: exact where values are, and as many pairs as can be where floats are close."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core.difference import difference
from recension.core.errors import SchemaError
from recension.core.history import History

TOLERANCE = 1e-9
# Steps that are close to the next one or two, so that being close is not transitive.
NEAR = [1.0 + k * 4e-10 for k in range(8)]
FLOATS = st.sampled_from([*NEAR, -1.0, 0.0, -0.0, 1e-300, math.nan, math.inf, -math.inf])


def history(**columns: Any) -> History:
    table = pa.table(columns)
    times = np.zeros(len(table), np.int64)
    return History(times, times + 5, table)


def equal(kind: pa.DataType, one: Any, other_kind: pa.DataType, other: Any) -> bool:
    """Is a value of one type the same as one of another?"""
    return not difference(history(x=_array(one, kind)), history(x=_array(other, other_kind)))


def _array(value: Any, kind: pa.DataType) -> pa.Array:
    """A value, written in the type's own units if it is an integer."""
    if isinstance(value, int) and pa.types.is_temporal(kind):
        return pa.array([value], pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array([value], kind)


D = Decimal
CASES: list[tuple[pa.DataType, Any, pa.DataType, Any, bool]] = [
    (pa.decimal128(38, 20), D("1e-20"), pa.decimal128(38, 20), D(0), False),
    (pa.decimal128(38, 20), D("1.00000000000000000001"), pa.int64(), 1, False),
    (pa.decimal128(38, 20), D(1), pa.int64(), 1, True),
    (pa.decimal128(38, 20), D("1.5"), pa.decimal128(3, 1), D("1.5"), True),
    (pa.decimal128(38, -5), D("1e30"), pa.decimal128(38, 0), D(10) ** 30, True),
    (pa.decimal256(76, 0), D(2**127) + 1, pa.decimal256(76, 0), D(0), False),
    (pa.decimal256(76, 0), D(2**128), pa.int64(), 0, False),
    (pa.decimal256(76, 76), D("1e-76"), pa.decimal256(76, 0), D(0), False),
    (pa.decimal256(76, 76), D(0), pa.decimal256(76, 0), D(0), True),
    (pa.decimal256(76, 38), D("12.50"), pa.decimal256(60, 1), D("12.5"), True),
    (pa.decimal256(76, 70), D("12.5"), pa.decimal256(76, 1), D("12.5"), True),
    (pa.decimal256(76, 70), D("-12.5"), pa.decimal256(76, 1), D("12.5"), False),
    (pa.decimal256(76, 70), D(100), pa.uint64(), 100, True),
    (pa.uint64(), 2**64 - 1, pa.int64(), -1, False),
    (pa.uint64(), 5, pa.int8(), 5, True),
    (pa.uint64(), 2**64 - 1, pa.decimal128(20, 0), D(2**64 - 1), True),
    (pa.float32(), 0.5, pa.decimal128(3, 1), D("0.5"), True),
    (pa.float64(), 2.0, pa.int64(), 2, True),
    (pa.timestamp("us"), 2**62, pa.timestamp("ns"), (2**62 * 1000 + 2**63) % 2**64 - 2**63, False),
    (pa.timestamp("us"), -1, pa.timestamp("ns"), -1000, True),
    (pa.timestamp("us"), -1, pa.timestamp("ns"), -999, False),
    (pa.timestamp("s", "UTC"), 7, pa.timestamp("ns", "Europe/Paris"), 7 * 10**9, True),
    (pa.timestamp("ns"), 1500, pa.timestamp("ns"), 1600, False),
    (pa.timestamp("ns"), 1500, pa.timestamp("us"), 1, False),
    (pa.time64("ns"), 1500, pa.time64("ns"), 1600, False),
    (pa.time64("ns"), 5 * 10**9, pa.time32("s"), 5, True),
    (pa.duration("s"), 2**62, pa.duration("ns"), (2**62 * 10**9 + 2**63) % 2**64 - 2**63, False),
    (pa.duration("ms"), 1, pa.duration("us"), 1000, True),
    (pa.date32(), dt.date(2024, 1, 1), pa.date64(), dt.date(2024, 1, 1), True),
    (pa.string(), "a", pa.large_string(), "a", True),
    (pa.string(), "a", pa.dictionary(pa.int8(), pa.string()), "a", True),
    (pa.string(), None, pa.dictionary(pa.int8(), pa.string()), None, True),
    (pa.binary(), b"ab", pa.binary(2), b"ab", True),
    (pa.string_view(), "long text that is not inlined", pa.string(), "long text that is not inlined", True),
    (pa.null(), None, pa.float64(), None, True),
    (pa.null(), None, pa.float64(), math.nan, False),
    (pa.list_(pa.int64()), [1, 2], pa.large_list(pa.int8()), [1, 2], True),
    (pa.list_(pa.int64()), [1, 2], pa.list_(pa.int64()), [2, 1], False),
    (pa.list_(pa.int64()), [], pa.list_(pa.int64()), None, False),
    (pa.list_(pa.int64()), [None], pa.list_(pa.int64(), 1), [None], True),
    (pa.list_(pa.float64()), [0.1 + 0.2, None], pa.list_(pa.float64()), [0.3, None], True),
    (pa.list_(pa.float64()), [0.3, None], pa.list_(pa.float64()), [None, 0.3], False),
    (
        pa.list_(pa.list_(pa.float64())),
        [[0.1 + 0.2], []],
        pa.list_(pa.list_(pa.float64())),
        [[0.3], []],
        True,
    ),
    (pa.list_(pa.list_(pa.float64())), [[0.3], []], pa.list_(pa.list_(pa.float64())), [[], [0.3]], False),
    (
        pa.map_(pa.string(), pa.float64()),
        [("a", 0.3)],
        pa.map_(pa.string(), pa.float32()),
        [("a", 0.3)],
        False,
    ),
    (
        pa.map_(pa.string(), pa.float64()),
        [("a", 0.5)],
        pa.map_(pa.string(), pa.float32()),
        [("a", 0.5)],
        True,
    ),
    (pa.struct({"a": pa.int64()}), {"a": 1}, pa.struct({"b": pa.int8(), "a": pa.int8()}), {"a": 1}, True),
    (pa.struct({"a": pa.int64()}), {"a": None}, pa.struct({"a": pa.int64()}), None, False),
    (pa.struct({"a": pa.float64()}), {"a": 0.3}, pa.struct({"a": pa.float64()}), {"a": 0.1 + 0.2}, True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]} {case[2]} {case[3]}"[:80])
def test_values_are_compared_exactly(case: tuple[pa.DataType, Any, pa.DataType, Any, bool]) -> None:
    kind, one, other_kind, other, is_equal = case
    assert equal(kind, one, other_kind, other) == is_equal
    assert equal(other_kind, other, kind, one) == is_equal


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.string(), pa.binary()),
        (pa.string(), pa.int64()),
        (pa.bool_(), pa.int64()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us"), pa.int64()),
        (pa.timestamp("us"), pa.date32()),
        (pa.duration("us"), pa.int64()),
        (pa.list_(pa.string()), pa.list_(pa.binary())),
        (pa.list_(pa.int64()), pa.map_(pa.int64(), pa.int64())),
    ],
)
def test_values_of_two_kinds_are_refused(one: pa.DataType, other: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"^column x is .* on one side and .* on the other$"):
        difference(history(x=pa.nulls(1, one)), history(x=pa.nulls(1, other)))


def test_equal_hashes_alone_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if hashes collided: all are 0."""
    nothing = lambda columns, size: np.zeros(size, np.uint64)  # noqa: E731
    monkeypatch.setattr("recension.core.difference.combine_all", nothing)
    monkeypatch.setattr("recension.core.netting.combine_all", nothing)
    one = history(k=["a", "b", "b", "c"], x=[1.0, 2.0, 2.0, 3.0])
    other = history(k=["c", "b", "d", "a"], x=[3.0, 2.0 + 1e-12, 2.0, 1.0])
    found = difference(other, one)
    assert (found.missing.payload.to_pylist(), found.unexpected.payload.to_pylist()) == (
        [{"k": "b", "x": 2.0}],
        [{"k": "d", "x": 2.0}],
    )


def test_rounding_that_swaps_the_order_of_floats() -> None:
    """Sorted by the first column the rows stand in another order on the other side."""
    one = history(x=[1.0, 1.0 + 1e-12], y=[5.0, 6.0])
    other = history(x=[1.0 + 1e-12, 1.0], y=[5.0, 6.0])
    assert not difference(one, other)


def is_close(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=0.0)


def most_pairs(left: list[Any], right: list[Any]) -> int:
    """By hand: Kuhn's algorithm over all pairs."""
    partner: dict[int, int] = {}

    def search(a: int, seen: set[int]) -> bool:
        for b, row in enumerate(right):
            if b not in seen and left[a][0] == row[0] and all(map(is_close, left[a][1], row[1])):
                seen.add(b)
                if b not in partner or search(partner[b], seen):
                    partner[b] = a
                    return True
        return False

    return sum(search(a, set()) for a in range(len(left)))


@st.composite
def sides(draw: st.DrawFn) -> tuple[int, bool, list[Any], list[Any]]:
    """Rows of a key and some floats, in columns of their own or in a list."""
    width, in_list = draw(st.integers(1, 3)), draw(st.booleans())
    row = st.tuples(st.integers(0, 1), st.tuples(*[FLOATS] * width))
    left, right = (draw(st.lists(row, max_size=9)) for _ in range(2))
    same = draw(st.lists(row, max_size=4))
    return width, in_list, [*left, *same], [*same, *right]


@given(sides())
def test_as_many_rows_are_paired_as_can_be(drawn: tuple[int, bool, list[Any], list[Any]]) -> None:
    width, in_list, *rows = drawn
    histories = []
    for side in rows:
        floats = {f"f{n}": pa.array([r[1][n] for r in side], pa.float64()) for n in range(width)}
        if in_list:
            floats = {"f": pa.array([list(r[1]) for r in side], pa.list_(pa.float64()))}
        histories.append(history(k=pa.array([r[0] for r in side], pa.int64()), **floats))
    found = difference(histories[0], histories[1])
    pairs = most_pairs(*rows)
    assert (len(found.unexpected), len(found.missing)) == tuple(len(side) - pairs for side in rows)


@given(st.lists(st.sampled_from(["a", "b", None, "a long text " * 9])), st.data())
def test_exact_columns_as_bags(values: list[str | None], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.sampled_from(["a", "b", None, "a long text " * 9])))
    encoded = pa.array(others, pa.string()).dictionary_encode()
    found = difference(
        history(x=pa.chunked_array([encoded, encoded[:0]])), history(x=pa.array(values, pa.string()))
    )
    assert Counter(found.missing.payload["x"].to_pylist()) == Counter(values) - Counter(others)
    assert Counter(found.unexpected.payload["x"].to_pylist()) == Counter(others) - Counter(values)
