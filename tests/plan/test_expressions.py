"""Expressions: read well, know their columns and types, and are refused when they look at other rows."""

from __future__ import annotations

import pickle

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest

from recension.core.errors import SchemaError
from recension.plan.evaluation import Computed, Predicate, Projection
from recension.plan.expressions import expression, result_type

a, b, site, at = nw.col("a"), nw.col("b"), nw.col("site"), nw.col("at")
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
        (nw.when(a > 0).then(a).otherwise(nw.lit(0)), "when(a > 0).then(a).otherwise(0)"),
        (nw.coalesce("a", nw.lit(1)), "coalesce(a, 1)"),
        (a.alias("other"), "a"),
        (a.cast(nw.Float32), "a.cast(Float32)"),
        (at.dt.year(), "at.dt.year()"),
    ],
)
def test_text_is_what_was_written(written: nw.Expr, text: str) -> None:
    assert str(expression(written)) == text


@pytest.mark.parametrize(
    ("written", "columns"),
    [
        (a > 0, {"a"}),
        (nw.lit(1), set()),
        (nw.when(a > 0).then(b).otherwise(nw.col("site").str.len_chars()), {"a", "b", "site"}),
        (nw.max_horizontal("a", b), {"a", "b"}),
        (site == "a", {"site"}),
        (a.is_between(b, 3), {"a", "b"}),
    ],
)
def test_references(written: nw.Expr, columns: set[str]) -> None:
    assert expression(written).references == columns


def test_equal_when_written_alike() -> None:
    assert expression(a + 1) == expression(nw.col("a") + 1)
    assert expression(a + 1) == expression((a + 1).alias("x"))
    assert expression(a + 1) != expression(a + 1.0)
    assert expression(a == 1) != expression(a == True)  # noqa: E712
    assert expression(site == "a") != expression(site == a)
    assert expression(a.is_in([1, 2])) == expression(a.is_in([1, 2]))
    assert hash(expression(a.is_in([1, 2]))) == hash(expression(a.is_in([1, 2])))
    assert pickle.loads(pickle.dumps(expression(a + 1))) == expression(a + 1)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (a.sum(), "sum() looks at other rows"),
        (a.cum_sum() > 3, "cum_sum() looks at other rows"),
        (1 + a.rank(), "rank() looks at other rows"),
        (a.shift(1), "shift() looks at other rows"),
        (a - a.mean(), "mean() looks at other rows"),
        (a.sum().over("site"), "sum() looks at other rows"),
        (a.drop_nulls(), "drop_nulls() looks at other rows"),
        (nw.col("a", "b"), "stands for one column"),
        (nw.all(), "stands for one column"),
        (a + np.array([1, 2]), "cannot hold data of its own"),
    ],
)
def test_only_row_by_row(written: nw.Expr, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason.replace("(", r"\(").replace(")", r"\)")):
        expression(written)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        (a + 1, pa.int64()),
        (a / 2, pa.float64()),
        (a + b, pa.float64()),
        (a > b, pa.bool_()),
        (site.str.len_chars(), pa.int32()),
        (nw.lit("x"), pa.string()),
        (at.dt.year(), pa.int64()),
        (nw.when(a > 0).then(b), pa.float64()),
    ],
)
def test_types_are_inferred(written: nw.Expr, kind: pa.DataType) -> None:
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
    assert Predicate(expression(nw.lit(None, nw.Boolean)))(PAYLOAD).tolist() == [False, False, False]


def test_a_slice_is_evaluated_as_a_slice() -> None:
    assert Computed(expression(a + 1), pa.int64())(PAYLOAD.slice(2, 1)).to_pylist() == [4]


@pytest.mark.parametrize(
    "written", [a.cast(nw.Int8), site.str.to_datetime(format="%Y"), a.replace_strict([1], [2])]
)
def test_what_may_fail_on_some_rows(written: nw.Expr) -> None:
    assert not expression(written).is_total


@pytest.mark.parametrize("written", [a > 0, (a + b) / 2 > 1, site.str.contains("x") & a.is_null()])
def test_what_has_a_value_for_every_row(written: nw.Expr) -> None:
    assert expression(written).is_total
