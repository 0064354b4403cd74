"""Which Spark type carries an Arrow type, and the way back.

A carrier holds every value of the type it carries; a type that has none is refused by name. Payloads are
cast to their own types wherever the local engine's code runs, and back to carriers after it.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type

from recension.core.errors import SchemaError
from recension.core.formats.json_schema import is_list
from recension.plan.schemas import type_name

# Before it could be named, the time zone of instants was always this one.
_ZONE: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}
)

_EXACT: Final[dict[pa.DataType, spark.DataType]] = {
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.uint8(): spark.ShortType(),
    pa.uint16(): spark.IntegerType(),
    pa.uint32(): spark.LongType(),
    pa.uint64(): spark.DecimalType(20, 0),
    pa.float16(): spark.FloatType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.large_string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.large_binary(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
    pa.null(): spark.StringType(),
}


def carrier(kind: pa.DataType, column: str) -> spark.DataType:
    """The Spark type that holds values of an Arrow type."""
    if kind in _EXACT:
        return _EXACT[kind]
    for is_kind, make in _PARTS:
        if is_kind(kind) and (found := make(kind, column)) is not None:
            return found
    raise SchemaError(f"column {column} is {type_name(kind)}, which Spark cannot hold; cast it first")


def _timestamp(kind: pa.DataType, column: str) -> spark.DataType | None:
    if kind.unit == "ns":
        return None
    return spark.TimestampNTZType() if kind.tz is None else spark.TimestampType()


def _struct(kind: pa.DataType, column: str) -> spark.DataType:
    return spark.StructType([spark.StructField(f.name, carrier(f.type, column)) for f in kind])


def _decimal(kind: pa.DataType, column: str) -> spark.DataType | None:
    fits = kind.precision <= 38 and 0 <= kind.scale <= kind.precision
    return spark.DecimalType(kind.precision, kind.scale) if fits else None


_PARTS: Final[list[tuple[Callable[[pa.DataType], bool], Callable[..., spark.DataType | None]]]] = [
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_fixed_size_binary, lambda kind, column: spark.BinaryType()),
    (pa.types.is_struct, _struct),
    (is_list, lambda kind, column: spark.ArrayType(carrier(kind.value_type, column))),
    (
        pa.types.is_map,
        lambda kind, column: spark.MapType(carrier(kind.key_type, column), carrier(kind.item_type, column)),
    ),
]


def carried_schema(schema: pa.Schema, prefix: str = "c") -> spark.StructType:
    """Payload columns by position, as Spark holds them."""
    return spark.StructType(
        [spark.StructField(f"{prefix}{i}", carrier(f.type, f.name)) for i, f in enumerate(schema)]
    )


def arrow_carrier(kind: pa.DataType, column: str) -> pa.DataType:
    """The Arrow type under which a carrier comes out of Spark and goes in again."""
    return arrow_type(carrier(kind, column))


def arrow_type(kind: spark.DataType) -> pa.DataType:
    """The Arrow type of a column of Spark's; instants are in UTC."""
    return to_arrow_type(kind, **_ZONE)


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """The same for all columns."""
    return to_arrow_schema(schema, **_ZONE)
