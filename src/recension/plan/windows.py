"""Windows and aggregates over them: one answer for every window that holds an event.

Windows lie on a grid (tumbling, hopping), or count: every run of ``n`` consecutive moments at which events
start (or end) is one. Or events make them: those that follow each other without a long gap are a session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from recension.core.errors import SchemaError, TimeError
from recension.core.ticks import describe_duration
from recension.core.time_kind import Instant
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
