"""The columns of a stream file: which of them control time and order, and which are the payload.

A row's number counts data rows from 1 (a CSV header and blank lines are not data), in every format.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

import pyarrow as pa

from recension.core.errors import FormatError, TimeError, suggest_name
from recension.core.ticks import TICKS_PER, TimeUnit, is_time
from recension.core.time_kind import AWARE, TICKS, TimeKind, kind_of_column, merge_kinds

KIND: Final = "_kind"
VS: Final = "_vs"
VE: Final = "_ve"
NEW_VE: Final = "_new_ve"
COUNT: Final = "_count"
BATCH: Final = "_batch"
SEQ: Final = "_seq"
RUN: Final = "_run"
_SCHEMAS: Final = 256  # as many layouts are remembered: a feed sends the same columns again and again
_DIGITS: Final = {32: 9, 64: 18, 128: 38, 256: 76}
MOST_COLUMNS: Final = 10_000
CONTROL: Final = (KIND, VS, VE, NEW_VE, COUNT, RUN, BATCH, SEQ)
TIMES: Final = (VS, VE, NEW_VE)
FIXED_TYPES: Final = {
    KIND: pa.string(),
    COUNT: pa.int64(),
    RUN: pa.string(),
    BATCH: pa.int64(),
    SEQ: pa.int64(),
}


@dataclass(frozen=True, slots=True)
class TimeColumns:
    """The columns that hold lifetimes: ours, or the user's own in a plain table."""

    start: str | None = None
    end: str | None = None
    is_timeless: bool = False
    """There are none: every row is true for ever."""
    shown: tuple[str, ...] = ()
    """The user's own that are part of the payload as well: the source's schema has them."""
    declared: TimeKind = None
    """What kind they are, if their owner says it."""
    unit: TimeUnit | None = None
    """What integers count since 1970, if their owner says it: then they are instants."""
    arrival: str | None = None
    """The column that says when a row arrived; it is no part of the payload."""

    @staticmethod
    def of(
        start: str | None,
        end: str | None,
        payload: pa.Schema | None,
        declared: TimeKind = None,
        unit: TimeUnit | None = None,
    ) -> TimeColumns:
        """The user's own columns, of which the payload may have some; these may say what kind they are."""
        names = () if payload is None else payload.names
        shown = tuple(name for name in names if name in (start, end))
        if declared is None and payload is not None:
            declared = next((kind_of_column(payload.field(name).type) for name in shown), None)
        return TimeColumns(start, end, shown=shown, declared=declared, unit=unit)

    @property
    def ours(self) -> TimeColumns:
        """The same in a stream or a history, which has our columns."""
        return TimeColumns(declared=self.declared, unit=self.unit, arrival=self.arrival)

    def found_in(self, names: Collection[str]) -> TimeColumns:
        """Those of rows with these columns: a stream or a history has ours, another table the user's."""
        if self.is_timeless or self.start is None:
            return self
        own = {*names}.difference(self.shown)
        is_history = self.vs not in own and {VS, VE} <= own
        return self.ours if KIND in names or is_history else self

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


def kind_and_unit(times: str | pa.DataType | None) -> tuple[TimeKind, TimeUnit | None]:
    """What is said of times: their kind, and what integers count since 1970. Then they are instants."""
    if isinstance(times, str):
        if (unit := next((unit for unit in TICKS_PER if unit == times), None)) is not None:
            return AWARE, unit
        if times != "ticks":
            raise TimeError(f"times={times!r}: it is 's', 'ms', 'us' or 'ticks', or a type")
        return TICKS, None
    return None if times is None else kind_of_column(times), None


@dataclass(frozen=True, slots=True)
class Layout:
    """What the columns of one file mean."""

    payload: pa.Schema
    times: TimeColumns
    kind: TimeKind
    is_table: bool
    has_order: bool

    @property
    def time_type(self) -> pa.DataType:
        """The type in which times are given back: int64, or a microsecond timestamp."""
        return TICKS if self.kind is None else self.kind

    @property
    def is_points(self) -> bool:
        """A plain table whose user named a start and no end: each row is true for one tick."""
        return self.is_table and self.times.start is not None and self.times.end is None


# What pandas calls an index without a name; one with a name is a column like others.
_PANDAS_INDEX: Final = re.compile(r"__index_level_\d+__")


@lru_cache(_SCHEMAS)
def layout_of(schema: pa.Schema, times: TimeColumns, file: str) -> Layout:
    """The meaning of a file's columns, or an error that names the one that is wrong.

    The index of a pandas frame, which pandas writes beside its columns, means nothing.
    """
    check_names(schema.names, file)
    schema = pa.schema([field for field in schema if _PANDAS_INDEX.fullmatch(field.name) is None])
    # A file without columns (JSON Lines of no lines) is a stream of no elements.
    is_table = times.is_timeless or (bool(schema.names) and KIND not in schema.names)
    control = set() if times.is_timeless else {*CONTROL, times.vs, times.ve}
    hidden = ({times.arrival} | control) - set(times.shown)
    if times.is_timeless:
        _refuse_control(schema, file)
    elif schema.names:
        _check_times(schema, times, is_table, file)
        _check_arrival(schema, times.arrival, is_table, file)
        _check_control(schema, is_table, file)
    for field in schema:
        if field.name.startswith("_") and field.name not in control:
            raise FormatError(f"column {field.name}: names that start with _ are reserved", file=file)
        if is_exotic(field.type):
            raise FormatError(f"column {field.name}: type {field.type} is not supported", file=file)
        for part in parts_of(field.type):
            _check_part(part, field.name, file)
    payload = pa.schema([pa.field(f.name, plain_type(f.type)) for f in schema if f.name not in hidden])
    kind = None if times.is_timeless else _kind_of_times(schema, times, file)
    return Layout(payload, times, kind, is_table, BATCH in schema.names)


def require_readable(schema: pa.Schema) -> pa.Schema:
    """A schema from a file, or an error if one of its names, those of inner fields included, is not UTF-8."""
    for part in (part for kind in schema.types for part in parts_of(kind)):
        _ = [part.field(i).name for i in range(part.num_fields)], getattr(part, "tz", None)
    _ = schema.names
    return schema.remove_metadata()


def plain_type(kind: pa.DataType) -> pa.DataType:
    """A type without its encoding: a dictionary of strings holds strings."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def neutral_type(kind: pa.DataType) -> pa.DataType:
    """A type without what changes none of its values: the zone of instants, how long a text may be."""
    t = pa.types
    if t.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if t.is_large_string(kind):
        return pa.string()
    if t.is_large_binary(kind):
        return pa.binary()
    if t.is_list(kind) or t.is_large_list(kind):
        return pa.list_(_neutral_field(kind.value_field))
    if t.is_struct(kind):
        return pa.struct([_neutral_field(field) for field in kind])
    if t.is_map(kind):
        return pa.map_(_neutral_field(kind.key_field), _neutral_field(kind.item_field), kind.keys_sorted)
    return plain_type(kind)


def _neutral_field(field: pa.Field) -> pa.Field:
    return field.with_type(neutral_type(field.type))


def neutral_schema(schema: pa.Schema) -> pa.Schema:
    """The same for all columns."""
    return pa.schema([_neutral_field(field) for field in schema], schema.metadata)


def unify_types(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type that holds values of both; ``ArrowTypeError`` if there is none."""
    if left == right:
        return left
    schemas = [pa.schema([("", left)]), pa.schema([("", right)])]
    return pa.unify_schemas(schemas, promote_options="permissive").field(0).type


def is_exotic(kind: pa.DataType) -> bool:
    """Is there a type, at any depth, that Arrow itself can hardly compute with?"""
    unusual = (
        pa.types.is_union,
        pa.types.is_run_end_encoded,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
        pa.types.is_interval,
    )
    if any(check(part) for part in parts_of(kind) for check in (*unusual, _has_odd_scale)):
        return True
    # A column of views is unpacked when it is read; Arrow cannot take rows of lists of them.
    views = (pa.types.is_string_view, pa.types.is_binary_view)
    return any(check(part) for part in parts_of(kind) if part is not kind for check in views)


def _has_odd_scale(kind: pa.DataType) -> bool:
    """A decimal whose scale is so large that Arrow cannot print its values."""
    return bool(pa.types.is_decimal(kind)) and abs(kind.scale) > _DIGITS[kind.bit_width]


def parts_of(kind: pa.DataType) -> Iterator[pa.DataType]:
    """A type and all types inside it."""
    waiting = [kind]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, pa.BaseExtensionType):
            waiting.append(part.storage_type)
        elif pa.types.is_dictionary(part):
            waiting.append(part.value_type)
        else:
            waiting += [part.field(i).type for i in range(part.num_fields)]


def _check_part(kind: pa.DataType, column: str, file: str) -> None:
    """Refuse a type, or one inside another, that Arrow accepts but that nothing can be computed with."""
    if pa.types.is_timestamp(kind) and kind.tz is not None and not _is_zone(kind.tz):
        raise FormatError(f"column {column}: the time zone {kind.tz!r} is not known", file=file)
    if pa.types.is_struct(kind) and len({field.name for field in kind}) < kind.num_fields:
        raise FormatError(f"column {column}: {kind} has a field twice", file=file)


@cache
def _is_zone(name: str) -> bool:
    try:
        pa.lib.string_to_tzinfo(name)
    except (pa.ArrowException, ValueError, KeyError, OSError):
        return False
    return True


def refuse_reserved(schema: pa.Schema) -> None:
    """Refuse payload columns with the names of control columns."""
    for name in schema.names:
        if name.startswith("_"):
            raise FormatError(f"payload column {name}: the name is reserved")
    check_names(schema.names, None)


def describe_missing_column(name: str, there: Sequence[str]) -> str:
    """That a column is missing: with the nearest name, and all there are."""
    return f"no column {name}{suggest_name(name, there)}; there are {', '.join(there) or 'none'}"


def describe_missing(wanted: pa.Schema, there: pa.Schema) -> str | None:
    """That a column, or a field of a struct, is wanted and not there; None if all are there."""
    for field in wanted:
        at = there.get_field_index(field.name)
        if at < 0:
            return describe_missing_column(field.name, there.names)
        if (reason := _describe_missing_field(field.type, there.field(at).type)) is not None:
            return f"column {field.name}: {reason}"
    return None


def _describe_missing_field(wanted: pa.DataType, there: pa.DataType) -> str | None:
    """The same inside a type; Arrow's cast would make nulls of it. Other differences are for the cast."""
    if pa.types.is_struct(wanted) and pa.types.is_struct(there):
        names = [field.name for field in there]
        for name in (field.name for field in wanted):
            if name not in names:
                return f"no field {name}{suggest_name(name, names)}; there are {', '.join(names) or 'none'}"
        inner = [(field.type, there.field(field.name).type) for field in wanted]
    elif pa.types.is_map(wanted) and pa.types.is_map(there):
        inner = [(wanted.key_type, there.key_type), (wanted.item_type, there.item_type)]
    elif all(hasattr(kind, "value_field") for kind in (wanted, there)):
        inner = [(wanted.value_type, there.value_type)]
    else:
        inner = []
    return next((reason for pair in inner if (reason := _describe_missing_field(*pair)) is not None), None)


def check_names(names: Sequence[str], file: str | None) -> None:
    """Refuse names that occur twice, and too many columns."""
    if len(names) > MOST_COLUMNS:
        raise FormatError(f"{len(names):,} columns; at most {MOST_COLUMNS:,} can be read", file=file)
    for twin in (name for name, times in Counter(names).items() if times > 1):
        raise FormatError(f"column {twin} is there twice", file=file)


def _refuse_control(schema: pa.Schema, file: str) -> None:
    for name in CONTROL:
        if name in schema.names:
            raise FormatError(
                f"column {name}: a table (rc.table) has rows without times; rc.source reads streams and "
                "histories",
                file=file,
            )


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


def _check_arrival(schema: pa.Schema, name: str | None, is_table: bool, file: str) -> None:
    """A plain table has the column; a stream or a history, whose rows nobody has loaded, need not."""
    if name is None:
        return
    if name not in schema.names:
        if is_table and not {VS, VE} <= set(schema.names):
            raise FormatError(f"no column {name}, which was named as the arrival", file=file)
        return
    kind = plain_type(schema.field(name).type)
    if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise FormatError(
            f"column {name} is {kind}; a time of arrival is a timestamp or a whole number", file=file
        )


def _check_control(schema: pa.Schema, is_table: bool, file: str) -> None:
    for name in (NEW_VE, COUNT):
        if is_table and name in schema.names:
            raise FormatError(f"column {name} without a column {KIND}", file=file)
    if (BATCH in schema.names) != (SEQ in schema.names):
        raise FormatError(f"columns {BATCH} and {SEQ} only make sense together", file=file)
    if RUN in schema.names and BATCH not in schema.names:
        raise FormatError(f"column {RUN} needs the columns {BATCH} and {SEQ}, which are missing", file=file)
    for field in schema:
        kind = plain_type(field.type)
        if field.name in (KIND, RUN) and not (is_text(kind) or pa.types.is_null(kind)):
            raise FormatError(f"column {field.name} is {field.type}; it must be a string", file=file)
        if field.name in (COUNT, BATCH, SEQ) and not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
            raise FormatError(f"column {field.name} is {field.type}; it must be int64", file=file)


def is_text(kind: pa.DataType) -> bool:
    """A string, however it is laid out."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _kind_of_times(schema: pa.Schema, times: TimeColumns, file: str) -> TimeKind:
    """The kind that all columns of times share."""
    fields = [schema.field(name) for name in times.all if name in schema.names]
    found: TimeKind = None
    for field in fields:
        if not is_time(field.type):
            # pandas makes floats of whole numbers where one is missing.
            advice = ": astype('Int64') if they are whole" if pa.types.is_floating(field.type) else ""
            reason = f"column {field.name} is {field.type}; a time is an int64 or a timestamp{advice}"
            raise FormatError(reason, file=file)
        try:
            kind = kind_of_column(field.type)
            found = merge_kinds(found, AWARE if kind == TICKS and times.unit is not None else kind)
        except TimeError as why:
            mix = ", ".join(f"{f.name} is {f.type}" for f in fields if not pa.types.is_null(f.type))
            raise FormatError(
                f"times are all integers or all timestamps of one kind, but {mix}: {why}", file=file
            ) from None
    return found
