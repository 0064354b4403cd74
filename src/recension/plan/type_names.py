"""Arrow types by the names people write: ``float64``, not ``double``."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_WRITTEN: Final = {"halffloat": "float16", "float": "float32", "double": "float64"}


def type_name(kind: pa.DataType) -> str:
    """The name of a type, as a schema would have it.

    >>> type_name(pa.float64()), type_name(pa.timestamp("us"))
    ('float64', 'timestamp[us]')
    """
    return _WRITTEN.get(str(kind), str(kind))


def columns_in_words(schema: pa.Schema) -> str:
    """The columns with their types.

    >>> columns_in_words(pa.schema([("user", pa.string()), ("bytes", pa.float64())]))
    'user string, bytes float64'
    """
    return ", ".join(f"{field.name} {type_name(field.type)}" for field in schema) or "none"
