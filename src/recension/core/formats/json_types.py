"""How Arrow types travel in JSON, which itself knows only texts, numbers, truths, lists and objects.

A column is read as its *carrier*, the type JSON can express, and then converted to the type wanted.
"""

from __future__ import annotations

import pyarrow as pa

from recension.core.formats.columns import is_text
from recension.core.formats.nested import fields_of, is_list, items_of, regrouped
from recension.core.formats.text import from_text, is_scalar


def can_travel(kind: pa.DataType) -> bool:
    """Can values of the type be written as JSON and read back?"""
    if is_list(kind):
        return can_travel(kind.value_type)
    if pa.types.is_struct(kind):
        return all(can_travel(f.type) for f in kind)
    return is_scalar(kind)


def carrier(kind: pa.DataType) -> pa.DataType:
    """The type that JSON values of this type have when they are parsed."""
    if is_list(kind):
        return pa.list_(carrier(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, carrier(f.type)) for f in kind])
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind) or is_text(kind):
        return pa.string()
    return kind


def from_carrier(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in the type wanted."""
    if column.type == kind:
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if is_list(kind):
        return regrouped(column, from_carrier(items_of(column), kind.value_type)).cast(kind)
    if pa.types.is_struct(kind):
        parts = [from_carrier(p, f.type) for p, f in zip(fields_of(column, kind), kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if is_text(column.type):
        return from_text(column, kind)
    return column.cast(kind)


def inferred(kind: pa.DataType) -> pa.DataType:
    """What a type that Arrow guessed really says: a text that looks like a timestamp is still a text."""
    if is_list(kind):
        return pa.list_(inferred(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, inferred(f.type)) for f in kind])
    return pa.string() if pa.types.is_timestamp(kind) else kind
