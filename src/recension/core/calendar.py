"""Lengths of time in units of the calendar, and the names of time zones.

A day of a calendar is not 24 hours: a zone that changes its clocks has days of 23 and 25. So months, days
and the time of day are counted apart.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

from recension.core.errors import TimeError
from recension.core.ticks import DurationLike, duration, parse_units

ZoneLike: TypeAlias = str | ZoneInfo

DAY: Final = 86_400_000_000
_MONTHS: Final = {"mo": 1, "q": 3, "y": 12}
_DAYS: Final = {"d": 1, "w": 7}
WHOLE: Final = "whole days, weeks, months, quarters or years"


@dataclass(frozen=True, slots=True)
class CalendarLength:
    """So many months, days and ticks; ``is_weeks``: the days were written as weeks."""

    months: int = 0
    days: int = 0
    ticks: int = 0
    is_weeks: bool = False


def calendar_length(value: DurationLike, place: str) -> CalendarLength:
    """A length in units of the calendar, from words, ISO 8601 or a ``timedelta``.

    >>> calendar_length("P1W", "size")
    CalendarLength(months=0, days=7, ticks=0, is_weeks=True)
    """
    if isinstance(value, dt.timedelta):
        return CalendarLength(0, value.days, duration(value) - value.days * DAY)
    if not isinstance(value, str):
        raise TimeError(
            f"{place}: {value!r} are ticks, which know no calendar; with tz write {WHOLE}, such as '1mo'"
        )
    months, days, ticks, units = 0, 0, 0, set()
    for amount, unit in parse_units(value):
        units.add(unit)
        if unit not in _MONTHS and unit not in _DAYS:
            ticks += (
                duration(f"{amount.numerator}{unit}") if amount.denominator == 1 else _refuse(value, place)
            )
        elif amount.denominator != 1:
            _refuse(value, place)
        else:
            months += int(amount) * _MONTHS.get(unit, 0)
            days += int(amount) * _DAYS.get(unit, 0)
    return CalendarLength(months, days, ticks, units == {"w"})


def _refuse(value: object, place: str) -> int:
    raise TimeError(f"{place}: {value!r} has a fraction of a unit; with tz write {WHOLE}")


def describe_calendar_length(months: int, days: int, *, weeks: bool = False) -> str:
    """A length in the largest unit that gives a whole number.

    >>> describe_calendar_length(3, 0), describe_calendar_length(14, 0), describe_calendar_length(0, 14)
    ('1 quarter', '14 months', '14 days')
    """
    if months:
        count, unit = next(
            (months // n, word) for n, word in ((12, "year"), (3, "quarter"), (1, "month")) if months % n == 0
        )
    else:
        count, unit = (days // 7, "week") if weeks else (days, "day")
    return f"{count} {unit}{'' if count == 1 else 's'}"


def zone_name(zone: Any, place: str) -> str:
    """The name of a time zone that this machine knows.

    >>> zone_name(ZoneInfo("Asia/Tokyo"), "tz")
    'Asia/Tokyo'
    """
    name = zone.key if isinstance(zone, ZoneInfo) else "UTC" if zone is dt.UTC else zone
    if not isinstance(name, str) or not name:
        raise TimeError(f"{place}: {zone!r} is not the name of a time zone, such as 'Europe/Paris'")
    find_zone(name, place)
    return name


@lru_cache(maxsize=64)
def find_zone(name: str, place: str = "tz") -> ZoneInfo:
    """The zone of this name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # an unknown name; a path; a folder
        near = get_close_matches(name, sorted(available_timezones()), 1)
        advice = f"did you mean {near[0]!r}?" if near else "write one such as 'Europe/Paris' or 'UTC'"
        raise TimeError(f"{place}: this machine knows no time zone {name!r}; {advice}") from None
