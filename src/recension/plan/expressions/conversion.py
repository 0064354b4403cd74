"""What users write beside expressions: values, types, lists of values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import narwhals as nw
import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.expressions.tree import Literal, Tree
from recension.plan.schemas import type_of

IntoType: TypeAlias = Any
"""A type: its name (``"int64"``), Arrow's, Python's own (``int``), or narwhals'."""


def operand(value: Any) -> Tree:
    """The tree of an expression, or of a plain value."""
    if isinstance(tree := getattr(value, "tree", None), Tree):
        return tree
    refuse_foreign(value)
    return Literal(value)


def refuse_foreign(value: Any) -> None:
    """Raise for what looks like an expression, or holds rows of its own."""
    if isinstance(value, nw.Expr):
        raise SchemaError(
            f"{value} is an expression of narwhals; write rc.col, rc.lit, rc.when "
            "in the place of nw.col, nw.lit, nw.when"
        )
    if _is_data(value):
        raise SchemaError(
            f"an expression cannot hold data of its own, such as this {type(value).__name__}; "
            "join with another stream instead"
        )


def _is_data(value: Any) -> bool:
    is_array = hasattr(value, "__array__") and getattr(value, "ndim", 1) > 0
    return isinstance(value, nw.Series | pa.Array | pa.ChunkedArray) or (
        is_array and not isinstance(value, pa.Scalar)
    )


def member_values(given: Iterable[Any]) -> tuple[Any, ...]:
    """The values of a list, a set, an array, in an order that is the same in every process."""
    if isinstance(getattr(given, "tree", None), Tree) or isinstance(given, nw.Expr):
        raise SchemaError("is_in: give a list of values; to compare with another column write == or join")
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise SchemaError(f"is_in: give a list of values, not {given!r}")
    if isinstance(given, set | frozenset):
        return tuple(sorted(given, key=repr))
    for to_list in ("to_pylist", "to_list", "tolist"):
        if hasattr(given, to_list):
            return tuple(getattr(given, to_list)())
    return tuple(given)


def data_type(given: IntoType, verb: str) -> pa.DataType:
    """An Arrow type from whatever names one.

    >>> data_type("float64", "cast"), data_type(nw.Datetime("us"), "cast")
    (DataType(double), TimestampType(timestamp[us]))
    """
    is_narwhals = isinstance(given, nw.dtypes.DType)
    if not is_narwhals and not (isinstance(given, type) and issubclass(given, nw.dtypes.DType)):
        return type_of(given, verb)
    try:
        nothing = nw.from_native(pa.table({"_": [0]}), eager_only=True).select(_=nw.lit(None, given))
        return nothing.to_native().schema.field(0).type
    except Exception:
        raise SchemaError(f"{verb}: {given} has no Arrow type") from None
