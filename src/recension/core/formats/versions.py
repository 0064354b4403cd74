"""Which version of a table is asked for: after so many micro-batches, or as it was at some time.

`as_of` is transaction time: what a reader saw at that moment. Valid time is in the rows themselves. A version
gets its time when it is published, and times never go back. So an answer about the past stays what it is;
only within the moment that a commit takes may a reader have seen the version before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from recension.core.errors import RecensionError, TimeError
from recension.core.ticks import TimeLike, instant
from recension.core.time_kind import AWARE, NAIVE, describe_time, kind_of
from recension.core.wall_clock import now


@dataclass(frozen=True, slots=True)
class Version:
    """At most one of the two: a number of micro-batches, or microseconds since 1970; else the newest."""

    number: int | None = None
    as_of: int | None = None

    @staticmethod
    def from_request(version: int | None, as_of: TimeLike | None) -> Version:
        """What a user asks for; refused if that is not one version of the past."""
        if version is not None and as_of is not None:
            raise RecensionError("name a version or a time (as_of), not both")
        if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):
            raise RecensionError(f"a version is a number of micro-batches, from 0, not {version!r}")
        return Version(version, None if as_of is None else time_of_belief(as_of, now()))

    @property
    def is_newest(self) -> bool:
        """Is no version of the past meant?"""
        return self.number is None and self.as_of is None


NEWEST: Final = Version()


def time_of_belief(as_of: TimeLike, clock: int) -> int:
    """A moment of the past by the wall clock, in microseconds since 1970."""
    try:
        moment = instant(as_of)
    except TimeError as why:
        raise TimeError(f"as_of: {why}") from None
    if kind_of(moment) == NAIVE:
        raise TimeError(
            f"as_of: {as_of!s} has no time zone, and the wall clock has one; write for example "
            "'2024-01-31T12:00:00+00:00'"
        )
    if moment > clock:
        raise TimeError(f"as_of: {describe_clock(moment)} is yet to come; it is {describe_clock(clock)}")
    return int(moment)


def describe_clock(ticks: int) -> str:
    """A time of the wall clock in messages."""
    return describe_time(ticks, AWARE)
