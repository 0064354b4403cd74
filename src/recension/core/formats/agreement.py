"""What the files of one stream must agree on: payload, the kind of time, and being a stream or a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from recension.core.errors import FormatError
from recension.core.formats.columns import CONTROL, Layout
from recension.core.formats.json_parse import unified
from recension.core.formats.rows import Rows


@dataclass(frozen=True, slots=True)
class StreamFile:
    """A file of a stream, its rows and what its columns mean."""

    name: str
    rows: Rows
    layout: Layout

    def wanted(self, payload: pa.Schema) -> pa.Schema:
        """The columns to read: the control columns there are, and the payload."""
        control = {*CONTROL, self.layout.times.vs, self.layout.times.ve}
        there = self.rows.schema
        fields = [f for f in there if f.name in control]
        return pa.schema([*fields, *(f for f in payload if f.name in there.names or not self.rows.is_typed)])


def agreed_payload(files: Sequence[StreamFile], declared: pa.Schema | None) -> pa.Schema:
    """The payload of all files: what the user declared, or what they have in common."""
    files = [file for file in files if file.rows.schema.names]
    for file in files[1:]:
        _refuse_mixture(files[0], file)
    names = list(dict.fromkeys(name for file in files for name in file.layout.payload.names))
    if declared is not None:
        names = declared.names
    for file in files:
        missing = [name for name in names if name not in file.layout.payload.names]
        if missing and not file.rows.may_lack_columns:
            raise FormatError(f"no column {missing[0]}", file=file.name)
    if declared is not None:
        return pa.schema([pa.field(f.name, f.type) for f in declared])
    return pa.schema([pa.field(name, _agreed_type(name, files)) for name in names])


def _refuse_mixture(first: StreamFile, other: StreamFile) -> None:
    if other.layout.is_table != first.layout.is_table:
        raise FormatError(f"one of this and {first.name} has a column _kind", file=other.name)
    if other.layout.has_order != first.layout.has_order:
        raise FormatError(f"one of this and {first.name} has the columns _batch and _seq", file=other.name)
    kinds = [file.layout.time_type for file in (first, other)]
    if pa.types.is_integer(kinds[0]) != pa.types.is_integer(kinds[1]):
        raise FormatError(f"times are {kinds[1]} here and {kinds[0]} in {first.name}", file=other.name)


def _agreed_type(name: str, files: Sequence[StreamFile]) -> pa.DataType:
    having = [file for file in files if name in file.layout.payload.names]
    first, kind = having[0], having[0].layout.payload.field(name).type
    for file in having[1:]:
        other = file.layout.payload.field(name).type
        if other == kind:
            continue
        if file.rows.is_typed and first.rows.is_typed:
            raise FormatError(f"column {name} is {other} here and {kind} in {first.name}", file=file.name)
        try:
            # Types read off a text are guesses, and may widen.
            kind = unified(kind, other)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            reason = f"column {name} is {other} here and {kind} in {first.name}"
            raise FormatError(reason, file=file.name) from None
    return kind
