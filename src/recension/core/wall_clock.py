"""Durations on the wall clock; all other durations are in application time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from recension.core.errors import TimeError
from recension.core.ticks import FOREVER, DurationLike, duration

Clock: TypeAlias = Callable[[], int]
"""Gives the time in microseconds since 1970, the same in every process: state outlives a restart."""


@dataclass(frozen=True, slots=True)
class WallClock:
    """A number of microseconds on the wall clock."""

    microseconds: int

    def __post_init__(self) -> None:
        if not 0 < self.microseconds < FOREVER:
            raise TimeError(f"wall_clock: it takes 1 microsecond or more, not {self.microseconds}")

    def __str__(self) -> str:
        return f"{self.microseconds} by the wall clock"


Length: TypeAlias = int | WallClock
"""Ticks of application time, FOREVER for no end, or a length by the wall clock."""


def wall_clock(length: DurationLike) -> WallClock:
    """A duration on the wall clock, for ``block`` and ``remember``.

    >>> wall_clock("5s")
    WallClock(microseconds=5000000)
    """
    return WallClock(duration(length))


def now() -> int:
    """The time of the system's clock."""
    return time.time_ns() // 1000
