"""Functions of payloads: are they written for one row or for a whole batch?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from recension.core.errors import SchemaError


def takes_rows(fn: Callable[[Any], Any], schema: pa.Schema, columns: pa.Schema) -> bool:
    """Tried on an empty batch: what gives a batch back, or arrays by name, is written for batches.

    >>> x = pa.schema([("x", pa.int64())])
    >>> takes_rows(lambda row: {"x": row["x"] + 1}, x, x), takes_rows(lambda batch: batch, x, x)
    (True, False)
    """
    if not callable(fn):
        raise SchemaError(f"map: {fn!r} is not a function")
    try:
        answer = fn(pa.RecordBatch.from_pylist([], schema=schema))
    except Exception:
        return True
    if isinstance(answer, pa.RecordBatch | pa.Table):
        _require_names(answer.schema.names, columns)
        return False
    return not (isinstance(answer, Mapping) and all(_is_array(value) for value in answer.values()))


def _is_array(value: Any) -> bool:
    return isinstance(value, pa.Array | pa.ChunkedArray | np.ndarray)


def _require_names(names: list[str], columns: pa.Schema) -> None:
    if set(names) != set(columns.names):
        raise SchemaError(f"map: the function gives the columns {names}, the schema says {columns.names}")
