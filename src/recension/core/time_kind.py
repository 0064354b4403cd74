"""The kind of a time: ticks, timestamps without a zone (naive), or timestamps in a zone (aware).

Instants are kept as UTC ticks, whatever their kind. The kind says how they came and so how they go out
again; it is written as the Arrow type of such a column. Kinds do not mix. Only the two ends of time go with
every kind, and so have none. All times of a session, a run or a stream are of one kind (`OneKind`).
"""

from __future__ import annotations

import datetime as dt
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
        return describe_time(int(self), self.kind)

    def __repr__(self) -> str:
        return repr(str(self))

    def __add__(self, other: int) -> int:
        return of_kind(int(self) + int(other), self.kind)

    __radd__ = __add__

    def __sub__(self, other: int) -> int:
        less = int(self) - int(other)
        return less if isinstance(other, Instant) else of_kind(less, self.kind)


def of_kind(ticks: int, kind: TimeKind) -> int:
    """Ticks that know their kind; plain ticks, and the ends of time, stay plain."""
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


def merge_kinds(one: TimeKind, other: TimeKind) -> TimeKind:
    """The kind for both, in UTC if their zones differ; an error if they do not mix."""
    if one is None or other is None or one == other:
        return other if one is None else one
    if is_aware(one) and is_aware(other):
        return AWARE
    raise TimeError(f"{describe_kind(other)} do not mix with {describe_kind(one)}; {_advice(one, other)}")


# Operators know only ticks; whoever runs them sets how messages show times.
_IN_MESSAGES: ContextVar[TimeKind] = ContextVar("kind of the times in messages", default=None)


class TimesInMessages:
    """Errors that are raised in here, a ``with`` block, show times of a kind."""

    __slots__ = ("_before", "_kind")

    def __init__(self, kind: TimeKind) -> None:
        self._kind = kind

    def __enter__(self) -> None:
        self._before = _IN_MESSAGES.set(self._kind)

    def __exit__(self, *error: object) -> None:
        _IN_MESSAGES.reset(self._before)


def kind_in_messages() -> TimeKind:
    """The kind of the times that an error shows."""
    return _IN_MESSAGES.get()


def describe_kind(kind: pa.DataType) -> str:
    """A kind, for messages.

    >>> describe_kind(TICKS), describe_kind(NAIVE), describe_kind(pa.timestamp("us", "Europe/Paris"))
    ('ticks', 'timestamps without a zone', 'timestamps in Europe/Paris')
    """
    if pa.types.is_integer(kind):
        return "ticks"
    return f"timestamps in {kind.tz}" if kind.tz else "timestamps without a zone"


def describe_time_in_message(ticks: int) -> str:
    """A time in an error of an operator, in the kind of whoever runs it."""
    return describe_time(ticks, kind_in_messages())


def describe_time(ticks: int, kind: TimeKind) -> str:
    """A time as people read it: in its own zone, ticks as they are.

    >>> describe_time(0, pa.timestamp("us", "Europe/Paris")), describe_time(0, NAIVE), describe_time(0, TICKS)
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


def messages_show_timestamps() -> bool:
    """Does an error of an operator show times as timestamps, and so durations with units?"""
    kind = kind_in_messages()
    return kind is not None and bool(pa.types.is_timestamp(kind))


@lru_cache(maxsize=64)
def _zone(name: str) -> dt.tzinfo:
    try:
        zone: dt.tzinfo = pa.lib.string_to_tzinfo(name)
    except (ValueError, KeyError):
        return dt.UTC
    return zone


def is_aware(kind: pa.DataType) -> bool:
    """Are these timestamps in a zone?"""
    return bool(pa.types.is_timestamp(kind) and kind.tz)


def _advice(one: pa.DataType, other: pa.DataType) -> str:
    """What to do about two kinds that do not mix."""
    if TICKS in (one, other):
        return "integers are ticks: write all times as timestamps, or all as ticks"
    return "give all of them a zone, such as '2024-01-01T00:00:00+00:00', or none"


class OneKind:
    """The kind that all times share. It remembers who came first, so that an error can name both sides."""

    def __init__(self) -> None:
        self.seen: TimeKind = None
        self._named: TimeKind = None
        self._first = ""

    @property
    def kind(self) -> TimeKind:
        """The kind of all times; its zone is that of the data, not that of times which users name."""
        return self._named if self.seen is None else self.seen

    def require(self, kind: TimeKind, where: str) -> None:
        """Refuse times of a kind that does not mix with what there is; ``where`` says whose they are."""
        known = self.kind
        if known is None or kind is None:
            return
        try:
            merge_kinds(known, kind)
        except TimeError:
            differ = f"are {describe_kind(kind)}, but those of {self._first} are {describe_kind(known)}"
            raise TimeError(f"{where}: the times {differ}; {_advice(known, kind)}") from None

    def note(self, kind: TimeKind, where: str) -> None:
        """The same, and remember that the data has this kind."""
        self._remember(kind, where)
        self.seen = merge_kinds(self.seen, kind)

    def note_named(self, kind: TimeKind, where: str) -> None:
        """The same for a time that a user names, such as a window's start; it is no data."""
        self._remember(kind, where)
        self._named = merge_kinds(self._named, kind)

    def _remember(self, kind: TimeKind, where: str) -> None:
        self.require(kind, where)
        if kind is not None:
            self._first = self._first or where

    def copy(self) -> OneKind:
        """A copy, to be added to on trial."""
        other = OneKind()
        other.seen, other._named, other._first = self.seen, self._named, self._first
        return other

    def snapshot(self) -> pa.Table:
        """The kinds, as the types of columns of nulls, and who came first."""
        kinds = [pa.null() if kind is None else kind for kind in (self.seen, self._named)]
        return pa.table(
            {"first": [self._first], "seen": pa.nulls(1, kinds[0]), "named": pa.nulls(1, kinds[1])}
        )

    def restore(self, table: pa.Table) -> None:
        """Become what `snapshot` gave."""
        kinds = [table.schema.field(name).type for name in ("seen", "named")]
        self.seen, self._named = (None if pa.types.is_null(kind) else kind for kind in kinds)
        self._first = table["first"][0].as_py()


class KnownKind(OneKind):
    """The kind of times that were checked elsewhere: plain ticks stand for it."""

    def __init__(self, kind: TimeKind) -> None:
        super().__init__()
        self.seen = kind

    def require(self, kind: TimeKind, where: str) -> None:
        """Everything has been checked."""

    def note(self, kind: TimeKind, where: str) -> None:
        """Everything is known."""

    def note_named(self, kind: TimeKind, where: str) -> None:
        """Everything is known."""

    def copy(self) -> OneKind:
        """Nothing can be added to it."""
        return self

    def restore(self, table: pa.Table) -> None:
        """The kind known now stays."""
