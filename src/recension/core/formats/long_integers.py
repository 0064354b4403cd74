"""Integers that a float would round, in columns whose later blocks may turn out to be floats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from recension.core.errors import FormatError
from recension.core.formats.nested import fields_of, is_list, items_of
from recension.core.formats.text import long_integer

Path = tuple[str, ...]


class LongIntegers:
    """Where such integers were seen: in which column, and where inside of it."""

    def __init__(self) -> None:
        self._seen: dict[Path, int] = {}

    def note(self, name: str, column: pa.Array) -> None:
        """Look at a column of integers, or of what has some inside."""
        for path, integers in _integers(column, (name,)):
            number = long_integer(integers)
            if number is not None:
                self._seen.setdefault(path, number)

    def refuse_among_floats(self, types: Mapping[str, pa.DataType], file: str) -> None:
        """Refuse those for which the whole file has a float in the end."""
        for path, number in self._seen.items():
            if pa.types.is_floating(_type_at(types[path[0]], path[1:])):
                raise FormatError(
                    f"column {path[0]}: {number} among numbers with fractions would be rounded; "
                    "declare the column's type",
                    file=file,
                )


def has_float(kind: pa.DataType) -> bool:
    """Is it a float, or is one inside of it?"""
    if pa.types.is_struct(kind) or is_list(kind):
        return any(has_float(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _integers(column: pa.Array, path: Path) -> Iterator[tuple[Path, pa.Array]]:
    if pa.types.is_integer(column.type):
        yield path, column
    elif is_list(column.type):
        yield from _integers(items_of(column), (*path, ""))
    elif pa.types.is_struct(column.type):
        parts = fields_of(column, column.type)
        for field, part in zip(column.type, parts, strict=True):
            yield from _integers(part, (*path, field.name))


def _type_at(kind: pa.DataType, path: Path) -> pa.DataType:
    for name in path:
        kind = kind.value_type if is_list(kind) else kind.field(name).type
    return kind
