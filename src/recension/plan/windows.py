"""Windows and aggregates over them: one answer for every window that holds an event.

Windows lie on a grid (tumbling, hopping), whose steps are even or those of a calendar; or they count: every
run of ``n`` consecutive moments at which events start (or end) is one. Or events make them: those that follow
each other without a long gap are a session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

import pyarrow as pa

from recension.core.calendar import DAY, describe_calendar_length
from recension.core.errors import SchemaError, TimeError
from recension.core.ticks import describe_duration
from recension.core.time_kind import Instant, is_aware
from recension.core.window_limit import MAX_WINDOWS, WindowLimit, check_limit
from recension.plan.aggregate import AggregateNode
from recension.plan.lifetimes import require_positive
from recension.plan.properties import Properties


@dataclass(frozen=True)
class Windows:
    """Window ``i`` is ``[offset + i·hop, offset + i·hop + size)``; ``until`` ends the grid before a time."""

    size: int
    hop: int
    offset: int = 0
    until: int | None = None
    max_windows: int = field(default=MAX_WINDOWS, repr=False, metadata={"is_structure": False})
    """How many windows an event may be in. Not part of the structure: checkpoints fit any limit."""

    def __post_init__(self) -> None:
        require_positive(self.size, "windows", "a size")
        require_positive(self.hop, "windows", "a hop")
        if self.until is not None and abs(self.until) >= 2**62:
            raise TimeError("windows: until= names the end of the grid, a time before the end of time")
        WindowLimit(str(self), check_limit(self.max_windows, "windows")).check_each(self.size, self.hop)

    @property
    def overlap(self) -> bool:
        """Is there a time that lies in two of them?"""
        return self.size > self.hop

    @property
    def constant_duration(self) -> int | None:
        """How long each of them is; None if they overlap, for the beginning of time then cuts several."""
        return None if self.overlap else self.size

    @property
    def named_times(self) -> tuple[tuple[str, int], ...]:
        """Where the grid ends, if it does."""
        return () if self.until is None else (("windows, until", self.until),)

    def __str__(self) -> str:
        return self._describe(str)

    @property
    def with_units(self) -> str:
        """The same with durations in words, for messages that have timestamps."""
        return self._describe(describe_duration)

    def _describe(self, show: Callable[[int], str]) -> str:
        kind = "tumbling windows" if self.hop == self.size else f"windows every {show(self.hop)}"
        shift = str(self.offset) if isinstance(self.offset, Instant) else show(self.offset)
        offset = f" from {shift}" if self.offset else ""
        until = "" if self.until is None else f" until {self.until}"
        return f"{kind} of {show(self.size)}{offset}{until}"


CalendarUnit: TypeAlias = Literal["day", "week", "month"]
_MOST: Final = {"day": 365_250, "week": 52_178, "month": 12_000}


@dataclass(frozen=True)
class CalendarWindows(Windows):
    """Windows from boundary to boundary of a calendar: ``size`` and ``hop`` count units of a time zone.

    Boundary ``i`` is where the unit ``i·hop`` begins, counted from that which holds 1 January 1970; quarters
    and years are months. ``offset_months`` and then ``offset``, on the clock of the zone, move all of them.
    A boundary is the first instant at which the clock of the zone shows that time or a later one: a time
    that the clock skips moves past the gap, of two that it shows the same the earlier counts. A day that
    the calendar leaves out begins no window.
    """

    unit: CalendarUnit = "day"
    tz: str = "UTC"
    offset_months: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size % self.hop:
            raise TimeError(
                f"windows: a size of {self._length(self.size)} is no multiple of a hop of "
                f"{self._length(self.hop)}; with tz it must be one"
            )
        if self.size > _MOST[self.unit]:
            raise TimeError(f"windows: a size of {self._length(self.size)} is more than 1,000 years")
        if self.unit == "month" and not 0 <= self.offset < 28 * DAY:
            raise TimeError(
                "windows: the offset of months is a day that every month has, and a time of day: from 0 "
                "up to 27 days"
            )
        if self.unit != "month" and self.offset_months:
            raise TimeError(f"windows: {self.unit}s are moved by days and hours, not by months")
        if self.until is not None and not (isinstance(self.until, Instant) and is_aware(self.until.kind)):
            raise TimeError(
                f"windows: with tz, until= is a timestamp with a zone, such as '2024-01-31T00:00:00Z', not "
                f"{self.until!r}"
            )

    @property
    def constant_duration(self) -> int | None:
        """Months, and days with a change of clocks, differ in length."""
        return None

    @property
    def named_times(self) -> tuple[tuple[str, int], ...]:
        """A zone goes with times that have one: ticks and naive times are refused as beside a timestamp."""
        return (("windows with tz=", Instant(0, pa.timestamp("us", self.tz))), *super().named_times)

    def _length(self, count: int) -> str:
        return describe_calendar_length(
            *((count, 0) if self.unit == "month" else (0, self._days(count))), weeks=self.unit == "week"
        )

    def _days(self, count: int) -> int:
        return count * 7 if self.unit == "week" else count

    def _describe(self, show: Callable[[int], str]) -> str:
        kind = "tumbling windows" if self.hop == self.size else f"windows every {self._length(self.hop)}"
        moved = [describe_calendar_length(self.offset_months, 0)] if self.offset_months else []
        moved += [describe_duration(self.offset)] if self.offset else []
        offset = f" from {' and '.join(moved)}" if moved else ""
        until = "" if self.until is None else f" until {self.until}"
        return f"{kind} of {self._length(self.size)} in {self.tz}{offset}{until}"


@dataclass(frozen=True, eq=False)
class WindowAggregate(AggregateNode):
    """Aggregates per window, for every group by itself; a result lives as long as its window."""

    windows: Windows

    @property
    def label(self) -> str:
        return f"{super().label}, {self.windows}"

    @property
    def why_whole(self) -> str | None:
        """Of an event that never ends, min and max of a shard show only what has begun by its own time."""
        if self.is_sum:
            return None
        may_go_on = self.windows.until is None and self.input.properties.constant_duration is None
        if not (why := self.why_not_combined()) and (may_go_on or self.windows.overlap):
            return "min and max of windows that overlap, or of events that may never end, need all of them"
        return why

    @property
    def label_with_units(self) -> str:
        """The label for messages that have timestamps."""
        return f"{super().label}, {self.windows.with_units}"

    @property
    def named_times(self) -> tuple[tuple[str, int], ...]:
        return self.windows.named_times

    def derive_properties(self) -> Properties:
        """Windows are shown and taken back whole: once they have ended by the watermark, eager ones at once.

        All groups share the watermark, so that the windows of all of them come in order (ruling B15).
        Windows that overlap share their start where they would begin before time does: they are of no one
        duration.
        """
        of = self.input.properties
        waits = self.speculate != "eager"
        in_order = waits and of.is_ordered and not self.breaks_ties
        is_single = not self.keys and self.gives_one_row
        return Properties(
            has_key=True,
            is_shrink_only=True,
            constant_duration=self.windows.constant_duration,
            is_insert_only=waits and of.is_perfect,
            is_ordered=in_order,
            is_strictly_increasing=in_order and of.is_perfect and is_single,
        )


Moment: TypeAlias = Literal["start", "end"]


@dataclass(frozen=True)
class CountWindows:
    """From each distinct start (end) to the ``n``-th from there, one tick beyond it (ruling G2)."""

    n: int
    by: Moment = "start"

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise SchemaError(f"count_window: a window counts one moment or more, not {self.n!r}")
        if self.by not in get_args(Moment):
            raise SchemaError(f"count_window: by is 'start' or 'end', not {self.by!r}")

    def __str__(self) -> str:
        return f"windows of {self.n} {self.by}{'' if self.n == 1 else 's'}"


@dataclass(frozen=True, eq=False)
class CountAggregate(AggregateNode):
    """Aggregates per count window, for every group by itself; a result lives as long as its window."""

    windows: CountWindows

    named_times = ()

    @property
    def label(self) -> str:
        return f"{super().label}, {self.windows}"

    @property
    def breaks_ties(self) -> bool:
        """Counted by end, an event whose end moves moves itself: what that changes is not in the past."""
        return self.windows.by == "start" and super().breaks_ties

    def derive_properties(self) -> Properties:
        """Windows are shown and taken back whole: once they have ended by the watermark, eager ones at once.

        Windows of one group end in the order in which they start; those of different groups need not.
        """
        of = self.input.properties
        waits = self.speculate != "eager"
        in_order = waits and of.is_ordered and not self.keys and not self.breaks_ties
        return Properties(
            has_key=True,
            is_shrink_only=True,
            is_point=self.windows.n == 1,
            is_insert_only=waits and of.is_perfect,
            is_ordered=in_order,
            is_strictly_increasing=in_order and of.is_perfect and self.gives_one_row,
        )


@dataclass(frozen=True)
class SessionWindows:
    """From a first start to a latest end; each event begins before one of the ends so far, plus ``gap``."""

    gap: int

    def __post_init__(self) -> None:
        require_positive(self.gap, "sessions", "a gap")

    def __str__(self) -> str:
        return f"sessions with a gap of {self.gap}"

    @property
    def with_units(self) -> str:
        """The same with the gap in words, for messages that have timestamps."""
        return f"sessions with a gap of {describe_duration(self.gap)}"


@dataclass(frozen=True, eq=False)
class SessionAggregate(AggregateNode):
    """Aggregates per session, for every group by itself; a result lives as long as its session."""

    windows: SessionWindows

    named_times = ()

    @property
    def breaks_ties(self) -> bool:
        """A session waits for the ends of its events in any case."""
        return False

    @property
    def label(self) -> str:
        return f"{super().label}, {self.windows}"

    @property
    def label_with_units(self) -> str:
        """The label for messages that have timestamps."""
        return f"{super().label}, {self.windows.with_units}"

    def derive_properties(self) -> Properties:
        """Sessions are shown and taken back whole: once the watermark has passed the gap, eager ones at once.

        In order, nothing comes or ends before the watermark: what was shown stays. Sessions of one group
        end in the order in which they start; those of different groups need not.
        """
        of = self.input.properties
        waits = self.speculate != "eager"
        in_order = waits and of.is_ordered and not self.keys
        return Properties(
            has_key=True,
            is_shrink_only=True,
            is_insert_only=waits and of.is_ordered,
            is_ordered=in_order,
            is_strictly_increasing=in_order and self.gives_one_row,
        )
