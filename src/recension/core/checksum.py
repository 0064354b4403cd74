"""A checksum of a table's content: names, types, values and their order, not how they are laid out.

The same table read back from Parquet, Arrow IPC or Feather has the same checksum: chunks, offsets and what
stands under a null do not matter. Values count to the bit, 0.0 is not -0.0. A damaged table has another
checksum, but for a chance of 2**-64; it is no protection against somebody who means to deceive.

Cost    reads the table once, a column at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.rowhash import Hashes, column_hash, combine

_BITS: Final = {2: pa.int16(), 4: pa.int32(), 8: pa.int64()}


def checksum(table: pa.Table) -> int:
    """A number that every change of the content changes."""
    content = _fields(table.schema), table.num_rows, [_column(column) for column in table.columns]
    return int.from_bytes(hashlib.blake2b(repr(content).encode(), digest_size=8).digest(), "little")


def _column(column: pa.ChunkedArray) -> int:
    """The sum of hashes of its values, each with its place."""
    total = first = 0
    for chunk in column.chunks:
        if len(chunk):
            place = np.arange(first, first + len(chunk), dtype=np.uint64)
            total += int(combine(place, _exact(chunk)).sum(dtype=np.uint64))
            first += len(chunk)
    return total % 2**64


def _fields(fields: Iterable[pa.Field]) -> str:
    return ", ".join(f"{field.name!r} {_type(field.type)}" for field in fields)


def _type(kind: pa.DataType) -> str:
    """The type in words, without the names that file formats give to the items of lists and maps."""
    if pa.types.is_struct(kind):
        return f"struct({_fields(kind)})"
    if pa.types.is_map(kind):
        return f"map({_type(kind.key_type)}, {_type(kind.item_type)})"
    if pa.types.is_fixed_size_list(kind):
        return f"list({_type(kind.value_type)}, {kind.list_size})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"{'large ' * pa.types.is_large_list(kind)}list({_type(kind.value_type)})"
    return str(kind)


def _exact(column: pa.Array) -> Hashes:
    """One hash per value, of floats by their bits."""
    kind = column.type
    if pa.types.is_floating(kind):
        return column_hash(column.view(_BITS[kind.bit_width // 8]))
    if pa.types.is_struct(kind):
        hashes = np.full(len(column), np.uint64(kind.num_fields))
        for child in column.flatten():
            hashes = combine(hashes, _exact(child))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        hashes = _lists(column)
    else:
        return column_hash(column)
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    return np.where(is_null, column_hash(pa.nulls(len(column))), hashes)


def _lists(column: pa.Array) -> Hashes:
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    items, ends = _exact(pc.list_flatten(column)), np.cumsum(lengths)
    place = np.arange(len(items), dtype=np.int64) - np.repeat(ends - lengths, lengths)
    totals = np.concatenate([np.zeros(1, np.uint64), np.cumsum(combine(place.view(np.uint64), items))])
    with np.errstate(over="ignore"):
        return combine(totals[ends] - totals[ends - lengths], lengths)
