"""Calendar windows: from the beginning of a day, week or month in a time zone to that of another.

The beginning is the first instant at which the clock of the zone shows that time or a later one. A day that
the clock never shows begins no window. Written with the clock alone: what it shows at an instant.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from typing import Final, Literal
from zoneinfo import ZoneInfo

from recension.core.errors import RecensionError
from recension.core.events import Event
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.order import History
from recension.denote.windows import Window, Windows, with_members

_EPOCH: Final = datetime(1970, 1, 1)
_TICK: Final = timedelta(microseconds=1)
_HOUR: Final = timedelta(hours=1)


def calendar_windows(
    size: int,
    hop: int,
    unit: Literal["day", "week", "month"],
    tz: str,
    offset: int = 0,
    offset_months: int = 0,
    until: int | None = None,
) -> Windows:
    """Windows of ``size`` units at every ``hop`` units; with ``until``, those that start before it.

    >>> days, hour = calendar_windows(1, 1, "day", "Europe/Paris"), 3_600_000_000
    >>> event = Event({}, 475486 * hour, 475528 * hour)  # from 29 to 31 March 2024
    >>> [(window.end - window.start) // hour for window, _ in days([event])]
    [24, 24, 23]
    """

    def clock_at(number: int) -> datetime:
        """What the clock shows where a hop begins."""
        if unit == "month":
            years, month = divmod(number * hop + offset_months, 12)
            first = datetime(1970 + years, month + 1, 1)
        else:
            monday = datetime(1969, 12, 29)
            first = (
                monday + timedelta(weeks=number * hop) if unit == "week" else _EPOCH + timedelta(number * hop)
            )
        return first + offset * _TICK

    @cache
    def begin(number: int) -> int:
        return first_instant(clock_at(number), tz)

    def over(event: Event) -> list[Window]:
        end = event.ve if until is None else min(event.ve, until)
        if end == FOREVER:
            raise RecensionError(f"{event} never ends, nor do the windows over it: give them until=")
        if event.vs == BEGINNING:
            raise RecensionError(f"{event} has no beginning, nor do the windows over it")
        found: list[Window] = []
        for number in count(_number_before(event.vs) - size // hop):
            window = Window(begin(number), begin(number + size // hop))
            if window.start >= end:
                return found
            if window.end > event.vs and begin(number) < begin(number + 1):
                found.append(window)
        raise AssertionError

    def _number_before(t: int) -> int:
        """The number of a hop that begins before ``t``."""
        moment = _EPOCH + t * _TICK - timedelta(days=3) - offset * _TICK
        if unit == "month":
            return ((moment.year - 1970) * 12 + moment.month - 1 - offset_months) // hop
        days = (moment - _EPOCH).days
        return (days // 7 - 1) // hop if unit == "week" else days // hop

    def divide(history: History) -> list[tuple[Window, History]]:
        return with_members(sorted({window for event in history for window in over(event)}), history)

    return divide


@cache
def first_instant(clock: datetime, tz: str) -> int:
    """The first instant at which the clock shows this time or a later one."""
    zone = ZoneInfo(tz)

    def shows(instant: datetime) -> datetime:
        return instant.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)

    # No clock is more than a day from UTC, and none shows two offsets within an hour.
    around = [clock + hours * _HOUR for hours in range(-26, 27)]
    offsets = {shows(instant) - instant for instant in around}
    exact = [clock - offset for offset in offsets if shows(clock - offset) == clock]
    if exact:
        return (min(exact) - _EPOCH) // _TICK
    late = next(instant for instant in around if shows(instant) >= clock)
    early = late - _HOUR
    while late - early > _TICK:
        middle = early + (late - early) // 2
        early, late = (early, middle) if shows(middle) >= clock else (middle, late)
    return (late - _EPOCH) // _TICK
