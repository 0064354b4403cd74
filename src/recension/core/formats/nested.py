"""Lists and structs taken apart and put together again, with something done to the values inside."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def is_list(kind: pa.DataType) -> bool:
    """Any of Arrow's lists, except maps."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def regrouped(lists: pa.Array, items: pa.Array) -> pa.Array:
    """A list column with the lengths and nulls of ``lists`` over new ``items``, one for each old one."""
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    # A null offset stands for a null list; the last offset closes the last list.
    nulls = np.append(lists.is_null().to_numpy(zero_copy_only=False), False)
    return pa.ListArray.from_arrays(pa.array(offsets, mask=nulls), items)


def items_of(lists: pa.Array) -> pa.Array:
    """The items of all lists that are not null, one after another."""
    return pc.list_flatten(lists)


def fields_of(structs: pa.Array, kind: pa.DataType) -> list[pa.Array]:
    """The fields that ``kind`` names, in its order; those of a null struct, and absent ones, are null."""
    parts = dict(zip((f.name for f in structs.type), structs.flatten(), strict=True))
    return [parts.get(field.name, pa.nulls(len(structs))) for field in kind]
