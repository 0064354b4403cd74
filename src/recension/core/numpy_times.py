"""NumPy's datetimes and timedeltas in ticks: any unit, exact or refused."""

from __future__ import annotations

from typing import Final

import numpy as np

from recension.core.errors import TimeError

# How many of a unit make so many ticks.
_UNITS: Final = {
    "W": (1, 604_800_000_000),
    "D": (1, 86_400_000_000),
    "h": (1, 3_600_000_000),
    "m": (1, 60_000_000),
    "s": (1, 1_000_000),
    "ms": (1, 1_000),
    "us": (1, 1),
    "ns": (10**3, 1),
    "ps": (10**6, 1),
    "fs": (10**9, 1),
    "as": (10**12, 1),
}
_MONTHS: Final = {"Y": 12, "M": 1}
# Within so many months days fit NumPy's own arithmetic, and beyond them no ticks do.
_MOST_MONTHS: Final = 12 * 300_000


def ticks_of_datetime(value: np.datetime64) -> int:
    """Ticks since 1970."""
    if np.isnat(value):
        raise TimeError(f"{value!r} is not a time; leave the row out, or write FOREVER for no end")
    unit, count = np.datetime_data(value.dtype)
    if unit in _MONTHS:
        months = int(value.astype(np.int64)) * count * _MONTHS[unit]
        if abs(months) > _MOST_MONTHS:
            raise TimeError(f"{value!r} does not fit in 64-bit ticks")
        value, unit, count = value.astype("datetime64[D]"), "D", 1
    return _ticks(int(value.astype(np.int64)) * count, unit, value)


def ticks_of_timedelta(value: np.timedelta64) -> int:
    """Ticks in a length of time."""
    if np.isnat(value):
        raise TimeError(f"{value!r} is not a duration")
    unit, count = np.datetime_data(value.dtype)
    if unit in _MONTHS:
        raise TimeError(f"{value!r}: months and years differ in length; write days, hours or a smaller unit")
    return _ticks(int(value.astype(np.int64)) * count, unit, value)


def _ticks(amount: int, unit: str, value: np.generic) -> int:
    if unit not in _UNITS:
        raise TimeError(f"{value!r} has no unit; name one, such as np.{type(value).__name__}(10, 's')")
    parts, ticks = _UNITS[unit]
    if amount % parts:
        raise TimeError(f"{value!r} is not a whole number of microseconds")
    return amount // parts * ticks
