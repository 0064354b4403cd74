"""Time as int64 ticks: its two ends, durations with units, and timestamps without loss.

One tick is one microsecond wherever a duration or a timestamp is converted; what does not fit into int64
ticks, or is no whole number of them, is an error. Engines calculate with saturation instead (ruling A7):
both ends of time absorb what is added to them, and what leaves int64 arrives at an end of time.
"""

from __future__ import annotations

import datetime as dt
import re
from fractions import Fraction
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.errors import TimeError
from recension.core.time_kind import NAIVE, Instant, kind_in_zone, of_kind

Ticks: TypeAlias = npt.NDArray[np.int64]
DurationLike: TypeAlias = int | str | dt.timedelta | np.integer[Any] | np.timedelta64
TimeLike: TypeAlias = int | str | dt.datetime | dt.date | np.integer[Any] | np.datetime64

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
_WORDS: Final = {
    "microsecond": "us",
    "millisecond": "ms",
    "second": "s",
    "minute": "m",
    "hour": "h",
    "day": "d",
    "week": "w",
}
_UNEVEN: Final = {"month": "mo", "quarter": "q", "year": "y"}
"""Units of the calendar that differ in length."""
# NumPy's units finer than a tick, and how many of them make one.
_PER_TICK: Final = {"ns": 10**3, "ps": 10**6, "fs": 10**9, "as": 10**12}
_MONTHS: Final = {"Y": 12, "M": 1}
# Beyond so many months no ticks fit into int64; up to there days fit NumPy's own arithmetic.
_MOST_MONTHS: Final = 12 * 300_000
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_ISO_DURATION = re.compile(r"P((?:[\d.,]+[YMWD])*)(?:T((?:[\d.,]+[HMS])+))?")
_ISO_PART = re.compile(r"(\d+(?:[.,]\d+)?)([YMWDHS])")
_ISO_DATE_UNITS: Final = {"Y": "y", "M": "mo", "W": "w", "D": "d"}
_ISO_TIME_UNITS: Final = {"H": "h", "M": "m", "S": "s"}
_FINER_THAN_A_TICK = re.compile(r"[.,]\d{6}0*[1-9]")


class Length(int):
    """Ticks that were given as a length of time in units: then a tick is meant to be a microsecond."""

    def __neg__(self) -> Length:
        return Length(-int(self))


def duration(value: DurationLike) -> int:
    """Ticks in a length of time given as ticks, words, or a ``timedelta`` of Python, NumPy or pandas.

    >>> duration("10s"), duration("1.5h"), duration("1 hour 30 minutes"), duration(7)
    (10000000, 5400000000, 5400000000, 7)
    """
    if hasattr(value, "to_timedelta64"):
        value = value.to_timedelta64()  # pandas' own timedeltas hold fractions of a microsecond
    if isinstance(value, np.timedelta64):
        return Length(_require_range(_ticks_of_timedelta(value), value))
    if isinstance(value, dt.timedelta):
        return Length(_require_range(value // _MICROSECOND, value))
    if isinstance(value, str):
        return Length(_require_range(_parse_duration(value), value))
    if isinstance(value, Length):
        return value
    if isinstance(value, bool | Instant) or not isinstance(value, int | np.integer):
        raise TimeError(
            f"{_describe(value)} is not a duration; write ticks, '10s', '1.5 hours' or a timedelta"
        )
    return _require_range(int(value), value)


def _parse_duration(text: str) -> int:
    total = Fraction(0)
    for amount, unit in parse_units(text):
        if unit not in _UNITS:
            name = next(word for word, short in _UNEVEN.items() if short == unit)
            raise TimeError(
                f"{text!r}: {name}s differ in length; write days, hours or a smaller unit, or in windows of "
                "a calendar name its zone, tz='UTC'"
            )
        total += amount * _UNITS[unit]
    if total.denominator != 1:
        raise TimeError(f"{text!r} is not a whole number of microseconds")
    return int(total)


def parse_units(text: str) -> list[tuple[Fraction, str]]:
    """The parts of a duration in words or in ISO 8601, each with its unit: us, ms, s, m, h, d, w, mo, q or y.

    >>> [(int(amount), unit) for amount, unit in parse_units("P1Y2MT30M")]
    [(1, 'y'), (2, 'mo'), (30, 'm')]
    >>> [(int(amount), unit) for amount, unit in parse_units("-2 weeks")]
    [(-2, 'w')]
    """
    body, sign = (text.strip()[1:], -1) if text.strip().startswith("-") else (text.strip(), 1)
    found = _iso_parts(body) if body.startswith("P") else _worded_parts(body, text)
    if not found:
        raise TimeError(f"{text!r} is not a duration; write for example '10s', '1.5h', '1h 30m' or 'PT30M'")
    return [(sign * amount, unit) for amount, unit in found]


def _worded_parts(body: str, text: str) -> list[tuple[Fraction, str]]:
    found, at = [], 0
    while match := _DURATION.match(body, at):
        amount, unit = match.groups()
        found.append((Fraction(amount), _unit(unit, text)))
        at = match.end()
    return found if at == len(body) else []


def _iso_parts(body: str) -> list[tuple[Fraction, str]]:
    whole = _ISO_DURATION.fullmatch(body)
    found = []
    for written, units in zip(
        whole.groups("") if whole else (), (_ISO_DATE_UNITS, _ISO_TIME_UNITS), strict=False
    ):
        parts = _ISO_PART.findall(written)
        letters = [letter for _, letter in parts]
        is_in_order = letters == [letter for letter in units if letter in letters]
        if "".join(amount + letter for amount, letter in parts) != written or not is_in_order:
            return []
        found += [(Fraction(amount.replace(",", ".")), units[letter]) for amount, letter in parts]
    return found


def _unit(written: str, text: str) -> str:
    """The short name of a unit that stands in ``text``."""
    word = written.removesuffix("s")
    unit = _WORDS.get(word) or _UNEVEN.get(word) or (word if word in _UNEVEN.values() else written)
    if unit not in _UNITS and unit not in _UNEVEN.values():
        known = ", ".join([*_UNITS, *(f"{word}s" for word in _WORDS)])
        raise TimeError(f"{text!r}: unknown unit {written!r}; use one of {known}")
    return unit


def describe_duration(ticks: int) -> str:
    """A length of time as people write it, in the largest unit up to days that gives a whole number.

    >>> [describe_duration(ticks) for ticks in (10_000, 5_400_000_000, 86_400_000_000, 7, 0)]
    ['10ms', '90m', '1d', '7us', '0us']
    """
    for unit in ("d", "h", "m", "s", "ms"):
        if ticks and ticks % _UNITS[unit] == 0:
            return f"{ticks // _UNITS[unit]}{unit}"
    return f"{ticks}us"


def instant(value: TimeLike) -> int:
    """Ticks of a point in time; those of a timestamp remember its kind (`time_kind`).

    An integer is ticks. A date is its midnight; like a timestamp or an ISO 8601 text without a zone it is
    naive, and reads as UTC only to be kept.

    >>> instant("1970-01-01T00:00:01"), instant("1970-01-01T01:00+01:00"), instant(5)
    ('1970-01-01 00:00:01', '1970-01-01 00:00:00+00:00', 5)
    >>> instant("1970-01-01T00:00:01") == 1_000_000
    True
    """
    if isinstance(value, str):
        moment = _parse_instant(value)
        # A text has an offset, which is no zone: the next may have another.
        return of_kind(_since_1970(moment), kind_in_zone(dt.UTC if moment.tzinfo else None))
    if isinstance(value, np.datetime64):
        return of_kind(_require_range(_ticks_of_datetime(value), value), NAIVE)
    if isinstance(value, dt.date):
        ticks = _require_range(_since_1970(value), value)
        return of_kind(ticks, kind_in_zone(_zone_of(value)))
    if isinstance(value, Instant):
        return value
    is_number = isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)
    if not is_number:
        raise TimeError(f"{_describe(value)} is not a time; write ticks, a datetime or an ISO 8601 text")
    return _require_range(int(value), value)


def _since_1970(value: dt.date) -> int:
    if hasattr(value, "to_datetime64"):
        # pandas' own: they hold fractions of a microsecond, and NaT is one of them.
        return _ticks_of_datetime(value.to_datetime64())
    if not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    aware = value.replace(tzinfo=dt.UTC) if _zone_of(value) is None else value
    return (aware - _EPOCH) // _MICROSECOND


def _zone_of(value: dt.date) -> dt.tzinfo | None:
    if not isinstance(value, dt.datetime) or value.utcoffset() is None:
        return None
    return value.tzinfo


def _parse_instant(text: str) -> dt.datetime:
    if _FINER_THAN_A_TICK.search(text):  # Python would cut the digits off
        raise TimeError(f"{text!r} is not a whole number of microseconds")
    try:
        if text.isdecimal():  # ISO 8601 allows 20240101, which in a file is a number of ticks
            raise ValueError
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise TimeError(f"{text!r} is not an ISO 8601 timestamp, such as '2024-01-31T12:00:00'") from None


def _ticks_of_datetime(value: np.datetime64) -> int:
    if np.isnat(value):
        raise TimeError(f"{value!r} is not a time; leave the row out, or write FOREVER for no end")
    unit, count = np.datetime_data(value.dtype)
    if unit in _MONTHS:
        months = int(value.astype(np.int64)) * count * _MONTHS[unit]
        if abs(months) > _MOST_MONTHS:
            raise TimeError(f"{value!r} does not fit in 64-bit ticks")
        value, unit, count = value.astype("datetime64[D]"), "D", 1
    return _ticks_of_units(int(value.astype(np.int64)) * count, unit, value)


def _ticks_of_timedelta(value: np.timedelta64) -> int:
    if np.isnat(value):
        raise TimeError(f"{value!r} is not a duration")
    unit, count = np.datetime_data(value.dtype)
    if unit in _MONTHS:
        raise TimeError(f"{value!r}: months and years differ in length; write days, hours or a smaller unit")
    return _ticks_of_units(int(value.astype(np.int64)) * count, unit, value)


def _ticks_of_units(amount: int, unit: str, value: np.generic) -> int:
    """So many of one of NumPy's units, exact or refused; ``value`` is what an error names."""
    if unit in _PER_TICK:
        if amount % _PER_TICK[unit]:
            raise TimeError(f"{value!r} is not a whole number of microseconds")
        return amount // _PER_TICK[unit]
    if unit.lower() not in _UNITS:
        raise TimeError(f"{value!r} has no unit; name one, such as np.{type(value).__name__}(10, 's')")
    return amount * _UNITS[unit.lower()]


def _describe(value: object) -> str:
    """What was given, in one line."""
    return " ".join(repr(value).split())[:80]


def _require_range(ticks: int, given: object) -> int:
    if not BEGINNING <= ticks <= FOREVER:
        raise TimeError(f"{given!r} does not fit in 64-bit ticks")
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


TimeUnit: TypeAlias = Literal["s", "ms", "us"]
"""What the integers of a column count since 1970."""
_YEAR_10000: Final = 253_402_300_800_000_000
TICKS_PER: Final[dict[TimeUnit, int]] = {"s": 1_000_000, "ms": 1_000, "us": 1}


def from_counts(counts: pa.Array, unit: TimeUnit) -> pa.Array:
    """The ticks of integers that count seconds, milliseconds or microseconds; the ends of time stay."""
    at_ends = pc.is_in(counts, pa.array([BEGINNING, FOREVER]))
    inside = pc.if_else(at_ends, pa.scalar(0, pa.int64()), counts)
    at = pc.index(pc.greater_equal(pc.abs(inside), _YEAR_10000 // TICKS_PER[unit]), True).as_py()
    if at >= 0:
        raise pa.ArrowInvalid(f"{counts[at].as_py()} {unit} since 1970 are beyond the year 9999")
    return pc.if_else(at_ends, counts, pc.multiply(inside, TICKS_PER[unit]))


def ticks_from_column(column: pa.Array, name: str, unit: TimeUnit | None) -> pa.Array:
    """`from_arrow`, where integers may count something else."""
    ticks = from_arrow(column, name)
    return ticks if unit is None or not pa.types.is_integer(column.type) else from_counts(ticks, unit)


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
