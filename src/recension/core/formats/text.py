"""Values as text and back, a column at a time: what CSV cells and JSON strings have in common.

Numbers are written so that they read back to the same value, instants as ISO 8601 in UTC. Years beyond
1 to 9999 have no such form: a payload that holds one is refused, a control column falls back to ticks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from io import BufferedIOBase
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.errors import TimeError
from recension.core.formats.columns import TIMES, TimeColumns, is_text
from recension.core.formats.files import convert_column, create_bytes
from recension.core.ticks import from_counts
from recension.core.time_kind import AWARE, NAIVE, TICKS, TimeKind, merge_kinds

_DAY: Final = 86_400
_YEAR_1: Final = -719_162 * _DAY
_YEAR_10000: Final = 2_932_897 * _DAY
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
# A zone can only follow a time of day; "2024-01-01" ends in a day, not in an offset.
_ZONED: Final = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_FIRST: Final = 32
_INTEGER: Final = r"^-?\d+$"
_IN_INTEGERS: Final = np.isin(np.arange(256), list(b"-0123456789"))
# 007, +49 and 0x1F are names: as numbers they would equal 7, 49 and 31.
_NAME_IN_DIGITS: Final = r"^(-?0\d+|\+\d+|0[xX].*)$"
# Sixteen digits may be more than a float can tell apart.
_LONG_INTEGER: Final = r"^-?\d{16,}$"
_EXACT_IN_FLOAT: Final = 1 << 53


class TextSink(ABC):
    """A file of one line a row, written a column at a time: no Python value per row."""

    def __init__(self, path: Path, schema: pa.Schema, file: BufferedIOBase | None = None) -> None:
        self._file = file or create_bytes(path)
        self._path, self._names, self._row = path, schema.names, 1

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        if not len(batch):
            return
        self._file.write("\n".join(self.encode_rows(batch).to_pylist()).encode() + b"\n")
        self._row += len(batch)

    def encode_rows(self, batch: pa.RecordBatch) -> pa.Array:
        """The rows as texts, a line each."""
        columns = [
            convert_column(
                column,
                self.encode_times if name in TIMES else self.encode_values,
                name=name,
                file=str(self._path),
                first_row=self._row,
            )
            for name, column in zip(self._names, batch.columns, strict=True)
        ]
        return self.join_columns(columns)

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    @abstractmethod
    def encode_times(self, column: pa.Array) -> pa.Array:
        """A control column of times as texts."""

    @abstractmethod
    def encode_values(self, column: pa.Array) -> pa.Array:
        """Any other column as texts."""

    @abstractmethod
    def join_columns(self, columns: list[pa.Array]) -> pa.Array:
        """The texts of all columns as one line a row."""


def is_scalar(kind: pa.DataType) -> bool:
    """Has the type a form as text?"""
    return bool(
        is_text(kind)
        or pa.types.is_null(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))
    )


def to_text(column: pa.Array) -> pa.Array:
    """A string column; nulls stay nulls. Raises ``ArrowInvalid`` for an instant that has no text."""
    kind = column.type
    if pa.types.is_floating(kind):
        # A whole number keeps a point, so that a reader without a schema sees a float again.
        return pc.replace_substring_regex(column.cast(pa.string()), pattern=r"^(-?\d+)$", replacement=r"\1.0")
    if pa.types.is_duration(kind):
        return column.cast(pa.int64()).cast(pa.string())
    if pa.types.is_timestamp(kind):
        scale = _PER_SECOND[kind.unit]
        # Arrow reads whole seconds first: the first, incomplete second of int64 nanoseconds overflows.
        low = max(_YEAR_1 * scale, -(2**63 // scale) * scale)
        _refuse_outside(column.view(pa.int64()), low, _YEAR_10000 * scale, kind)
        # In UTC: a text holds an offset but no zone, and Arrow writes no seconds of an offset (before 1972).
        text = column.cast(pa.timestamp(kind.unit, "UTC") if kind.tz else kind).cast(pa.string())
        return pc.replace_substring(text, " ", "T")
    if pa.types.is_date(kind):
        column = column.cast(pa.date32())
        _refuse_outside(column.view(pa.int32()), _YEAR_1 // _DAY, _YEAR_10000 // _DAY, kind)
    return column.cast(pa.string())


def _refuse_outside(raw: pa.Array, low: int, high: int, kind: pa.DataType) -> None:
    """Beyond the four-digit years Arrow cannot print a value."""
    least, greatest = pc.min_max(raw).as_py().values()
    if least is not None and not low <= least <= greatest < high:
        raise pa.ArrowInvalid(f"a {kind} outside the years 1 to 9999 cannot be written as text")


def from_text(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The inverse of `to_text`. Raises ``ArrowInvalid`` for text that is no value of that type."""
    if is_text(kind):
        return column.cast(kind)
    column = _drop_empty(column)
    if pa.types.is_timestamp(kind):
        zoned = pc.match_substring_regex(column, _ZONED)
        if kind.tz is None and bool(pc.any(zoned).as_py()):
            found = column.filter(zoned)[0].as_py()
            raise pa.ArrowInvalid(f"{found!r} has a time zone, and {kind} has none")
        return _parse_instants(column, kind)
    if pa.types.is_time(kind):
        moment = pa.timestamp(kind.unit)
        return pc.binary_join_element_wise("1970-01-01", column, " ").cast(moment).cast(kind)
    if pa.types.is_duration(kind):
        return column.cast(pa.int64()).cast(kind)
    if pa.types.is_null(kind):
        if column.null_count < len(column):
            raise pa.ArrowInvalid("a value in a column that holds none")
        return pa.nulls(len(column))
    return column.cast(kind)


def _drop_empty(column: pa.Array) -> pa.Array:
    """Nulls for empty texts: other writers quote everything, and leave ``""`` where there is no number."""
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def _parse_instants(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Timestamps with or without a zone, also mixed; those without are UTC."""
    zoned = pc.match_substring_regex(column, _ZONED)
    nothing = pa.scalar(None, pa.string())
    aware = pc.if_else(zoned, column, nothing).cast(pa.timestamp(kind.unit, "UTC"))
    naive = pc.if_else(zoned, nothing, column).cast(pa.timestamp(kind.unit))
    return pc.coalesce(aware.view(pa.int64()), naive.view(pa.int64())).view(kind)


def ticks_from_text(column: pa.Array, kind: TimeKind, times: TimeColumns | None = None) -> pa.Array:
    """Ticks from cells that hold integers or ISO 8601 timestamps; those of another kind are refused.

    ``times`` may say what integers count, and that those are in UTC which show no zone.
    """
    unit, is_utc = (None, False) if times is None else (times.unit, times.declared == AWARE)
    if (kind == TICKS or unit) and (ticks := _parse_integers(column)) is not None:
        return ticks if unit is None else from_counts(ticks, unit)
    column = _drop_empty(column)
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.int64())
    counted = is_integer_text(column)
    nothing = pa.scalar(None, pa.string())
    whole = pc.if_else(counted, column, nothing).cast(pa.int64())
    if unit is not None:
        whole = from_counts(whole, unit)
    elif kind != TICKS:
        _refuse(TICKS, kind, column, has_timestamp(whole))
    if bool(pc.all(counted).as_py()):
        return whole
    spelled = pc.if_else(counted, nothing, column)
    moments = _parse_instants(spelled, NAIVE)
    zoned = pc.match_substring_regex(spelled, _ZONED)
    _refuse(AWARE, kind, spelled, zoned)
    if not is_utc:
        _refuse(NAIVE, kind, spelled, pc.invert(zoned))
    return pc.coalesce(whole, moments.view(pa.int64()))


def has_timestamp(ticks: pa.Array) -> pa.Array:
    """Which ticks lie in the years 1 to 9999; the others are written as ticks among timestamps too."""
    scale = _PER_SECOND["us"]
    return pc.and_(pc.greater_equal(ticks, _YEAR_1 * scale), pc.less(ticks, _YEAR_10000 * scale))


def _refuse(kind: pa.DataType, wanted: TimeKind, column: pa.Array, which: pa.Array) -> None:
    """Refuse cells of a kind in a column of another; ``which`` are of that kind."""
    try:
        merge_kinds(wanted, kind)
    except TimeError as why:
        if len(cells := column.filter(which)):
            raise TimeError(f"{cells[0].as_py()!r}: {why}") from None


def ticks_to_text(column: pa.Array) -> pa.Array:
    """A control column as ISO 8601; what lies outside the years 1 to 9999 as a number of ticks."""
    if not pa.types.is_timestamp(column.type):
        return column.cast(pa.string())
    raw = column.view(pa.int64())
    inside = has_timestamp(raw)
    moments = pc.if_else(inside, raw, pa.scalar(0, pa.int64())).view(column.type)
    return pc.if_else(inside, to_text(moments), raw.cast(pa.string()))


def _parse_integers(column: pa.Array) -> pa.Array | None:
    """The numbers of cells that all hold whole numbers, or nothing; None if one has anything else.

    Faster than to match every cell. Of digits and signs alone, Arrow takes what `is_integer_text` does.
    """
    if not pa.types.is_string(column.type):
        return None
    _, offsets, text = column.buffers()
    if text is None or not len(column):
        return None
    first, last = np.frombuffer(offsets, np.int32, column.offset + len(column) + 1)[[column.offset, -1]]
    letters = np.frombuffer(text, np.uint8)[first:last]
    if not bool(_IN_INTEGERS[letters].all()):
        return None
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def is_integer_text(column: pa.Array) -> pa.Array:
    """Which cells hold a whole number."""
    return pc.match_substring_regex(column, _INTEGER)


def time_type_of(column: pa.Array) -> pa.DataType:
    """The time type that a text column shows: that of the first cell that could have been of either.

    Cells that do not go with it are refused when they are read, with their row.
    """
    for cells in (column.slice(0, _FIRST), column):
        if not pa.types.is_null(found := _time_type_of(_drop_empty(cells).drop_null())):
            return found
    return pa.null()


def _time_type_of(cells: pa.Array) -> pa.DataType:
    counted = is_integer_text(cells)
    try:
        ticks = pc.if_else(counted, cells, pa.scalar(None, pa.string())).cast(pa.int64())
    except pa.ArrowInvalid:  # beyond 64 bits, which is refused when it is read
        return pa.int64()
    first = pc.index(pc.or_(pc.invert(counted), pc.fill_null(has_timestamp(ticks), False)), True).as_py()
    if first < 0:
        return pa.null()
    if counted[first].as_py():
        return pa.int64()
    zoned = pc.match_substring_regex(cells.slice(first, 1), _ZONED)[0].as_py()
    return AWARE if zoned else NAIVE


def guess_type(column: pa.Array) -> pa.DataType:
    """The narrowest type that holds every cell of a text column without loss."""
    present = column.drop_null()
    cells = present.filter(pc.not_equal(present, ""))
    if not len(cells):
        return pa.string() if len(present) else pa.null()
    if bool(pc.any(pc.match_substring_regex(cells, _NAME_IN_DIGITS)).as_py()):
        return pa.string()
    for find_kind in (pa.int64, pa.float64, pa.bool_, pa.date32, lambda: time_type_of(cells)):
        kind = find_kind()
        # A column of names fails at its first cells; Arrow would go on and describe every failure.
        if _holds(kind, cells.slice(0, _FIRST)) and _holds(kind, cells) and _keeps_apart(kind, cells):
            return kind
    return pa.string()


def has_long_integers(column: pa.Array) -> bool:
    """Are there integers in a text column that a float would round?"""
    cells = column.filter(pc.match_substring_regex(column, _LONG_INTEGER))
    try:
        return bool(len(cells)) and long_integer(cells.cast(pa.int64())) is not None
    except pa.ArrowInvalid:  # beyond 64 bits
        return True


def long_integer(column: pa.Array) -> int | None:
    """A number of an integer column that a float would round, if there is one."""
    least, greatest = pc.min_max(column).as_py().values()
    return next((n for n in (greatest, least) if n is not None and abs(n) > _EXACT_IN_FLOAT), None)


def _keeps_apart(kind: pa.DataType, cells: pa.Array) -> bool:
    """Are values that are written differently still different, where the type holds them all?"""
    if pa.types.is_boolean(kind):  # Arrow takes 1, True and TRUE for true
        return bool(pc.all(pc.is_in(cells, pa.array(["true", "false"]))).as_py())
    return not (pa.types.is_floating(kind) and has_long_integers(cells))


def _holds(kind: pa.DataType, cells: pa.Array) -> bool:
    try:
        from_text(cells, kind)
    except pa.ArrowInvalid:
        return False
    return True


def wider_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type for a column whose parts were guessed differently."""
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if {left, right} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_temporal(left) and pa.types.is_temporal(right):
        return pa.timestamp("us", getattr(left, "tz", None) or getattr(right, "tz", None))
    return pa.string()


def wider_time(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type of a time column whose parts differ: the first says it, others are refused when read."""
    return right if pa.types.is_null(left) else left


def unify_time_columns(types: Mapping[str, pa.DataType], times: TimeColumns) -> pa.Schema:
    """Columns whose times are all of one type: a text file shows the type only cell by cell."""
    common = pa.null()
    for name in times.all:
        common = wider_time(common, types.get(name, pa.null()))
    if common == NAIVE and times.declared == AWARE:
        common = AWARE  # a text that shows no zone is in UTC, if its times are said to be
    return pa.schema([pa.field(n, common if n in times.all else kind) for n, kind in types.items()])
