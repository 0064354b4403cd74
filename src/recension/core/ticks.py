"""Time as int64 ticks: its two ends, durations in words, and timestamps without loss.

One tick is one microsecond wherever a duration or a timestamp is converted; what does not fit into int64
ticks, or is no whole number of them, is an error. Engines calculate with saturation instead (ruling A7):
both ends of time absorb what is added to them, and what leaves int64 arrives at an end of time.
"""

from __future__ import annotations

import datetime as dt
import re
from fractions import Fraction
from typing import Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.errors import TimeError

Ticks: TypeAlias = npt.NDArray[np.int64]
DurationLike: TypeAlias = int | str | dt.timedelta
TimeLike: TypeAlias = int | str | dt.datetime | dt.date

T = TypeVar("T", dt.datetime, dt.timedelta)

FOREVER: Final = 2**63 - 1
BEGINNING: Final = -(2**63)

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_UNITS: Final = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_FINER_THAN_A_TICK = re.compile(r"[.,]\d{6}0*[1-9]")


def duration(value: DurationLike) -> int:
    """Ticks in a length of time given as ticks, words or a ``timedelta``.

    >>> duration("10s"), duration("1.5h"), duration("1h 30m"), duration(7)
    (10000000, 5400000000, 5400000000, 7)
    """
    if isinstance(value, bool) or not isinstance(value, int | str | dt.timedelta):
        raise TimeError(f"{value!r} is not a duration; write ticks, '10s', '1.5h' or a timedelta")
    if isinstance(value, dt.timedelta):
        return _in_range(_whole(value, "nanoseconds") // _MICROSECOND, value)
    if isinstance(value, int):
        return _in_range(value, value)
    return _in_range(_parse_duration(value), value)


def _parse_duration(text: str) -> int:
    body, sign = (text.strip()[1:], -1) if text.strip().startswith("-") else (text, 1)
    total, at = Fraction(0), 0
    while match := _DURATION.match(body, at):
        amount, unit = match.groups()
        if unit not in _UNITS:
            raise TimeError(f"{text!r}: unknown unit {unit!r}; use one of {', '.join(_UNITS)}")
        total += Fraction(amount) * _UNITS[unit]
        at = match.end()
    if at == 0 or at != len(body):
        raise TimeError(f"{text!r} is not a duration; write for example '10s', '1.5h' or '1h 30m'")
    if total.denominator != 1:
        raise TimeError(f"{text!r} is not a whole number of microseconds")
    return sign * int(total)


def instant(value: TimeLike) -> int:
    """Ticks of a point in time; timestamps without a zone are taken as UTC.

    >>> instant("1970-01-01T00:00:01"), instant(5)
    (1000000, 5)
    """
    if isinstance(value, bool) or not isinstance(value, int | str | dt.date):
        raise TimeError(f"{value!r} is not a time; write ticks, a datetime or an ISO 8601 text")
    if isinstance(value, int):
        return _in_range(value, value)
    if isinstance(value, str):
        value = _parse_instant(value)
    if not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    return _in_range((_whole(aware, "nanosecond") - _EPOCH) // _MICROSECOND, value)


def _parse_instant(text: str) -> dt.datetime:
    if _FINER_THAN_A_TICK.search(text):  # Python would cut the digits off
        raise TimeError(f"{text!r} is not a whole number of microseconds")
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise TimeError(f"{text!r} is not an ISO 8601 timestamp") from None


def _whole(value: T, finer: str) -> T:
    """Refuse the fractions of a microsecond that pandas' own datetimes and timedeltas can hold."""
    if getattr(value, finer, 0):
        raise TimeError(f"{value!r} is not a whole number of microseconds")
    return value


def timestamp(ticks: int) -> dt.datetime | None:
    """The UTC timestamp of a tick, or ``None`` for the end of time."""
    if ticks == FOREVER:
        return None
    try:
        return _EPOCH + dt.timedelta(microseconds=ticks)
    except OverflowError:
        raise TimeError(f"{ticks} ticks lie outside the years a timestamp can hold") from None


def _in_range(ticks: int, shown: object) -> int:
    if not BEGINNING <= ticks <= FOREVER:
        raise TimeError(f"{shown!r} does not fit in 64-bit ticks")
    return ticks


def add(times: Ticks, delta: int | Ticks) -> Ticks:
    """``times + delta``, saturated: both ends of time stay, and a delta of ``FOREVER`` is endless."""
    by = np.asarray(delta, np.int64)
    with np.errstate(over="ignore"):
        moved = times + by
    moved = np.where((by > 0) & (moved < times), np.int64(FOREVER), moved)
    moved = np.where((by < 0) & (moved > times), np.int64(BEGINNING), moved)
    return np.where(by == FOREVER, np.int64(FOREVER), np.where(_is_end(times), times, moved))


def floor(times: Ticks, step: int, offset: int = 0) -> Ticks:
    """The greatest grid point ``offset + k*step`` at or before each time, saturated; ends of time stay."""
    past = np.mod(np.mod(times, step) - offset % step, step)
    with np.errstate(over="ignore"):
        down = times - past
    down = np.where(down > times, np.int64(BEGINNING), down)
    return np.where(_is_end(times), times, down)


def _is_end(times: Ticks) -> npt.NDArray[np.bool_]:
    ends: npt.NDArray[np.bool_] = (times == FOREVER) | (times == BEGINNING)
    return ends


def from_arrow(column: pa.Array, name: str) -> pa.Array:
    """An int64 array of ticks (nulls kept) from an integer, timestamp or date column."""
    kind = column.type
    if pa.types.is_integer(kind):
        return _cast(column, pa.int64(), name)
    if pa.types.is_date(kind):
        kind = pa.timestamp("ms" if pa.types.is_date64(kind) else "s")
        column = column.cast(kind)
    if pa.types.is_timestamp(kind):
        # A safe cast refuses what would overflow, and fractions of a microsecond.
        return _cast(column, pa.timestamp("us", kind.tz), name).view(pa.int64())
    if pa.types.is_null(kind):
        return column.cast(pa.int64())
    raise TimeError(f"column {name} is {kind}; a time is an int64 or a timestamp")


def _cast(column: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    try:
        return column.cast(target)
    except pa.ArrowInvalid as why:
        raise TimeError(f"column {name}: {str(why).splitlines()[0]}") from None


def to_arrow(times: Ticks, unit: pa.DataType, *, null_forever: bool) -> pa.Array:
    """Ticks as a column of type ``unit`` (int64 or a microsecond timestamp)."""
    column = pa.array(times, mask=(times == FOREVER) if null_forever else None)
    return column if pa.types.is_int64(unit) else column.view(unit)


def is_time(kind: pa.DataType) -> bool:
    """Can a column of this type hold times?"""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date(kind)
        or pa.types.is_null(kind)
    )


def span(times: Ticks) -> tuple[int, int]:
    """The least and greatest finite time, or the two ends of time reversed when there is none."""
    finite = times[(times != FOREVER) & (times != BEGINNING)]
    low, high = pc.min_max(pa.array(finite)).as_py().values()
    return (FOREVER, BEGINNING) if low is None else (low, high)
