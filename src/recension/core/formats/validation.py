"""Columns that come out of a file, checked before anything computes with them.

Arrow trusts the buffers it is given: offsets that lead elsewhere end the process, and bytes that are not
UTF-8 surface far from the file that holds them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_ASCII = 0x80


def validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, or ``ArrowInvalid``: sizes, offsets, indices of dictionaries, UTF-8, at every depth."""
    batch.validate()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            if not _is_plain_ascii(column):
                column.validate(full=True)
        except pa.ArrowInvalid as why:
            raise pa.ArrowInvalid(f"column {name}: {why}") from None
    return batch


def _is_plain_ascii(column: pa.Array) -> bool:
    """Texts whose offsets go up over letters of one byte: seen at once, where Arrow looks at each text."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) or not len(column):
        return False
    _, places, letters = column.buffers()
    width = "<i4" if pa.types.is_string(column.type) else "<i8"
    if letters is None or places.size < (column.offset + len(column) + 1) * np.dtype(width).itemsize:
        return False
    offsets = np.frombuffer(places, width, len(column) + 1, column.offset * np.dtype(width).itemsize)
    if bool((offsets[1:] < offsets[:-1]).any()):
        return False
    used = np.frombuffer(letters, np.uint8)
    if offsets[0] < 0 or offsets[-1] > len(used):
        return False
    return bool(used[offsets[0] : offsets[-1]].max(initial=0) < _ASCII)
