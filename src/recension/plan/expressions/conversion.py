"""What users write in expressions: values and types that are converted, and what is refused by name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

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


def argument(value: Any) -> Any:
    """The argument of a method: the tree of an expression, or a plain value as it is."""
    if isinstance(tree := getattr(value, "tree", None), Tree):
        return tree
    foreign = [x for x in value if isinstance(x, nw.Expr)] if isinstance(value, tuple) else [value]
    for item in foreign:
        refuse_foreign(item)
    return value


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
        raise SchemaError(
            "is_in: give a list of values", instead="; to compare with another column write == or join"
        )
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


_OTHER_ROWS: Final = frozenset(
    {
        *("all", "any", "any_value", "arg_max", "arg_min", "count", "cum_count", "cum_max", "cum_min"),
        *("cum_prod", "cum_sum", "diff", "drop_nulls", "ewm_mean", "filter", "first", "is_duplicated"),
        *("is_first_distinct", "is_last_distinct", "is_unique", "kurtosis", "last", "len", "map_batches"),
        *("max", "mean", "median", "min", "mode", "n_unique", "null_count", "over", "quantile", "rank"),
        *("rolling_mean", "rolling_std", "rolling_sum", "rolling_var", "shift", "skew", "sort", "std", "sum"),
        *("tail", "head", "unique", "var", "explode", "get_categories"),
    }
)
# What people know under another name.
_INSTEAD: Final = {
    "otherwise": "rc.when(condition).then(value).otherwise(other)",
    "then": "rc.when(condition).then(value)",
    "between": "is_between(low, high)",
    "isin": "is_in([...])",
    "isNull": "is_null()",
    "is_not_null": "~ and is_null()",
    "isNotNull": "~ and is_null()",
    "not_": "~",
    "neg": "-",
    "pow": "**",
    "mod": "%",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "gt": ">",
    "like": "str.contains(pattern)",
    "rlike": "str.contains(pattern)",
    "substr": "str.slice(offset, length)",
    "startswith": "str.starts_with(prefix)",
    "endswith": "str.ends_with(suffix)",
    "getField": "struct.field(name)",
    "apply": "rc.udf",
    "map": "rc.udf, or the stream's own map",
    "map_elements": "rc.udf",
    "upper": "str.to_uppercase()",
    "lower": "str.to_lowercase()",
    "strip": "str.strip_chars()",
    "len_bytes": "str.len_chars()",
    "cat": "cast('string') and the methods of str",
}


class UnknownMethodError(SchemaError, AttributeError):
    """An attribute that expressions do not have."""


def unknown_method_error(name: str, kind: type, expression: Any) -> AttributeError:
    """The error for a method that is not there."""
    if name.startswith("_"):
        return AttributeError(name)
    known = [method for method in dir(kind) if not method.startswith("_")]
    if name in _INSTEAD:
        return UnknownMethodError(f"{expression}: there is no {name}(); write {_INSTEAD[name]}")
    if name in _OTHER_ROWS and "is_null" in known:
        return other_rows_error(f"{name}()", expression)
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    return UnknownMethodError(f"{expression}: there is no {name!r}; {hint}")


def other_rows_error(call: str, expression: Any = None) -> UnknownMethodError:
    """The error for a method that needs more than the row it stands on."""
    text = str(expression)
    of = "" if expression is None else f"({text}).{call}: " if " " in text else f"{text}.{call}: "
    return UnknownMethodError(
        f"{of}{call} looks at other rows, but expressions are computed row by row;"
        " use agg(...) to compute over several events"
    )
