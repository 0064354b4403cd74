"""What the files of one stream must agree on: payload, the kind of time, and being a stream or a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from recension.core.errors import FormatError, TimeError
from recension.core.formats.columns import CONTROL, Layout, lacking, no_column
from recension.core.formats.json_parse import unified
from recension.core.formats.rows import Rows
from recension.core.time_kind import OneKind


@dataclass(frozen=True, slots=True)
class StreamFile:
    """A file of a stream, its rows and what its columns mean."""

    name: str
    rows: Rows
    layout: Layout

    def wanted(self, payload: pa.Schema) -> pa.Schema:
        """The columns to read: the control columns there are, and the payload."""
        control = {*CONTROL, self.layout.times.vs, self.layout.times.ve}
        fields = [f for f in self.rows.schema if f.name in control]
        there = set(self.rows.schema.names)
        return pa.schema([*fields, *(f for f in payload if f.name in there or not self.rows.is_typed)])


def agreed_payload(files: Sequence[StreamFile], declared: pa.Schema | None) -> pa.Schema:
    """The payload of all files: what the user declared, or what they have in common."""
    files = [file for file in files if file.rows.schema.names]
    times = OneKind()
    for file in files:
        _refuse_mixture(files[0], file)
        _note_kind(times, file)
    names = list(dict.fromkeys(name for file in files for name in file.layout.payload.names))
    if declared is not None:
        names = declared.names
    for file in files:
        there = set(file.layout.payload.names)
        if file.rows.may_lack_columns:
            continue
        if missing := [name for name in names if name not in there]:
            raise FormatError(no_column(missing[0], file.layout.payload.names), file=file.name)
        if declared is not None and (reason := lacking(declared, file.layout.payload)) is not None:
            raise FormatError(reason, file=file.name)
    if declared is not None:
        return pa.schema([pa.field(f.name, f.type) for f in declared])
    return pa.schema([pa.field(name, _agreed_type(name, files)) for name in names])


def _refuse_mixture(first: StreamFile, other: StreamFile) -> None:
    if other.layout.is_table != first.layout.is_table:
        raise FormatError(f"one of this and {first.name} has a column _kind", file=other.name)
    if other.layout.has_order != first.layout.has_order:
        raise FormatError(f"one of this and {first.name} has the columns _batch and _seq", file=other.name)


def _note_kind(times: OneKind, file: StreamFile) -> None:
    try:
        times.note(file.layout.kind, file.name)
    except TimeError as why:
        raise FormatError(str(why).removeprefix(f"{file.name}: "), file=file.name) from None


def _agreed_type(name: str, files: Sequence[StreamFile]) -> pa.DataType:
    having = [file for file in files if file.layout.payload.get_field_index(name) >= 0]
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
