"""The kind of a time: ticks, timestamps without a zone (naive), or timestamps in a zone (aware).

Instants are kept as UTC ticks, whatever their kind. The kind says how they came and so how they go out
again; it is written as the Arrow type of such a column. Kinds do not mix: only the two ends of time go
with all of them, and so have none.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Final, TypeAlias

import pyarrow as pa

from recension.core.errors import TimeError

# int64, timestamp[us] or timestamp[us, tz=...]; None where nothing has been seen yet.
TimeKind: TypeAlias = pa.DataType | None

TICKS: Final = pa.int64()
NAIVE: Final = pa.timestamp("us")
AWARE: Final = pa.timestamp("us", "UTC")
_ENDS: Final = {2**63 - 1: "∞", -(2**63): "-∞"}
_UNITS: Final = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Instant(int):
    """Ticks that were given as a timestamp; equal to the same ticks, and printed as the timestamp."""

    kind: pa.DataType

    def __new__(cls, ticks: int, kind: pa.DataType = NAIVE) -> Instant:
        """The ticks of a timestamp of a kind."""
        made = super().__new__(cls, ticks)
        made.kind = kind
        return made

    def __str__(self) -> str:
        return shown(int(self), self.kind)

    def __repr__(self) -> str:
        return repr(str(self))

    def __add__(self, other: int) -> int:
        return of_kind(int(self) + int(other), self.kind)

    __radd__ = __add__

    def __sub__(self, other: int) -> int:
        less = int(self) - int(other)
        return less if isinstance(other, Instant) else of_kind(less, self.kind)


def of_kind(ticks: int, kind: TimeKind) -> int:
    """Ticks that know their kind; plain ticks, and the ends of time, need not be told."""
    return ticks if kind is None or pa.types.is_integer(kind) or ticks in _ENDS else Instant(ticks, kind)


def kind_of(ticks: int) -> TimeKind:
    """The kind of one time."""
    if isinstance(ticks, Instant):
        return ticks.kind
    return None if ticks in _ENDS else TICKS


def kind_of_column(column: pa.DataType) -> TimeKind:
    """The kind of the times in a column; none where its type can hold no times, or only nulls."""
    if pa.types.is_integer(column):
        return TICKS
    if pa.types.is_timestamp(column):
        return pa.timestamp("us", column.tz)
    return NAIVE if pa.types.is_date(column) else None


def kind_in_zone(zone: dt.tzinfo | None) -> pa.DataType:
    """The kind of the timestamps in a zone; one that Arrow cannot name goes out as UTC."""
    if zone is None:
        return NAIVE
    try:
        name = pa.lib.tzinfo_to_string(zone)
        pa.lib.string_to_tzinfo(name)
    except (ValueError, KeyError, TypeError, NotImplementedError):
        name = "UTC"
    return pa.timestamp("us", name)


def merged(one: TimeKind, other: TimeKind) -> TimeKind:
    """The kind for both, in UTC if their zones differ; an error if they do not mix."""
    if one is None or other is None or one == other:
        return other if one is None else one
    if _is_aware(one) and _is_aware(other):
        return AWARE
    raise TimeError(f"{in_words(other)} do not mix with {in_words(one)}; {advice(one, other)}")


# Operators know ticks only; who runs them says how people write these.
_IN_MESSAGES: ContextVar[TimeKind] = ContextVar("kind of the times in messages", default=None)


@contextmanager
def in_messages(kind: TimeKind) -> Iterator[None]:
    """Errors that are raised in here show times of this kind."""
    before = _IN_MESSAGES.set(kind)
    try:
        yield
    finally:
        _IN_MESSAGES.reset(before)


def kind_in_messages() -> TimeKind:
    """The kind of the times that an error shows."""
    return _IN_MESSAGES.get()


def in_words(kind: pa.DataType) -> str:
    """A kind, for messages.

    >>> in_words(TICKS), in_words(NAIVE), in_words(pa.timestamp("us", "Europe/Paris"))
    ('ticks', 'timestamps without a zone', 'timestamps in Europe/Paris')
    """
    if pa.types.is_integer(kind):
        return "ticks"
    return f"timestamps in {kind.tz}" if kind.tz else "timestamps without a zone"


def shown_here(ticks: int) -> str:
    """A time in an error of an operator."""
    return shown(ticks, kind_in_messages())


def shown(ticks: int, kind: TimeKind) -> str:
    """A time as people read it: in its own zone, ticks as they are.

    >>> shown(0, pa.timestamp("us", "Europe/Paris")), shown(0, NAIVE), shown(0, TICKS)
    ('1970-01-01 01:00:00+01:00', '1970-01-01 00:00:00', '0')
    """
    if ticks in _ENDS:
        return _ENDS[ticks]
    if kind is None or pa.types.is_integer(kind):
        return str(int(ticks))
    try:
        moment = (_EPOCH + dt.timedelta(microseconds=int(ticks))).astimezone(_zone(kind.tz or "UTC"))
    except OverflowError:  # outside the years 1 to 9999 there is no other form
        return str(int(ticks))
    return str(moment if kind.tz else moment.replace(tzinfo=None))


def are_timestamps_here() -> bool:
    """Does an error of an operator show times as timestamps, and so durations in words?"""
    kind = kind_in_messages()
    return kind is not None and bool(pa.types.is_timestamp(kind))


def duration_in_words(ticks: int) -> str:
    """A length of time as people write it, in the largest unit that gives a whole number.

    >>> [duration_in_words(ticks) for ticks in (10_000, 5_400_000_000, 86_400_000_000, 7, 0)]
    ['10ms', '90m', '1d', '7us', '0us']
    """
    for unit, size in _UNITS.items():
        if ticks and ticks % size == 0:
            return f"{ticks // size}{unit}"
    return f"{ticks}us"


@lru_cache(maxsize=64)
def _zone(name: str) -> dt.tzinfo:
    try:
        zone: dt.tzinfo = pa.lib.string_to_tzinfo(name)
    except (ValueError, KeyError):
        return dt.UTC
    return zone


def _is_aware(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz)


def advice(one: pa.DataType, other: pa.DataType) -> str:
    """What to do about two kinds that do not mix."""
    if TICKS in (one, other):
        return "integers are ticks: write all times as timestamps, or all as ticks"
    return "give all of them a zone, such as '2024-01-01T00:00:00+00:00', or none"
