"""Grids of windows, from sizes as they are written: of a fixed length, or days or months of a zone."""

from __future__ import annotations

from recension.core.calendar import DAY, WHOLE, CalendarLength, ZoneLike, calendar_length, zone_name
from recension.core.errors import TimeError
from recension.core.ticks import DurationLike, TimeLike, duration, instant
from recension.plan.windows import CalendarUnit, CalendarWindows, Windows


def grid(
    size: DurationLike,
    hop: DurationLike,
    offset: DurationLike,
    until: TimeLike | None,
    tz: ZoneLike | None,
    max_windows: int,
) -> Windows:
    """The grid of windows of a size, one at every hop; with a zone, by its calendar."""
    end = None if until is None else instant(until)
    if tz is None:
        return Windows(duration(size), duration(hop), duration(offset), end, max_windows)
    whole, each = _calendar_steps(size, "size"), _calendar_steps(hop, "hop")
    if bool(each.months) != bool(whole.months):
        raise TimeError(
            f"windows: a size of {size!r} is no multiple of a hop of {hop!r}: months differ in length; give "
            "both in days or weeks, or both in months, quarters or years"
        )
    moved = calendar_length(offset, "offset") if offset else CalendarLength()
    unit: CalendarUnit = "month" if each.months else "week" if each.is_weeks else "day"
    if unit == "week" and whole.days % 7:
        raise TimeError(
            f"windows: a size of {size!r} is no multiple of a hop of {hop!r}; with tz it must be one"
        )
    per = 7 if unit == "week" else 1
    return CalendarWindows(
        whole.months or whole.days // per,
        each.months or each.days // per,
        moved.days * DAY + moved.ticks,
        end,
        max_windows,
        unit,
        zone_name(tz, "tz"),
        moved.months,
    )


def _calendar_steps(value: DurationLike, what: str) -> CalendarLength:
    """A size or a hop of calendar windows: months or days, and nothing else."""
    found = calendar_length(value, what)
    if found.ticks or bool(found.months) == bool(found.days) or min(found.months, found.days) < 0:
        raise TimeError(
            f"{what}: {value!r} with tz; write {WHOLE}, of one kind, such as '1mo'; hours and smaller units "
            "need no tz"
        )
    return found
