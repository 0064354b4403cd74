"""Payload schemas: as users write them, and the rules their column names obey."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.type_names import listed, type_name, type_named

IntoType: TypeAlias = pa.DataType | str | type
IntoSchema: TypeAlias = pa.Schema | Mapping[str, Any]

CONTROL_COLUMNS: Final = ("_kind", "_vs", "_ve", "_new_ve", "_count", "_batch", "_seq")
_PYTHON_TYPES: Final = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    bytes: pa.binary(),
}


def schema_of(columns: IntoSchema, verb: str) -> pa.Schema:
    """A schema from Arrow types, their names, or Python's own types.

    >>> schema_of({"user": "string", "at": "timestamp[us]", "n": int}, "source").types
    [DataType(string), TimestampType(timestamp[us]), DataType(int64)]
    """
    if isinstance(columns, pa.Schema):
        require_names(columns.names, verb)
        columns = dict(zip(columns.names, columns.types, strict=True))
    if not isinstance(columns, Mapping):
        raise SchemaError(f"{verb}: a schema is {{name: type}}, not {columns!r}")
    require_names(columns, verb)
    return pa.schema(
        [pa.field(name, type_of(kind, f"{verb}, column {name!r}")) for name, kind in columns.items()]
    )


def type_of(kind: IntoType, verb: str) -> pa.DataType:
    """An Arrow type from itself, its name or a Python type."""
    if isinstance(kind, pa.DataType):
        return kind
    if isinstance(kind, type) and kind in _PYTHON_TYPES:
        return _PYTHON_TYPES[kind]
    try:
        return type_named(str(kind))
    except (ValueError, KeyError):
        usual = "'string', 'int64', 'float64', 'bool', 'timestamp[us]'"
        raise SchemaError(
            f"{verb}: {kind!r} is not a type; write an Arrow type or its name: {usual} ..."
        ) from None


def require_names(names: Iterable[str], verb: str) -> None:
    """Raise unless the names can stand together as payload columns."""
    counted = Counter(iter(names))
    for name, times in counted.items():
        if not isinstance(name, str) or not name:
            raise SchemaError(f"{verb}: a column needs a name, not {name!r}")
        if times > 1:
            raise SchemaError(f"{verb}: two columns would be named {name!r}")
        if name in CONTROL_COLUMNS:
            raise SchemaError(f"{verb}: {name!r} is a control column of streams; choose another name")


def require_same_columns(first: pa.Schema, other: pa.Schema, verb: str) -> None:
    """Raise unless both have the same columns with the same types, in whatever order."""
    if missing := [name for name in first.names if name not in other.names]:
        raise SchemaError(f"{verb}: the other stream has no column {missing[0]!r}; there {listed(other)}")
    if extra := [name for name in other.names if name not in first.names]:
        raise SchemaError(f"{verb}: only the other stream has a column {extra[0]!r}; here {listed(first)}")
    for name in first.names:
        require_same_type(name, first, other, verb)


def require_same_type(name: str, first: pa.Schema, other: pa.Schema, verb: str) -> None:
    """Raise unless the column has one type in both."""
    here, there = first.field(name).type, other.field(name).type
    if here != there:
        types = f"{type_name(here)} here and {type_name(there)} in the other stream"
        raise SchemaError(f"{verb}: column {name!r} is {types}; cast one of them")


def holds_floats(kind: pa.DataType) -> bool:
    """Can two values of this type be equal and yet different, as 0.0 and -0.0 are?"""
    return bool(pa.types.is_floating(kind) or pa.types.is_nested(kind))
