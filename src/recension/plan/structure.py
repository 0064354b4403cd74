"""What a value *is*: its structure as plain nested tuples, the same for equal values and for no others.

    ("Where", ("input", …), ("predicate", ("Call", ("name", ">"), …)))

Nodes that are equal by structure are one node, so that common parts of queries are computed once. The same
structure, written as JSON, says of which query a snapshot or a checkpoint is. A printed form is for people;
it never says that.

Values differ by type and by value: 1, 1.0 and True are three. A user's function is compared in two ways: in
memory it is the object itself; written down it is its name, since a program that is started again has other
objects and may have a corrected function.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.ticks import Length
from recension.core.time_kind import Instant

Structure: TypeAlias = Any
"""Nested tuples (lists, once it was JSON) of text, whole numbers and nothing."""
Opaque: TypeAlias = Callable[[Any], Structure]
"""What stands for a function or an object that cannot be looked into."""

# In the metadata of a dataclass field: it words errors or checks the user's code, and is not written down.
NOT_STRUCTURE: Final = {"is_structure": False}

# Types that are left out where a value is shown to people.
_PLAIN: Final = frozenset({"float", "bool", "type", "function", "Decimal", "bytes", "date"})
_written: dict[type[Any], tuple[str, ...]] = {}
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


class ByReference:
    """Known by reference, as steps are: its structure is not repeated in that of its readers."""


class Structural:
    """A frozen dataclass that equals those of the same structure, which is worked out once."""

    @cached_property
    def _key(self) -> Hashable:
        return (type(self), *_fields(self, _itself))

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Structural) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]


def memory_structure(value: Any) -> Hashable:
    """The structure in which functions and foreign objects are themselves."""
    key: Hashable = _structure(value, _itself)
    return key


def written_structure(value: Any, reference: Callable[[ByReference], Structure] | None = None) -> Structure:
    """The structure in which functions are known by their names; it can be written as JSON.

    ``reference`` is what stands for what is shared.
    """

    def opaque(foreign: Any) -> Structure:
        if isinstance(foreign, ByReference) and reference is not None:
            return reference(foreign)
        # A wrapper that calls a function twice, to check it, stands for the function.
        is_checked = hasattr(foreign, "written_as") and not isinstance(foreign, type)
        return _structure(foreign.written_as, opaque) if is_checked else _name_of(foreign, opaque)

    return _structure(value, opaque)


def to_json(structure: Structure) -> str:
    """A written structure as one line of text.

    >>> to_json(written_structure((1, 1.0, True, "x")))
    '["tuple", 1, ["float", "1.0"], ["bool", "True"], "x"]'
    """
    return json.dumps(structure, ensure_ascii=False)


def _structure(value: Any, opaque: Opaque) -> Structure:
    if value is None or type(value) in (str, int):
        return value
    if isinstance(value, Length):
        return int(value)
    if opaque is _itself and isinstance(value, Structural):
        return value
    if isinstance(value, ByReference | type) or hasattr(value, "written_as"):
        return opaque(value)
    if (known := _atom(value)) is not None:
        return known
    kind = type(value) if opaque is _itself else type(value).__name__
    if isinstance(value, Enum):
        return (kind, value.name)
    if type(value) in (tuple, list):
        return (kind, *(_structure(item, opaque) for item in value))
    if isinstance(value, Mapping):
        return (kind, *((_structure(k, opaque), _structure(v, opaque)) for k, v in value.items()))
    if isinstance(value, set | frozenset):
        return (kind, *sorted((_structure(item, opaque) for item in value), key=repr))
    if isinstance(value, pa.Schema):
        return (kind, *((field.name, str(field.type), str(field.nullable)) for field in value))
    if hasattr(value, "structure_parts"):
        return (kind, *(_structure(part, opaque) for part in value.structure_parts()))
    if is_dataclass(value):
        return (kind, *_fields(value, opaque))
    return opaque(value)


def _fields(value: Any, opaque: Opaque) -> Iterator[tuple[str, Structure]]:
    names = (field.name for field in fields(value)) if opaque is _itself else written_fields(type(value))
    for name in names:
        yield name, _structure(getattr(value, name), opaque)


def written_fields(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a dataclass that are written down."""
    if kind not in _written:
        _written[kind] = tuple(f.name for f in fields(kind) if f.metadata.get("is_structure", True))
    return _written[kind]


def _atom(value: Any) -> Structure:
    """Values that have a text of their own, each with its type."""
    match value:
        case Instant():
            # Equal ticks of two kinds are not the same: a query may not run over times of another kind.
            return ("Instant", int(value), str(value.kind))
        case bool() | float() | complex() | bytes() | Decimal():
            return (type(value).__name__, repr(value))
        case datetime() | time():
            zone = "" if value.tzinfo is None else str(value.tzinfo)
            return (type(value).__name__, value.isoformat(), zone, value.fold)
        case date():
            return ("date", value.isoformat())
        case timedelta():
            return ("timedelta", value.days, value.seconds, value.microseconds)
        case np.generic():
            return ("numpy", str(value.dtype), repr(value))
        case np.ndarray() if value.dtype != object:
            return ("array", str(value.dtype), *value.shape, hashlib.blake2b(value.tobytes()).hexdigest())
        case pa.DataType():
            return ("type", str(value))
        case pa.Scalar():
            return ("scalar", str(value.type), repr(value.as_py()))
        case pa.Array() | pa.ChunkedArray():
            return ("values", str(value.type), repr(value.to_pylist()))
    return None


def _itself(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return ("object", id(value))
    return (type(value), value)


def _name_of(value: Any, opaque: Opaque) -> Structure:
    """A function by its name; another object by what it prints, or by what it holds if that says nothing."""
    if callable(value):
        return ("function", str(getattr(value, "__name__", type(value).__name__)))
    text = repr(value)
    if not _ADDRESS.search(text):
        return ("object", type(value).__qualname__, text)
    return ("object", type(value).__qualname__, _structure(value.__getstate__(), opaque))


def describe_structure_difference(old: Structure, new: Structure) -> str:
    """Where two structures first differ, for people.

    >>> describe_structure_difference(["Call", ["length", None]], ["Call", ["length", 3]])
    'length is None there and 3 here'
    """
    path, was, now = _first_difference(old, new, ())
    place = ".".join(path) or "it"
    return f"{place} is {_shorten(was)} there and {_shorten(now)} here"


def _first_difference(old: Structure, new: Structure, path: tuple[str, ...]) -> tuple[Any, Any, Any]:
    is_alike = _is_nested(old) and _is_nested(new) and len(old) == len(new) and old[0] == new[0]
    if not is_alike or old[0] in _PLAIN:
        return path, old, new
    for one, other in zip(old[1:], new[1:], strict=True):
        if one != other:
            (name, was), (same, now) = _field(one), _field(other)
            if name is None or name != same:
                return _first_difference(one, other, path)
            return _first_difference(was, now, (*path, name))
    return path, old, new


def _is_nested(value: Structure) -> bool:
    return isinstance(value, list | tuple) and bool(value)


def _field(value: Structure) -> tuple[str | None, Structure]:
    """A name and what it names, if that is what the value is."""
    if _is_nested(value) and value[0] == "tuple":
        value = value[1:]
    is_named = _is_nested(value) and len(value) == 2 and isinstance(value[0], str)
    return (value[0], value[1]) if is_named else (None, value)


def _shorten(value: Structure) -> str:
    """A value without the marks of its structure, cut where it is long."""
    if _is_nested(value) and len(value) == 2 and value[0] in _PLAIN:
        return str(value[1])
    text = json.dumps(value, ensure_ascii=False) if _is_nested(value) else repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
