"""Intervals kept in columns, ``[start, end)``: what a row says of a time other than its own lifetime.

An end that is null means for ever; an interval whose start is null is not there, and nothing is true of it.
Everything is an expression on the row, so that it runs wherever expressions do.

Source: temporal coalescing §1 and §5 (VALID, INTERSECT).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias, overload

import narwhals as nw

from recension.core import ticks
from recension.core.errors import SchemaError
from recension.core.ticks import FOREVER, DurationLike
from recension.plan.expressions import IntoExpression, expression

VALID_START: Final = "valid_start"
VALID_END: Final = "valid_end"


@dataclass(frozen=True, eq=False)
class Interval:
    """From ``low`` to ``high`` where it is ``there``; by default that is where ``low`` is not null.

    ``is_ticks`` if both are known to be int64.
    """

    low: nw.Expr
    high: nw.Expr
    is_ticks: bool = False
    there: nw.Expr | None = None

    @property
    def start(self) -> nw.Expr:
        """Null where it is not there."""
        return self.low if self.there is None else nw.when(self.there).then(self.low)

    @property
    def end(self) -> nw.Expr:
        """Null where it never ends, or is not there."""
        return self.high if self.there is None else nw.when(self.there).then(self.high)

    def __str__(self) -> str:
        return f"[{expression(self.start)}, {expression(self.end)})"


IntoInterval: TypeAlias = Interval | tuple[IntoExpression, IntoExpression]


def interval(start: IntoExpression, end: IntoExpression, forever: Any = None) -> Interval:
    """An interval in two columns, or computed from columns: whole numbers, timestamps or dates.

    Parameters
    ----------
    start, end
        Names of columns, or expressions.
    forever
        The end that means for ever in this table, besides null: ``rc.FOREVER``, ``date(9999, 12, 31)``.

    >>> print(interval("hired", "left"))
    [hired, left)
    """
    until = expression(end).native
    if forever is not None:
        until = nw.when(until != forever).then(until)
    return Interval(expression(start).native, until)


def valid(suffix: str = "") -> Interval:
    """When a coalesced row was valid: the columns ``valid_start`` and ``valid_end`` that ``coalesce`` makes.

    ``suffix`` is what a join has put after their names.

    >>> print(valid("_right"))
    [valid_start_right, valid_end_right)
    """
    return Interval(nw.col(VALID_START + suffix), nw.col(VALID_END + suffix), is_ticks=True)


def into_interval(given: IntoInterval, verb: str) -> Interval:
    """An interval from what users write: one that is made, or a pair of columns."""
    if isinstance(given, Interval):
        return given
    if isinstance(given, tuple) and len(given) == 2:
        return interval(*given)
    raise SchemaError(
        f"{verb}: {given!r} is no interval; write rc.valid(), rc.interval(start, end) or a pair of columns"
    )


def intersects(one: IntoInterval, other: IntoInterval) -> nw.Expr:
    """Does each start before the other ends? (What TSQL2 and the paper call OVERLAPS.)"""
    a, b = into_interval(one, "intersects"), into_interval(other, "intersects")
    return starts_before_end(a.start, b.end) & starts_before_end(b.start, a.end)


def intersect(one: IntoInterval, other: IntoInterval) -> Interval:
    """From the later start to the earlier end; not there (its start is null) if they do not intersect."""
    a, b = into_interval(one, "intersect"), into_interval(other, "intersect")
    start = nw.when(a.start >= b.start).then(a.start).otherwise(b.start)
    end = nw.when(end_before_end(a.end, b.end)).then(a.end).otherwise(b.end)
    return Interval(start, end, a.is_ticks and b.is_ticks, there=intersects(a, b))


@overload
def duration(of: IntoInterval) -> nw.Expr: ...
@overload
def duration(of: DurationLike) -> int: ...


def duration(of: IntoInterval | DurationLike) -> nw.Expr | int:
    """How long an interval lasts, in ticks; ``rc.FOREVER`` if it never ends, null if it is not there.

    Of a length in words it is the number of ticks, to compare with.

    >>> at_least_four_minutes = duration(valid()) >= duration("4m")
    >>> duration("4m")
    240000000
    """
    if not isinstance(of, Interval | tuple):
        return ticks.duration(of)
    given = into_interval(of, "duration")
    low, high = (x if given.is_ticks else x.cast(nw.Datetime("us")) for x in (given.low, given.high))
    length = high - low if given.is_ticks else (high - low).cast(nw.Int64)
    # A length beyond int64 comes out negative although the end comes after the start.
    is_endless = high.is_null() | ((length < 0) & (low <= high))
    known = nw.when(is_endless).then(nw.lit(FOREVER)).otherwise(length)
    return nw.when(~low.is_null() if given.there is None else given.there).then(known)


def starts_before_end(start: nw.Expr, end: nw.Expr) -> nw.Expr:
    """``start < end``, where a null end is for ever."""
    return (start < end) | (end.is_null() & ~start.is_null())


def end_before_start(end: nw.Expr, start: nw.Expr) -> nw.Expr:
    """``end < start``, where a null end is for ever."""
    return ~end.is_null() & (end < start)


def end_at_start(end: nw.Expr, start: nw.Expr) -> nw.Expr:
    """``end == start``, where a null end is for ever."""
    return ~end.is_null() & (end == start)


def end_before_end(one: nw.Expr, other: nw.Expr) -> nw.Expr:
    """``one < other``, where null is for ever."""
    return ~one.is_null() & (other.is_null() | (one < other))


def end_at_end(one: nw.Expr, other: nw.Expr) -> nw.Expr:
    """``one == other``, where null is for ever."""
    return (one.is_null() & other.is_null()) | (~one.is_null() & ~other.is_null() & (one == other))
