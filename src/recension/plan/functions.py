"""Functions of payloads: are they written for one row or for a whole batch?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from recension.core.errors import SchemaError


def takes_rows(fn: Callable[[Any], Any], schema: pa.Schema, columns: pa.Schema) -> bool:
    """Tried on an empty batch: only what gives a batch back is taken to be written for batches.

    A function of one row may well survive being given a batch (``row["x"] or row["y"]``), but it does not
    give one back.

    >>> x = pa.schema([("x", pa.int64())])
    >>> takes_rows(lambda row: {"x": row["x"] or 1}, x, x), takes_rows(lambda batch: batch, x, x)
    (True, False)
    """
    if not callable(fn):
        raise SchemaError(f"map: {fn!r} is not a function")
    try:
        answer = fn(pa.RecordBatch.from_pylist([], schema=schema))
    except Exception:
        return True
    if not isinstance(answer, pa.RecordBatch | pa.Table):
        return True
    if set(answer.schema.names) != set(columns.names):
        raise SchemaError(
            f"map: the function gives the columns {answer.schema.names}, the schema says {columns.names}"
        )
    return False
