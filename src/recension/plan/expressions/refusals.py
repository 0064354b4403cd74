"""What expressions do not do, refused by name and with what to write instead."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final

from recension.core.errors import SchemaError

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


def unknown(name: str, kind: type, expression: Any) -> AttributeError:
    """The error for a method that is not there."""
    if name.startswith("_"):
        return AttributeError(name)
    known = [method for method in dir(kind) if not method.startswith("_")]
    if name in _INSTEAD:
        return UnknownMethodError(f"{expression}: there is no {name}(); write {_INSTEAD[name]}")
    if name in _OTHER_ROWS and "is_null" in known:
        return looks_at_other_rows(f"{name}()", expression)
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    return UnknownMethodError(f"{expression}: there is no {name!r}; {hint}")


def looks_at_other_rows(call: str, expression: Any = None) -> UnknownMethodError:
    """The error for a method that needs more than the row it stands on."""
    text = str(expression)
    of = "" if expression is None else f"({text}).{call}: " if " " in text else f"{text}.{call}: "
    return UnknownMethodError(
        f"{of}{call} looks at other rows, but expressions are computed row by row;"
        " use agg(...) for what several events say together"
    )
