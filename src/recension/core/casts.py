"""Casts of columns that change no value: numbers as decimals, and what lies inside structs, lists and maps.

Arrow's own casts cut what is inside other types, and floats that become decimals, even where a cast is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.errors import first_failure

Cast: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]

FLOATS: Final = frozenset({float, np.float64, np.float32, np.float16})


def cast_parts(column: pa.Array, kind: pa.DataType, cast: Cast) -> pa.Array:
    """A struct, list or map in another such type, whose parts ``cast`` turns into those of the type."""
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        places = [(column.type.get_field_index(field.name), field.type) for field in kind]
        parts = [
            pa.nulls(len(column), of) if at < 0 else cast(pc.struct_field(column, [at]), of)
            for at, of in places
        ]
        return pa.StructArray.from_arrays(parts, fields=[*kind], mask=column.is_null())
    if pa.types.is_map(kind) and pa.types.is_map(column.type):
        entries = _entries(column)
        items = pc.list_flatten(entries)
        sides = (kind.key_type, kind.item_type)
        keys, values = (cast(pc.struct_field(items, [at]), of) for at, of in enumerate(sides))
        made = pa.MapArray.from_arrays(_offsets(entries), keys, values)
        return pc.if_else(column.is_valid(), made, pa.scalar(None, made.type)).cast(kind)
    if hasattr(kind, "value_field") and hasattr(column.type, "value_field"):
        inner = cast(pc.list_flatten(column), kind.value_type)
        return pa.ListArray.from_arrays(_offsets(column), inner, mask=column.is_null()).cast(kind)
    return column.cast(kind)


def _offsets(lists: pa.Array) -> pa.Array:
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(np.append(0, np.cumsum(lengths)), pa.int32())


def _entries(column: pa.Array) -> pa.Array:
    """A map as a list of its entries."""
    entries = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
    lists = pa.ListArray.from_arrays(column.offsets, entries)
    return pc.if_else(column.is_valid(), lists, pa.scalar(None, lists.type)) if column.null_count else lists


def as_decimals(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    """The decimals that round to these floats: those of the fewest digits, which is how floats are written.

    No other decimal that rounds to a float has fewer digits behind the point. By itself Arrow makes no
    decimal of a whole number unless the type holds all whole numbers, however small they are.
    """
    if pa.types.is_float16(numbers.type):  # Arrow writes as many digits as a float32 needs
        digits = [None if value is None else str(np.float16(value)) for value in numbers.to_pylist()]
        texts = pa.array(digits, pa.string())
    else:
        texts = numbers.cast(pa.string())
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        at = first_failure(len(texts), lambda size: _is_refused(texts.slice(0, size), kind))
        raise pa.ArrowInvalid(f"{numbers[at].as_py()!r} is not the same as {kind}") from None


def refuse_wrapped_decimals(values: pa.Array | pa.Scalar, cast: pa.Array | pa.Scalar) -> None:
    """Raise where more places have made decimals longer than their type: in Arrow some wrap around."""
    of, kind = values.type, cast.type
    if not (pa.types.is_decimal(of) and pa.types.is_decimal(kind) and kind.scale > of.scale):
        return
    if of.precision - of.scale <= kind.precision - kind.scale:
        return
    is_other = pc.not_equal(pc.cast(cast, of, safe=False), values)
    if isinstance(is_other, pa.Scalar):
        is_other, values = pa.array([is_other.as_py()]), pa.array([values.as_py()], of)
    if pc.any(is_other).as_py():
        raise pa.ArrowInvalid(f"{values.filter(is_other)[0].as_py()} does not fit in {kind}")


def _is_refused(texts: pa.Array, kind: pa.DataType) -> bool:
    try:
        texts.cast(kind)
    except pa.ArrowInvalid:
        return True
    return False


def floats_as_decimals(values: Sequence[Any], kind: pa.DataType) -> Sequence[Any]:
    """Python values for a column of a type: a float is the decimal to which it is nearest, at any depth."""
    return [_with_decimals(value, kind) for value in values] if _has_decimals(kind) else values


@lru_cache(256)
def _has_decimals(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind)) or any(
        _has_decimals(kind.field(at).type) for at in range(kind.num_fields)
    )


def _with_decimals(value: Any, kind: pa.DataType) -> Any:
    if value is None or not _has_decimals(kind):
        return value
    if pa.types.is_decimal(kind):
        return Decimal(str(value)) if type(value) in FLOATS else value
    if pa.types.is_struct(kind):
        return _struct_with_decimals(value, kind)
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [
            (_with_decimals(key, kind.key_type), _with_decimals(item, kind.item_type)) for key, item in pairs
        ]
    return [_with_decimals(item, kind.value_type) for item in value]


def _struct_with_decimals(value: Any, kind: pa.DataType) -> Any:
    """In the form in which the struct was given: a mapping, a tuple, or a list of names with values."""
    types = {field.name: field.type for field in kind}
    if isinstance(value, tuple):
        return tuple(_with_decimals(*pair) for pair in zip(value, types.values(), strict=True))
    pairs = value.items() if isinstance(value, Mapping) else value
    found = [(name, _with_decimals(item, types[name]) if name in types else item) for name, item in pairs]
    return dict(found) if isinstance(value, Mapping) else found
