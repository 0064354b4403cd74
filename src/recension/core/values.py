"""Python values as a column, none of them changed, and a column as Python values.

By itself Arrow cuts off in silence what does not fit: it makes 1 of 1.9 in a column of integers, drops the
time of day of a date and the zone of a datetime, and reads null where a struct has no such field. All of
these are refused here. Where Python has no such value (a year 10000), the way back gives a text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.casts import as_decimals, cast_parts, floats_as_decimals, refuse_wrapped_decimals
from recension.core.errors import SchemaError, suggest_name

MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What Arrow, and functions here, raise for values that are not of the type."""

_Loss: TypeAlias = Callable[[Any, pa.DataType], str | None]
# By the number of a type, what `_loss_of` gives for it.
_LOSSES: Final[dict[int, tuple[_Loss | None, set[type]]]] = {}

_NO_SUCH_VALUE: Final = (ValueError, ArithmeticError, KeyError)
_NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_IS_LIST: Final = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def exact_array(values: Sequence[Any], kind: pa.DataType, *, may_lack_fields: bool = False) -> pa.Array:
    """The values as a column of the type, or an error if one of them would not be the same there.

    With ``may_lack_fields``, a struct may have other fields than its type, as in JSON.

    >>> exact_array([1, 2.0, None], pa.int64()).to_pylist()
    [1, 2, None]
    >>> exact_array([1.9], pa.int64())
    Traceback (most recent call last):
    recension.core.errors.SchemaError: 1.9 is not a whole number
    """
    # Refuses what is of another form altogether.
    column = pa.array(floats_as_decimals(values, kind), kind)
    if kind.num_fields or pa.types.is_dictionary(kind):
        _Losses(may_lack_fields).refuse(values, kind)
    else:
        _refuse_in_leaves(values, kind)
    return column


def cast_exactly(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in another type, or ``ArrowInvalid`` if that is of another nature or a value would change.

    Digits that a float cannot hold are rounded, as they are wherever floats are written. So a float is the
    decimal to which it is nearest, if there is one of the type.

    >>> cast_exactly(pa.array([1, 2]), pa.float64()).to_pylist()
    [1.0, 2.0]
    >>> cast_exactly(pa.array([True]), pa.int64())
    Traceback (most recent call last):
    pyarrow.lib.ArrowInvalid: bool values are not int64 values
    """
    _refuse_other_nature(column.type, kind)
    return _cast(column, kind)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if kind.num_fields and column.type.num_fields:
        return cast_parts(column, kind, _cast)
    if pa.types.is_decimal(kind) and (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        return as_decimals(column, kind)
    cast = column.cast(kind)
    if pa.types.is_floating(kind) and pa.types.is_floating(column.type):
        changed = pc.and_not(pc.is_inf(cast), pc.is_inf(column))
    elif pa.types.is_date(kind):
        changed = pc.not_equal(cast.cast(column.type), column)
    else:
        refuse_wrapped_decimals(column, cast)
        return cast
    if bool(pc.any(changed).as_py()):
        raise pa.ArrowInvalid(f"{column.filter(changed)[0].as_py()!r} is not the same as {kind}")
    return cast


def _refuse_other_nature(old: pa.DataType, new: pa.DataType) -> None:
    """Booleans, numbers and times are no instances of each other, nor are times with and without a zone."""
    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    was_number, becomes_number = (any(check(kind) for check in is_number) for kind in (old, new))
    is_other = (
        (pa.types.is_boolean(old) and becomes_number)
        or (was_number and pa.types.is_boolean(new))
        or (pa.types.is_temporal(old) and becomes_number)
    )
    if is_other:
        raise pa.ArrowInvalid(f"{old} values are not {new} values")
    if pa.types.is_timestamp(old) and pa.types.is_timestamp(new) and (old.tz is None) != (new.tz is None):
        raise pa.ArrowInvalid(f"{old} values are not {new} values: one has a time zone, the other has none")
    if pa.types.is_timestamp(old) and old.tz is not None and pa.types.is_date(new):
        raise pa.ArrowInvalid(f"{old} values are not {new} values: a date has no time zone")
    if old.num_fields == new.num_fields:
        for inner in range(new.num_fields):
            _refuse_other_nature(old.field(inner).type, new.field(inner).type)


def describe_misfit(value: Any, kind: pa.DataType) -> str | None:
    """Why the value is not of the type, in one line; ``None`` if it is."""
    try:
        exact_array([value], kind)
    except MISFITS as why:
        return (str(why).splitlines() or [type(why).__name__])[0]
    return None


def unwrap_scalar(value: Any) -> Any:
    """A NumPy scalar as a Python value. Not a time: its nanoseconds would be a bare number."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return value
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value


@dataclass(frozen=True, slots=True)
class _Losses:
    """Refuses values that Arrow took for the type and changed."""

    may_lack_fields: bool

    def refuse(self, values: Iterable[Any], kind: pa.DataType) -> None:
        """Look at the values, and into lists, maps and structs."""
        if pa.types.is_dictionary(kind):
            self.refuse(values, kind.value_type)
        elif pa.types.is_struct(kind):
            self._refuse_in_structs([_to_mapping(value, kind) for value in values if value is not None], kind)
        elif pa.types.is_map(kind):
            there = (value for value in values if value is not None)
            pairs = [pair for x in there for pair in (x.items() if isinstance(x, Mapping) else x)]
            self.refuse([key for key, _ in pairs], kind.key_type)
            self.refuse([item for _, item in pairs], kind.item_type)
        elif any(is_list(kind) for is_list in _IS_LIST):
            self.refuse([item for value in values if value is not None for item in value], kind.value_type)
        else:
            _refuse_in_leaves(values, kind)

    def _refuse_in_structs(self, structs: list[Mapping[Any, Any]], kind: pa.DataType) -> None:
        names = [field.name for field in kind]
        wanted = set(names)
        for struct in structs:
            if not self.may_lack_fields and struct.keys() != wanted:
                raise SchemaError(_describe_misnamed(struct, names))
        for field in kind:
            self.refuse([struct.get(field.name) for struct in structs], field.type)


def _to_mapping(value: Any, kind: pa.DataType) -> Mapping[Any, Any]:
    """A struct as Arrow reads it: a mapping, a tuple of the values, or a list of names with values."""
    if isinstance(value, Mapping):
        return value
    return dict(zip([f.name for f in kind], value, strict=True) if isinstance(value, tuple) else value)


def _describe_misnamed(struct: Mapping[Any, Any], names: list[str]) -> str:
    for name in struct:
        if name not in names:
            return (
                f"no field {name!r}{suggest_name(str(name), names)}; there are {', '.join(names) or 'none'}"
            )
    missing = next(name for name in names if name not in struct)
    return f"no value for field {missing!r}: write None if it has none"


def _refuse_in_leaves(values: Iterable[Any], kind: pa.DataType) -> None:
    if (found := _LOSSES.get(kind.id)) is None:
        found = _LOSSES[kind.id] = _loss_of(kind)
    loss, exact = found
    if loss is None or set(map(type, values)) <= exact:
        return
    for value in values:
        # Arrow takes its own scalars only if they are of the very type.
        if value is None or isinstance(value, pa.Scalar):
            continue
        if (reason := loss(value, kind)) is not None:
            raise SchemaError(f"{value!r} {reason}")


def _loss_of(kind: pa.DataType) -> tuple[_Loss | None, set[type]]:
    """What a value of the type may lose, and the Python types of which none ever does."""
    if pa.types.is_integer(kind):
        return _number_loss, {int, type(None)}
    if pa.types.is_float64(kind):
        return _float_loss, {int, float, np.float64, type(None)}
    if pa.types.is_floating(kind):
        return _narrow_float_loss, {type(None)}
    if pa.types.is_timestamp(kind):
        return _moment_loss, {type(None)}
    if pa.types.is_date(kind):
        return _date_loss, {date, type(None)}
    if pa.types.is_time(kind):
        return _time_loss, {type(None)}
    return (_duration_loss if pa.types.is_duration(kind) else None), {type(None)}


def _number_loss(value: Any, _: pa.DataType) -> str | None:
    value = unwrap_scalar(value)
    if isinstance(value, bool):
        return "is not a number"
    try:
        # Only whole numbers have `__index__`.
        is_whole = hasattr(value, "__index__") or bool(value == int(value))
    except (TypeError, ValueError, OverflowError):
        is_whole = False
    return None if is_whole else "is not a whole number"


def _float_loss(value: Any, _: pa.DataType) -> str | None:
    return "is not a number" if isinstance(value, bool | np.bool_) else None


def _narrow_float_loss(value: Any, kind: pa.DataType) -> str | None:
    """Digits are rounded, as always with such a type; but what is finite must stay so."""
    if (reason := _float_loss(value, kind)) is not None:
        return reason
    is_lost = math.isfinite(value) and not math.isfinite(pa.scalar(value, kind).as_py())
    return f"is beyond the range of {kind}" if is_lost else None


def _moment_loss(value: Any, kind: pa.DataType) -> str | None:
    if isinstance(value, datetime):
        if (value.utcoffset() is None) != (kind.tz is None):
            return "has no time zone" if kind.tz else "has a time zone"
        return _parts_of_unit(1000 * value.microsecond + getattr(value, "nanosecond", 0), kind.unit)
    return None if isinstance(value, np.datetime64) else _number_loss(value, kind)


def _date_loss(value: Any, kind: pa.DataType) -> str | None:
    if isinstance(value, datetime):
        if value.utcoffset() is not None:
            return "has a time zone"
        is_midnight = value.time() == time() and not getattr(value, "nanosecond", 0)
        return None if is_midnight else "has a time of day"
    return None if isinstance(value, date | np.datetime64) else _number_loss(value, kind)


def _time_loss(value: Any, kind: pa.DataType) -> str | None:
    if isinstance(value, time):
        return "has a time zone" if value.tzinfo else _parts_of_unit(1000 * value.microsecond, kind.unit)
    return _number_loss(value, kind)


def _duration_loss(value: Any, kind: pa.DataType) -> str | None:
    if isinstance(value, timedelta):
        return _parts_of_unit(1000 * value.microseconds + getattr(value, "nanoseconds", 0), kind.unit)
    return None if isinstance(value, np.timedelta64) else _number_loss(value, kind)


def _parts_of_unit(nanoseconds: int, unit: str) -> str | None:
    return f"is not whole in {unit}" if nanoseconds % _NANOSECONDS[unit] else None


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
