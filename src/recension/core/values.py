"""Columns as Python values, for people: where Python has no such value (a year 10000), as text."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

_NO_SUCH_VALUE: Final = (ValueError, ArithmeticError, KeyError)


def values_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column.

    >>> values_of(pa.array([0, 2**60], pa.timestamp("us")))
    [datetime.datetime(1970, 1, 1, 0, 0), 'timestamp[us] 1152921504606846976']
    """
    try:
        values: list[Any] = column.to_pylist()
    except _NO_SUCH_VALUE:
        values = [_value(scalar) for scalar in column]
    return values


def rows_of(payload: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """The rows of a payload by the names of its columns."""
    columns = [values_of(column) for column in payload.columns]
    return [dict(zip(payload.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except _NO_SUCH_VALUE:
        raw = getattr(scalar, "value", None)
        return f"{scalar.type} {raw}" if isinstance(raw, int) else f"a value of {scalar.type}"
