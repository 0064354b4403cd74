"""Tables cut into chunks small enough to be stored one by one, and put together again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

_BYTES: Final = 2**21


def cut(name: str, table: pa.Table) -> dict[str, pa.Table]:
    """The table as chunks ``name.0``, ``name.1``, ... of about 2 MB."""
    if not table.num_columns:  # files do not keep rows of nothing
        return {f"{name}.0": table.schema.empty_table()}
    rows = max(1, table.num_rows * _BYTES // max(1, table.nbytes))
    starts = range(0, max(1, table.num_rows), rows)
    return {f"{name}.{i}": table.slice(start, rows) for i, start in enumerate(starts)}


def whole(name: str, chunks: Mapping[str, pa.Table]) -> pa.Table:
    """The table that was cut into these chunks."""
    parts: list[pa.Table] = []
    while (part := f"{name}.{len(parts)}") in chunks:
        parts.append(chunks[part])
    return pa.concat_tables(parts)
