"""Where stores get the memory of their long arrays: plain memory, or the pool of the session that works.

The functions are those of NumPy by name; see `memory_pool` for what a pool is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.memory_pool import ALIGNED, LONGEST_COPY, Array, pool_in_use


def empty(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """As `numpy.empty`."""
    pool = pool_in_use.get()
    if pool is None:
        return np.empty(shape, dtype)
    size = math.prod(shape if isinstance(shape, tuple) else (shape,))
    return pool.allocate(size * np.dtype(dtype).itemsize).view(dtype).reshape(shape)


def zeros(size: int, dtype: npt.DTypeLike) -> Array:
    """As `numpy.zeros`, which sets nothing until it is touched."""
    return np.zeros(size, dtype) if pool_in_use.get() is None else full(size, 0, dtype)


def full(size: int, value: int, dtype: npt.DTypeLike) -> Array:
    """As `numpy.full`."""
    array = empty(size, dtype)
    array.fill(value)
    return array


def empty_columns(types: Mapping[str, npt.DTypeLike], size: int) -> dict[str, Array]:
    """Columns of so many rows, not set to anything, in one piece."""
    pool = pool_in_use.get()
    if pool is None:
        return {name: np.empty(size, kind) for name, kind in types.items()}
    lengths = [-(-size * np.dtype(kind).itemsize // ALIGNED) * ALIGNED for kind in types.values()]
    room, columns, start = pool.allocate(sum(lengths)), {}, 0
    for (name, kind), length in zip(types.items(), lengths, strict=True):
        columns[name] = room[start : start + size * np.dtype(kind).itemsize].view(kind)
        start += length
    return columns


def copy_columns(columns: Mapping[str, Array]) -> dict[str, Array]:
    """A copy of columns of equal length."""
    if pool_in_use.get() is None:
        return {name: column.copy() for name, column in columns.items()}
    size = len(next(iter(columns.values())))
    copies = empty_columns({name: column.dtype for name, column in columns.items()}, size)
    for name, column in columns.items():
        copies[name][:] = column
    return copies


def keep_columns(columns: dict[str, Array]) -> dict[str, Array]:
    """Columns that stay for long and are not written to: copied into the pool if there is one."""
    pool = pool_in_use.get()
    if pool is None or all(map(pool.is_kept, columns.values())):
        return columns
    return copy_columns(columns)


def keep_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same of rows."""
    pool = pool_in_use.get()
    if pool is None or batch.nbytes < pool.least_piece:
        return batch
    length = pa.MockOutputStream()
    _write(batch, length)
    room = pa.py_buffer(pool.allocate(length.size()))
    _write(batch, pa.FixedSizeBufferWriter(room))
    return pa.ipc.open_stream(room).read_next_batch()


def _write(batch: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def trim() -> None:
    """Give pages back if too many are resident."""
    if (pool := pool_in_use.get()) is not None:
        pool.trim()


def is_bounded() -> bool:
    """Whether memory comes from a pool, where it counts from the beginning."""
    return pool_in_use.get() is not None


def longest_copy() -> int:
    """How many bytes a store may copy at once."""
    pool = pool_in_use.get()
    return LONGEST_COPY if pool is None else pool.longest_copy
