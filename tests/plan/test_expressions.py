"""Expressions: read well, know their columns and types, and are refused when they look at other rows."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest

import recension as rc
from recension.core.errors import SchemaError
from recension.plan.evaluation import ComputedColumn, Predicate, Projection
from recension.plan.expressions import expression, result_type

a, b, site, at = rc.col("a"), rc.col("b"), rc.col("site"), rc.col("at")
SCHEMA = pa.schema(
    [("a", pa.int64()), ("b", pa.float64()), ("site", pa.string()), ("at", pa.timestamp("us"))]
)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (a > 0, "a > 0"),
        ((a > 0) & (b <= 1.5), "(a > 0) & (b <= 1.5)"),
        ((a > 0) | ~(b == 1), "(a > 0) | ~(b == 1)"),
        ((a + b) * 2 - 1, "(a + b) * 2 - 1"),
        (a - (b - 1), "a - (b - 1)"),
        (1 - a, "1 - a"),
        (2 * a, "a * 2"),
        (-a, "-a"),
        ((a + 1) ** 2, "(a + 1) ** 2"),
        (a // 2 % 3, "a // 2 % 3"),
        (site == "x", "site == 'x'"),
        (site.str.to_uppercase().str.len_chars() > 3, "site.str.to_uppercase().str.len_chars() > 3"),
        (site.is_in(["x", "y"]), "site.is_in(['x', 'y'])"),
        (a.is_between(1, 3), "a.is_between(1, 3)"),
        (a.fill_null(0), "a.fill_null(0)"),
        ((a + b).abs(), "(a + b).abs()"),
        (rc.when(a > 0).then(a).otherwise(rc.lit(0)), "when(a > 0).then(a).otherwise(0)"),
        (rc.coalesce("a", rc.lit(1)), "coalesce(a, 1)"),
        (a.alias("other"), "a"),
        (a.cast(nw.Float32), "a.cast('float32')"),
        (at.dt.year(), "at.dt.year()"),
    ],
)
def test_text_is_what_was_written(written: rc.Expr, text: str) -> None:
    assert str(expression(written)) == text


@pytest.mark.parametrize(
    ("written", "columns"),
    [
        (a > 0, {"a"}),
        (rc.lit(1), set()),
        (rc.when(a > 0).then(b).otherwise(rc.col("site").str.len_chars()), {"a", "b", "site"}),
        (rc.max_horizontal("a", b), {"a", "b"}),
        (site == "a", {"site"}),
        (a.is_between(b, 3), {"a", "b"}),
    ],
)
def test_references(written: rc.Expr, columns: set[str]) -> None:
    assert expression(written).references == columns


def test_equal_when_written_alike() -> None:
    assert expression(a + 1) == expression(rc.col("a") + 1)
    assert expression(a + 1) == expression((a + 1).alias("x"))
    assert expression(a + 1) != expression(a + 1.0)
    assert expression(a == 1) != expression(a == True)  # noqa: E712
    assert expression(site == "a") != expression(site == a)
    assert expression(a.is_in([1, 2])) == expression(a.is_in([1, 2]))
    assert hash(expression(a.is_in([1, 2]))) == hash(expression(a.is_in([1, 2])))
    assert pickle.loads(pickle.dumps(expression(a + 1))) == expression(a + 1)


# What a type checker would refuse.
any_expression: Any = a
any_list: Any = ["a", "b"]


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda: any_expression.sum(), "sum() looks at other rows"),
        (lambda: any_expression.cum_sum() > 3, "cum_sum() looks at other rows"),
        (lambda: 1 + any_expression.rank(), "rank() looks at other rows"),
        (lambda: any_expression.shift(1), "shift() looks at other rows"),
        (lambda: any_expression.sum().over("site"), "sum() looks at other rows"),
        (lambda: any_expression.drop_nulls(), "drop_nulls() looks at other rows"),
        (lambda: any_expression.fill_null(strategy="forward"), "looks at other rows"),
        (lambda: any_expression.is_nul(), "there is no 'is_nul'; did you mean 'is_null'?"),
        (lambda: any_expression.str.to_upercase(), "did you mean 'to_uppercase'?"),
        (lambda: any_expression.isin([1]), "write is_in([...])"),
        (lambda: any_expression.map_elements(len), "write rc.udf"),
        (lambda: rc.col(any_list), "name each column by itself"),
        (lambda: a + np.array([1, 2]), "cannot hold data of its own"),
        (lambda: a + pa.array([1, 2]), "cannot hold data of its own"),
        (lambda: a.is_in(b), "give a list of values"),
        (lambda: a == object(), "is not a value that a column can hold"),
        (lambda: rc.lit("x", "int64"), "is not a value of int64"),
        (lambda: a.cast("int46"), "'int46' is not a type"),
        (lambda: bool(a > 0), "write & for 'and'"),
        (lambda: 0 < a < 3, "is_between(low, high)"),
        (lambda: a + nw.col("b"), "write rc.col, rc.lit, rc.when"),
        (lambda: expression(nw.col("b") + 1), "write rc.col, rc.lit, rc.when"),
        (lambda: expression(nw.col("b") + a), "write rc.col, rc.lit, rc.when"),
        (lambda: a.is_close(nw.col("b")), "write rc.col, rc.lit, rc.when"),
        (lambda: a.fill_null(nw.lit(1)), "write rc.col, rc.lit, rc.when"),
        (lambda: a.replace_strict([1], [nw.lit(2)]), "write rc.col, rc.lit, rc.when"),
        (lambda: site.str.replace_all("a", nw.col("b")), "write rc.col, rc.lit, rc.when"),
    ],
)
def test_refused_where_it_is_written(write: Callable[[], Any], reason: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(reason)):
        write()


def test_numbers_of_numpy_are_values() -> None:
    assert str(np.int64(5) - a) == "np.int64(5) - a"
    assert str(np.float64(0.5) < b) == "b > np.float64(0.5)"
    assert computed_of(np.int64(5) - a) == [4, None, 2]


def computed_of(written: rc.Expr) -> list[Any]:
    values: list[Any] = ComputedColumn(expression(written), pa.int64())(PAYLOAD).to_pylist()
    return values


def test_what_is_not_there_is_an_attribute_error_too() -> None:
    assert not hasattr(a, "summ")
    assert "is_null" in dir(a)
    assert "to_uppercase" in dir(site.str)
    assert "sum" not in dir(a)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        (a + 1, pa.int64()),
        (a / 2, pa.float64()),
        (a + b, pa.float64()),
        (a > b, pa.bool_()),
        (site.str.len_chars(), pa.int32()),
        (rc.lit("x"), pa.string()),
        (at.dt.year(), pa.int64()),
        (rc.when(a > 0).then(b), pa.float64()),
    ],
)
def test_types_are_inferred(written: rc.Expr, kind: pa.DataType) -> None:
    assert result_type(expression(written), SCHEMA, "test") == kind


PAYLOAD = pa.record_batch(
    {
        "a": [1, None, 3],
        "b": [0.5, 1.5, None],
        "site": ["x", "y", None],
        "at": pa.nulls(3, pa.timestamp("us")),
    },
    schema=SCHEMA,
)


def test_a_projection_computes_columns_of_the_inferred_types() -> None:
    outputs = tuple((name, expression(e)) for name, e in {"a": "a", "one": 1, "double": b * 2}.items())
    schema = pa.schema([("a", pa.int64()), ("one", pa.int64()), ("double", pa.float64())])
    made = Projection(outputs, schema)(PAYLOAD)
    assert made.schema == schema
    assert made.to_pydict() == {"a": [1, None, 3], "one": [1, 1, 1], "double": [1.0, 3.0, None]}
    assert Projection(outputs, schema)(PAYLOAD.slice(0, 0)).num_rows == 0


def test_a_projection_of_literals_is_as_long_as_its_input() -> None:
    one = Projection((("one", expression(1)),), pa.schema([("one", pa.int64())]))
    assert one(PAYLOAD)["one"].to_pylist() == [1, 1, 1]
    assert one(pa.record_batch([]), size=2)["one"].to_pylist() == [1, 1]


def test_where_a_predicate_is_null_it_does_not_hold() -> None:
    assert Predicate(expression(a > 1))(PAYLOAD).tolist() == [False, False, True]
    assert Predicate(expression(True))(PAYLOAD).tolist() == [True, True, True]
    assert Predicate(expression(rc.lit(None, nw.Boolean)))(PAYLOAD).tolist() == [False, False, False]


def test_a_slice_is_evaluated_as_a_slice() -> None:
    assert ComputedColumn(expression(a + 1), pa.int64())(PAYLOAD.slice(2, 1)).to_pylist() == [4]


@pytest.mark.parametrize(
    "written",
    [
        *(a.cast(nw.Int8), site.str.to_datetime(format="%Y"), a.replace_strict([1], [2])),
        *(a + 1 > 0, -a < 0, abs(a) > 1, rc.sum_horizontal("a", 1) > 0, rc.when(a > 0).then(a * 2) > 1),
    ],
)
def test_what_may_fail_on_some_rows(written: rc.Expr) -> None:
    assert not expression(written).is_total(SCHEMA)


@pytest.mark.parametrize(
    "written", [a > 0, (a + b) / 2 > 1, site.str.contains("x") & a.is_null(), -b < 2.0 * a]
)
def test_what_has_a_value_for_every_row(written: rc.Expr) -> None:
    assert expression(written).is_total(SCHEMA)
