"""Spark's types as Arrow's: what its versions call differently is said here, once."""

from __future__ import annotations

from inspect import signature
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas import types
from pyspark.sql.types import DataType, StructType

# Before it could be named, the time zone of instants was always this one.
_ZONE: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in signature(types.to_arrow_type).parameters else {}
)


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type of a column; instants are in UTC."""
    return types.to_arrow_type(kind, **_ZONE)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The same for all columns."""
    return types.to_arrow_schema(schema, **_ZONE)
