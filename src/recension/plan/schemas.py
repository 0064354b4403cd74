"""Payload schemas: as users write them, the rules of column names, and Arrow types by the names people write.

A type is printed as ``float64``, not ``double``. What is printed can be written again, but for extension
types and maps whose fields have names of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa

from recension.core.errors import SchemaError

IntoType: TypeAlias = pa.DataType | str | type
IntoSchema: TypeAlias = pa.Schema | Mapping[str, Any]

CONTROL_COLUMNS: Final = ("_kind", "_vs", "_ve", "_new_ve", "_count", "_batch", "_seq")
START: Final = "start()"
END: Final = "end()"
"""What the times of an event are called in expressions, beside the columns of its payload."""
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
        if name in (START, END):
            raise SchemaError(f"{verb}: {name!r} is how expressions call rc.{name}; choose another name")
        if name in CONTROL_COLUMNS:
            raise SchemaError(f"{verb}: {name!r} is a control column of streams; choose another name")


def require_same_columns(first: pa.Schema, other: pa.Schema, verb: str) -> None:
    """Raise unless both have the same columns with the same types, in whatever order."""
    if missing := [name for name in first.names if name not in other.names]:
        raise SchemaError(
            f"{verb}: the other stream has no column {missing[0]!r}; there {list_columns(other)}"
        )
    if extra := [name for name in other.names if name not in first.names]:
        raise SchemaError(
            f"{verb}: only the other stream has a column {extra[0]!r}; here {list_columns(first)}"
        )
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


_WRITTEN: Final = {"halffloat": "float16", "float": "float32", "double": "float64"}
_DECIMALS: Final = {
    "decimal": pa.decimal128,
    "decimal32": pa.decimal32,
    "decimal64": pa.decimal64,
    "decimal128": pa.decimal128,
    "decimal256": pa.decimal256,
}


def type_name(kind: pa.DataType) -> str:
    """The name of a type, as a schema would have it.

    >>> type_name(pa.float64()), type_name(pa.timestamp("us", "UTC"))
    ('float64', 'timestamp[us, tz=UTC]')
    """
    return _WRITTEN.get(str(kind), str(kind))


def type_named(text: str) -> pa.DataType:
    """The type of a name; raises ``ValueError`` for what is none.

    >>> type_named("timestamp[us, tz=Europe/Paris]"), type_named("list<item: decimal128(10, 2)>").value_type
    (TimestampType(timestamp[us, tz=Europe/Paris]), Decimal128Type(decimal128(10, 2)))
    """
    reader = _TypeNameParser(text.strip())
    kind = reader.type()
    if reader.rest():
        raise ValueError(text)
    return kind


def describe_columns(schema: pa.Schema) -> str:
    """The columns with their types.

    >>> describe_columns(pa.schema([("user", pa.string()), ("bytes", pa.float64())]))
    'user string, bytes float64'
    """
    return ", ".join(f"{field.name} {type_name(field.type)}" for field in schema) or "none"


def list_columns(schema: pa.Schema) -> str:
    """The columns that exist, for error messages."""
    if not schema.names:
        return "there are no columns"
    return "the columns are " + ", ".join(f"{f.name} ({type_name(f.type)})" for f in schema)


class _TypeNameParser:
    """A name, read from its start."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def rest(self) -> str:
        return self._text[self._at :]

    def type(self) -> pa.DataType:
        (word,) = self._require(r"([a-z]\w*)")
        if word == "timestamp" and (found := self._take(r"\[(s|ms|us|ns), ?(?:tz=)?([^\]]+)\]")):
            pa.lib.string_to_tzinfo(found[1])  # refuses a zone that does not exist
            return pa.timestamp(*found)
        if word == "fixed_size_binary":
            return pa.binary(int(self._require(r"\[(\d+)\]")[0]))
        if word in _DECIMALS:
            precision, scale = self._require(r"\((\d+)(?:, ?(-?\d+))?\)")
            return _DECIMALS[word](int(precision), int(scale or 0))
        if self._take("(<)"):
            return self._nested_type(word)
        (unit,) = self._require(r"(\[[a-z]+\])?")
        return pa.type_for_alias(word + (unit or ""))

    def _nested_type(self, word: str) -> pa.DataType:
        """A type that holds others, from after its ``<``."""
        match word:
            case "list" | "large_list" | "fixed_size_list" | "list_view" | "large_list_view":
                return self._list_type(word)
            case "struct":
                fields = []
                while not self._take("(>)"):
                    fields.append(self._field())
                    self._take("(, )")
                return pa.struct(fields)
            case "map":
                keys = self.type()
                self._require("(, )")
                values = self.type()
                is_sorted = self._require("(, keys_sorted)?>")[0] is not None
                return pa.map_(keys, values, keys_sorted=is_sorted)
            case "dictionary":
                self._require("(values=)")
                values = self.type()
                self._require("(, indices=)")
                indices = self.type()
                (ordered,) = self._require("(?:, ordered=([01]))>")
                return pa.dictionary(indices, values, ordered=ordered == "1")
            case _:
                raise ValueError(self._text)

    def _list_type(self, word: str) -> pa.DataType:
        item = self._field()
        self._require("(>)")
        if word == "fixed_size_list":
            return pa.list_(item, int(self._require(r"\[(\d+)\]")[0]))
        made: pa.DataType = pa.list_(item) if word == "list" else getattr(pa, word)(item)
        return made

    def _field(self) -> pa.Field:
        (name,) = self._require("(.*?): ")
        kind = self.type()
        return pa.field(name, kind, nullable=self._take("( not null)") is None)

    def _take(self, pattern: str) -> tuple[str, ...] | None:
        found = re.compile(pattern).match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found.groups()

    def _require(self, pattern: str) -> tuple[str, ...]:
        found = self._take(pattern)
        if found is None:
            raise ValueError(self._text)
        return found


def name_apart(name: str, taken: Container[str]) -> str:
    """The name, with a mark if it is taken."""
    return name_apart(f"{name}'", taken) if name in taken else name
