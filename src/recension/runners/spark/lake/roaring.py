"""Row numbers as a 64-bit Roaring bitmap in its portable form, as Delta's deletion vectors have it.

Source      the Roaring format specification; the Delta protocol, "Deletion Vector Format".
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from recension.core.batch import Index

_MAGIC: Final = 1681511377
_WITHOUT_RUNS: Final = 12346
_MOST_IN_A_LIST: Final = 4096
_LOW_BITS: Final = 16
_BITS: Final = 1 << _LOW_BITS


def to_portable(rows: Index) -> bytes:
    """The bitmap of row numbers, which must be less than 2**32."""
    values = np.unique(rows)
    if len(values) and not 0 <= values[0] <= values[-1] < 1 << 32:
        raise ValueError("a row number that is no 32-bit one")
    keys, first, size = np.unique(values >> _LOW_BITS, return_index=True, return_counts=True)
    parts = [_container(part & (_BITS - 1)) for part in np.split(values, first[1:])] if len(values) else []
    head = np.column_stack([keys, size - 1]).astype("<u2").tobytes()
    begins = 8 + 8 * len(parts) + np.cumsum([0, *map(len, parts)])[:-1]
    fixed = struct.pack("<iqiii", _MAGIC, 1, 0, _WITHOUT_RUNS, len(parts))
    return b"".join([fixed, head, begins.astype("<u4").tobytes(), *parts])


def _container(low: Index) -> bytes:
    if len(low) <= _MOST_IN_A_LIST:
        return low.astype("<u2").tobytes()
    bits = np.zeros(_BITS, np.uint8)
    bits[low] = 1
    return np.packbits(bits, bitorder="little").tobytes()
