"""The columns of a stream file: which of them play a part in time and order, which are the payload.

A row's number counts data rows from 1 (a CSV header and blank lines are not data), in every format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from recension.core.errors import FormatError
from recension.core.ticks import is_time

KIND: Final = "_kind"
VS: Final = "_vs"
VE: Final = "_ve"
NEW_VE: Final = "_new_ve"
COUNT: Final = "_count"
BATCH: Final = "_batch"
SEQ: Final = "_seq"
CONTROL: Final = (KIND, VS, VE, NEW_VE, COUNT, BATCH, SEQ)
TIMES: Final = (VS, VE, NEW_VE)


@dataclass(frozen=True, slots=True)
class TimeColumns:
    """The columns that hold lifetimes: ours, or the user's own in a plain table."""

    start: str | None = None
    end: str | None = None

    @property
    def vs(self) -> str:
        """The column of starts."""
        return self.start or VS

    @property
    def ve(self) -> str:
        """The column of ends."""
        return self.end or VE

    @property
    def all(self) -> tuple[str, ...]:
        """Every column that may hold a time."""
        return tuple(dict.fromkeys((self.vs, self.ve, NEW_VE)))


@dataclass(frozen=True, slots=True)
class Layout:
    """What the columns of one file mean."""

    payload: pa.Schema
    times: TimeColumns
    time_type: pa.DataType
    is_table: bool
    has_order: bool

    @property
    def is_points(self) -> bool:
        """A plain table whose user named a start and no end: each row is true for one tick."""
        return self.is_table and self.times.start is not None and self.times.end is None


def layout_of(schema: pa.Schema, times: TimeColumns, file: str) -> Layout:
    """The meaning of a file's columns, or an error that names the one that is wrong."""
    refuse_twins(schema.names, file)
    # A file without columns (JSON Lines of no lines) is a stream of no elements.
    is_table = bool(schema.names) and KIND not in schema.names
    control = {*CONTROL, times.vs, times.ve}
    if schema.names:
        _check_times(schema, times, is_table, file)
        _check_control(schema, is_table, file)
    for field in schema:
        if field.name.startswith("_") and field.name not in control:
            raise FormatError(f"column {field.name}: names that start with _ are reserved", file=file)
        if is_exotic(field.type):
            raise FormatError(f"column {field.name}: type {field.type} is not supported", file=file)
    payload = pa.schema([pa.field(f.name, plain_type(f.type)) for f in schema if f.name not in control])
    return Layout(payload, times, _time_type(schema, times, file), is_table, BATCH in schema.names)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """A type without its encoding: a dictionary of strings holds strings."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def is_exotic(kind: pa.DataType) -> bool:
    """Layouts that Arrow itself can hardly compute with."""
    unusual = (
        pa.types.is_union,
        pa.types.is_run_end_encoded,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
    )
    return any(check(kind) for check in unusual)


def refuse_reserved(schema: pa.Schema, times: TimeColumns) -> None:
    """A payload declared by the user or about to be written must keep clear of the control columns."""
    for name in schema.names:
        if name.startswith("_") or name in (times.start, times.end):
            raise FormatError(f"payload column {name}: the name is reserved")
    refuse_twins(schema.names, None)


def refuse_twins(names: Sequence[str], file: str | None) -> None:
    """Columns are told apart by their names."""
    if twin := next((name for i, name in enumerate(names) if name in names[:i]), None):
        raise FormatError(f"column {twin} is there twice", file=file)


def _check_times(schema: pa.Schema, times: TimeColumns, is_table: bool, file: str) -> None:
    for named, ours, role in ((times.start, VS, "start"), (times.end, VE, "end")):
        if named is not None and named not in schema.names:
            raise FormatError(f"no column {named}, which was named as the {role}", file=file)
        if named not in (None, ours) and ours in schema.names:
            raise FormatError(
                f"column {named} was named as the {role}, but there is a column {ours}", file=file
            )
    if times.vs == times.ve:
        raise FormatError(f"column {times.vs} cannot be both start and end", file=file)
    if is_table and times.vs not in schema.names:
        raise FormatError(
            "neither a _kind nor a _vs column; in a plain table name the column of starts", file=file
        )


def _check_control(schema: pa.Schema, is_table: bool, file: str) -> None:
    for name in (NEW_VE, COUNT):
        if is_table and name in schema.names:
            raise FormatError(f"column {name} without a column {KIND}", file=file)
    if (BATCH in schema.names) != (SEQ in schema.names):
        raise FormatError(f"columns {BATCH} and {SEQ} only make sense together", file=file)
    for field in schema:
        kind = plain_type(field.type)
        if field.name == KIND and not (is_text(kind) or pa.types.is_null(kind)):
            raise FormatError(f"column {KIND} is {field.type}; it must be a string", file=file)
        if field.name in (COUNT, BATCH, SEQ) and not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
            raise FormatError(f"column {field.name} is {field.type}; it must be int64", file=file)


def is_text(kind: pa.DataType) -> bool:
    """A string, however it is laid out."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _time_type(schema: pa.Schema, times: TimeColumns, file: str) -> pa.DataType:
    """The type in which times are given back: int64 or a microsecond timestamp."""
    fields = [schema.field(name) for name in times.all if name in schema.names]
    for field in fields:
        if not is_time(field.type):
            raise FormatError(
                f"column {field.name} is {field.type}; a time is an int64 or a timestamp", file=file
            )
    shown = [f for f in fields if not pa.types.is_null(f.type)]
    if len({pa.types.is_integer(f.type) for f in shown}) > 1:
        mix = ", ".join(f"{f.name} is {f.type}" for f in shown)
        raise FormatError(f"times are all integers or all timestamps, but {mix}", file=file)
    if not shown or pa.types.is_integer(shown[0].type):
        return pa.int64()
    return pa.timestamp("us", getattr(shown[0].type, "tz", None))
