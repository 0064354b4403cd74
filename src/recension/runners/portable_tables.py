"""The tables of a snapshot in types that every file format gives back as they were.

Parquet has no seconds and no date64: it reads them back as another type. They are stored as the whole numbers
they are, and one more table says what they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

TYPES: Final = "types"


def to_portable(chunks: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables, and one with the schemas of those that had to change."""
    schemas = {name: _portable_schema(table.schema) for name, table in chunks.items()}
    changed = [name for name, table in chunks.items() if schemas[name] != table.schema]
    found = {**chunks, **{name: chunks[name].cast(schemas[name]) for name in changed}}
    if changed:
        written = [chunks[name].schema.serialize().to_pybytes() for name in changed]
        found[TYPES] = pa.table({"chunk": changed, "schema": pa.array(written, pa.binary())})
    return found


def from_portable(chunks: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables as they were."""
    found = dict(chunks)
    for line in found.pop(TYPES).to_pylist() if TYPES in found else []:
        schema = pa.ipc.read_schema(pa.py_buffer(line["schema"]))
        found[line["chunk"]] = found[line["chunk"]].cast(schema)
    return found


def _portable_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_portable(field.type)) for field in schema], schema.metadata)


def _portable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date64(kind) or (pa.types.is_timestamp(kind) and kind.unit == "s"):
        return pa.int64()
    if pa.types.is_time32(kind) and kind.unit == "s":
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_portable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_portable(kind.key_type), _portable(kind.item_type), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_item(kind), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(_item(kind))
    return pa.list_(_item(kind)) if pa.types.is_list(kind) else kind


def _item(kind: pa.DataType) -> pa.Field:
    return kind.value_field.with_type(_portable(kind.value_type))
