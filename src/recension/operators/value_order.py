"""Whole numbers that sort like the values of a column: nulls first, NaN after all numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import Index
from recension.core.ticks import Ticks


def payload_order(payload: pa.RecordBatch, size: int) -> Index:
    """Row numbers in payload order: column by column, nulls first, NaN after all numbers."""
    keys = payload_keys(payload)
    return np.lexsort(keys[::-1]) if keys else np.arange(size)


def payload_keys(payload: pa.RecordBatch) -> list[Index]:
    """For every column whole numbers that sort like its values, equal for equal ones."""
    return [sort_key(column) for column in payload.columns]


def sort_key(column: pa.Array) -> Index:
    """Whole numbers that sort like the values of any type: nulls first, NaN last."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_nested(column.type):
        values = column.to_pylist()
        ranked = {v: i for i, v in enumerate(sorted({repr(v) for v in values}))}
        return np.array([-1 if v is None else ranked[repr(v)] for v in values], np.int64)
    return value_ranks(column)


def value_ranks(column: pa.Array) -> Index:
    """Dense ranks of values, equal for equal ones: nulls -1, numbers in order, NaN last."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        # -0.0 and 0.0 are one value; the sum of the two is 0.0.
        column = pc.add(column.cast(pa.float64()), 0.0)
    is_nan = pc.is_nan(column).fill_null(False) if pa.types.is_floating(column.type) else None
    plain = column if is_nan is None else pc.if_else(is_nan, pa.scalar(None, column.type), column)
    if pa.types.is_boolean(plain.type):
        plain = plain.cast(pa.int8())
    distinct = plain.unique().drop_null()
    ordered = distinct.take(pc.sort_indices(distinct))
    found: Index = (
        pc.fill_null(pc.index_in(plain, ordered), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    if is_nan is not None:
        found = np.where(is_nan.to_numpy(zero_copy_only=False), len(ordered), found)
    return found


def order_by_payload(firsts: list[Index], ends: Ticks, payload: Callable[[Index], pa.RecordBatch]) -> Index:
    """The order of events by the columns ``firsts``, the last of them first, then by payload and end.

    ``payload`` gives the payloads of some events. It is asked only for those that are alike in ``firsts``.
    """
    order = np.lexsort((ends, *firsts))
    is_same = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in firsts:
        is_same &= column[order][1:] == column[order][:-1]
    is_tied = (np.append(False, is_same) | np.append(is_same, False))[: len(order)]
    tied = order[is_tied]
    if len(tied):
        keys = payload_keys(payload(tied))
        order[is_tied] = tied[np.lexsort((ends[tied], *keys[::-1], *(column[tied] for column in firsts)))]
    return order
