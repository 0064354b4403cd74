"""The medians of lists, exact: Arrow's own are estimates, and of two items give the lesser."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def list_medians(lists: pa.Array) -> pa.Array:
    """The item in the middle of each, or the mean of two; nulls do not count, NaN is the greatest."""
    items = pc.list_flatten(lists)
    valid = items.is_valid().to_numpy(zero_copy_only=False)
    owner = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)[valid]
    numbers = items.drop_null()
    is_whole = pa.types.is_integer(numbers.type)
    values = (numbers if is_whole else pc.cast(numbers, pa.float64())).to_numpy(zero_copy_only=False)
    values = values[np.lexsort((values, owner))].astype(np.float64)
    count = np.bincount(owner, minlength=len(lists))
    is_filled = count > 0
    first, count = (np.cumsum(count) - count)[is_filled], count[is_filled]
    low, high = values[first + (count - 1) // 2], values[first + count // 2]
    with np.errstate(over="ignore", invalid="ignore"):
        total = low + high
        middle = np.where(np.isinf(total), low / 2 + high / 2, total / 2)
    found = np.zeros(len(lists))
    found[is_filled] = np.where(low == high, low, middle)
    return pa.array(found, mask=~is_filled)
