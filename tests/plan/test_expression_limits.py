"""Values at the ends of their types: computed, or refused in words that help."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import recension as rc
from recension import col, lit, when
from recension.core.errors import RecensionError, SchemaError
from recension.plan.evaluation import ComputedColumn
from recension.plan.expressions import Expr, expression, result_type

x, y = col("x"), col("y")
END = 2**63
SMALL = pa.int8()


def computed(value: Expr, **columns: Any) -> pa.Array:
    table = pa.record_batch({name: pa.array(given) for name, given in columns.items()})
    made = expression(value)
    return ComputedColumn(made, result_type(made, table.schema, "test"))(table)


def refused(value: Expr, **columns: Any) -> str:
    with pytest.raises(RecensionError) as raised:
        computed(value, **columns)
    return str(raised.value)


@pytest.mark.parametrize(
    ("written", "given", "row"),
    [
        (x ** (10**9), 7, "7 and 1000000000"),
        (x ** (10**9), -7, "-7 and 1000000000"),
        (2**x, END - 1, f"2 and {END - 1}"),
    ],
)
def test_a_power_of_too_many_digits_is_refused_at_once(written: Expr, given: int, row: str) -> None:
    assert f"does not fit in int64, as of {row}; cast to float64" in refused(written, x=[1, None, given])


@pytest.mark.parametrize("given", [5, 0])
def test_whole_numbers_have_no_powers_below_zero(given: int) -> None:
    assert refused(x**-1, x=[given]) == (
        f"x ** -1: whole numbers have no whole power below 0, as of {given} and -1; cast to float64 first"
    )
    assert computed(x.cast("float64") ** -1, x=[4]).to_pylist() == [0.25]


@pytest.mark.parametrize(
    "write",
    [
        lambda: x.str.replace_all("", "-", literal=True),
        lambda: x.str.replace("", "-", literal=True),
        lambda: x.str.split(""),
        lambda: x.str.replace("b*", "-", n=2),
    ],
)
def test_a_pattern_of_no_text_is_refused(write: Callable[[], Expr]) -> None:
    with pytest.raises(SchemaError, match=r"x\.str\.\w+: '(b\*)?' matches the empty text"):
        write()


def test_a_regular_expression_may_match_no_text() -> None:
    assert computed(x.str.replace_all("", "-"), x=["abc", ""]).to_pylist() == ["-a-b-c-", "-"]
    assert computed(x.str.replace("", "-"), x=["abc", None]).to_pylist() == ["-abc", None]
    assert computed(x.str.replace("b", "-", n=2), x=["abbb"]).to_pylist() == ["a--b"]


def test_no_characters_at_the_end() -> None:
    assert computed(x.str.tail(0), x=["abc", None]).to_pylist() == ["", None]
    assert computed(x.str.tail(2), x=["abc", None]).to_pylist() == ["bc", None]


def test_durations_have_no_other_sign_at_their_end() -> None:
    least = pa.array([1, -END], pa.duration("us"))
    for written in (-x, abs(x)):
        assert "does not fit in duration[us]" in refused(written, x=least)
    assert computed(-x, x=pa.array([5], pa.duration("us"))).to_pylist() == [timedelta(microseconds=-5)]


def test_a_mean_is_a_float() -> None:
    mean = rc.mean_horizontal("x", "y")
    full = pa.array([127, None, None], SMALL)
    assert computed(mean, x=full, y=pa.array([127, 4, None], SMALL)).to_pylist() == [127.0, 4.0, None]
    assert computed(mean, x=[END - 1], y=[END - 1]).to_pylist() == [float(END)]
    none = pa.array([None], pa.duration("us"))
    assert computed(mean, x=none, y=none).to_pylist() == [None]


def test_whole_numbers_become_the_nearest_floats() -> None:
    big = [END - 1, 2**53 + 1]
    assert computed(x.cast("float64") + 1, x=big).to_pylist() == [float(END), 2.0**53 + 1]
    assert computed(x.cast("float32"), x=[2**24 + 1]).to_pylist() == [2.0**24]
    assert computed(x.cast("float64"), x=pa.array([2**64 - 1], pa.uint64())).to_pylist() == [2.0**64]
    assert computed(lit(END - 1, "float64") * x, x=[1]).to_pylist() == [float(END)]
    for written, answer in ((x + 0.5, float(END)), (x / 2.0, END / 2), (x > 0.5, True), (x // 2.0, END / 2)):
        assert computed(written, x=big[:1]).to_pylist() == [answer], written
    assert computed(when(x > 0).then(x).otherwise(0.5), x=big[:1]).to_pylist() == [float(END)]


def test_other_casts_refuse_what_does_not_fit() -> None:
    assert refused(x.cast("int64"), x=[1.5]).startswith("x.cast('int64'): Float value 1.5")
    assert refused(x.cast("int8"), x=[1000]).startswith("x.cast('int8'): Integer value 1000 not in range")
    assert refused(x.cast("int64"), x=["one"]).startswith("x.cast('int64'): Failed to parse")


def test_rounding_refuses_in_words() -> None:
    said = refused(x.round(-1), x=pa.array([14, 127], SMALL))
    assert said == "x.round(-1) does not fit in int8, as of 127; cast to int64 first"
    assert computed(x.round(-1), x=pa.array([15, -25], SMALL)).to_pylist() == [20, -30]
    one = pa.array([1], SMALL)
    assert "as of 126;" in refused(x.clip(y, lit(126, SMALL)).round(-1), x=pa.array([127], SMALL), y=one)


def test_halves_are_rounded_away_from_zero() -> None:
    assert computed(x.round(), x=[0.5, 2.5, -0.5, -2.5]).to_pylist() == [1.0, 3.0, -1.0, -3.0]


@pytest.mark.parametrize(
    ("kind", "given"), [(pa.int64(), -END), (SMALL, -128), (pa.uint8(), 255), (pa.int32(), 7)], ids=str
)
def test_the_remainder_by_minus_one_is_zero(kind: pa.DataType, given: int) -> None:
    table = pa.array([given, None], kind)
    assert computed(x % -1, x=table).to_pylist() == [0, None]
    assert computed(x % y, x=table, y=pa.array([-1, -1], SMALL)).to_pylist() == [0, None]
    assert computed(x % -3, x=table).to_pylist() == [given % -3, None]


def test_unsigned_numbers_are_compared_as_numbers() -> None:
    big = pa.array([2**64 - 1, 5, 0, None], pa.uint64())
    other = [-1, 5, None, -1]
    assert computed(x > 5, x=big).to_pylist() == [True, False, False, None]
    assert computed(x == y, x=big, y=other).to_pylist() == [False, True, None, None]
    assert computed(y < x, x=big, y=other).to_pylist() == [True, False, None, None]
    assert computed(x.is_between(1, y), x=big, y=other).to_pylist() == [False, True, False, None]


BIG = 2**64 - 1


@pytest.mark.parametrize(
    "written",
    [x // 2, x % 7, x % -7, x.clip(0, 5), x.clip(-1, 5), x + 1, 5 // x, rc.max_horizontal(x, 5), x // -2],
    ids=str,
)
def test_unsigned_numbers_beyond_int64_beside_signed_ones_are_refused(written: Expr) -> None:
    """The answer is of a signed type, or the numbers have to be: never another number."""
    table = pa.array([BIG], pa.uint64())
    assert str(BIG) in refused(written, x=table)
    assert computed(written if "-2" not in str(written) else x % -2, x=pa.array([5], pa.uint64())) is not None


def test_unsigned_numbers_beyond_int64_beside_unsigned_ones_are_computed() -> None:
    table = pa.array([BIG, 5, None], pa.uint64())
    two, seven, most = (lit(value, "uint64") for value in (2, 7, BIG - 1))
    assert computed(x // two, x=table).to_pylist() == [BIG // 2, 2, None]
    assert computed(x % seven, x=table).to_pylist() == [BIG % 7, 5, None]
    assert computed(x.clip(seven, most), x=table).to_pylist() == [BIG - 1, 7, None]
    assert computed(x == lit(BIG, "uint64"), x=table).to_pylist() == [True, False, None]
    with pytest.raises(SchemaError, match=f"{BIG + 1} is not a value of uint64"):
        lit(BIG + 1, "uint64")


GUARDED: dict[str, tuple[Expr, list[Any], list[Any]]] = {
    "cast": (when(x < 100).then(x.cast("int8")).otherwise(lit(0, "int8")), [1000, 5, None], [0, 5, 0]),
    "//": (when(x > -END).then(x // -1).otherwise(0), [-END, 5], [0, -5]),
    "round": (when(x < END - 1).then(x.round(-1)).otherwise(0), [END - 1, 15], [0, 20]),
    "parsing": (
        when(x != "none").then(x.str.to_datetime("%Y-%m-%d").dt.year()),
        ["none", "2024-05-06", None],
        [None, 2024, None],
    ),
    "list.sum": (when(x.list.len() < 2).then(x.list.sum()).otherwise(0), [[END - 1, 1], [3], []], [0, 3, 0]),
    "list.get": (when(x.list.len() > 1).then(x.list.get(1)), [[2], [3, 4]], [None, 4]),
    "replace_strict": (when(x > 1).then(x.replace_strict([2], [3])), [1, 2], [None, 3]),
    "under a null": (when(x < 9).then(rc.coalesce(x, 1000).cast("int8")), [None, 5], [None, 5]),
    "a condition": (
        when(x > 99).then(0).otherwise(when(x.cast("int8") > 5).then(1).otherwise(2)),
        [1000, 7, 3],
        [0, 1, 2],
    ),
    "an outer one": (
        when(x > 99).then(0).when(x == 1).then(1).otherwise(x.cast("int8") + 1),
        [1000, 1, 3],
        [0, 1, 4],
    ),
}


@pytest.mark.parametrize("name", GUARDED)
def test_a_branch_that_is_not_taken_may_fail(name: str) -> None:
    written, given, answers = GUARDED[name]
    assert computed(written, x=given).to_pylist() == answers


def test_a_function_of_the_users_in_a_branch() -> None:
    @rc.udf(result="float64")
    def inverse(value: float) -> float:
        return 1 / value

    assert computed(when(x != 0).then(inverse(x)).otherwise(0.0), x=[0.0, 4.0]).to_pylist() == [0.0, 0.25]


def test_a_branch_that_is_taken_may_not() -> None:
    """Even one far inside: it is not tried once more at every level."""
    calls = []

    @rc.udf(result="int64")
    def counted(value: int) -> int:
        calls.append(value)
        raise ValueError("never")

    nested: Any = counted(x)
    for n in range(12):
        nested = when(x == n).then(n).otherwise(nested)
    assert "never" in refused(nested, x=[100])
    assert len(calls) <= 2
    assert "Integer value 1000" in refused(when(x > 5).then(x.cast("int8")), x=[1000])
