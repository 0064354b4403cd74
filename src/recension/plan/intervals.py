"""Intervals kept in columns, ``[start, end)``, and Allen's thirteen relations between them.

An end that is null means for ever. An interval whose start is null does not exist, and no predicate is true
of it. Everything is an expression, so it runs on every engine.

Of any two intervals exactly one relation is true. Intervals may be empty, ``[t, t)``, as the latest one of a
window extent is: the relations still exclude each other and leave nothing out. The starts decide first, so
that ``[5, 5)`` starts ``[5, 9)`` and is met by ``[1, 5)``.

Source: Allen, Maintaining knowledge about temporal intervals; temporal coalescing §1 and §5 (VALID,
INTERSECT).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, overload

from recension.core import ticks
from recension.core.errors import SchemaError
from recension.core.ticks import BEGINNING, FOREVER, DurationLike
from recension.plan.expressions import Expr, IntoExpression, col, expression, lit, when

VALID_START: Final = "valid_start"
VALID_END: Final = "valid_end"


@dataclass(frozen=True, eq=False)
class Interval:
    """From ``low`` to ``high`` where it exists (``there``); by default where ``low`` is not null.

    ``is_ticks`` if both are known to be int64.
    """

    low: Expr
    high: Expr
    is_ticks: bool = False
    there: Expr | None = None

    @property
    def start(self) -> Expr:
        """Null where it is not there."""
        return self.low if self.there is None else when(self.there).then(self.low)

    @property
    def end(self) -> Expr:
        """Null where it never ends, or is not there."""
        return self.high if self.there is None else when(self.there).then(self.high)

    def __str__(self) -> str:
        return f"[{expression(self.start)}, {expression(self.end)})"


IntoInterval: TypeAlias = Interval | tuple[IntoExpression, IntoExpression]


def interval(start: IntoExpression, end: IntoExpression, forever: Any = None) -> Interval:
    """An interval in two columns, or computed from columns: integers, timestamps or dates.

    Parameters
    ----------
    start, end
        Names of columns, or expressions.
    forever
        A value that also means for ever in this table, as null does: ``rc.FOREVER``, ``date(9999, 12, 31)``.

    >>> print(interval("hired", "left"))
    [hired, left)
    """
    until = _expr(end)
    if forever is not None:
        until = when(until != forever).then(until)
    return Interval(_expr(start), until)


def _expr(given: IntoExpression) -> Expr:
    return given if isinstance(given, Expr) else Expr(expression(given).tree, None)


def valid(suffix: str = "") -> Interval:
    """When a coalesced row was valid: the columns ``valid_start`` and ``valid_end`` that ``coalesce`` makes.

    ``suffix`` is the suffix that a join added to their names.

    >>> print(valid("_right"))
    [valid_start_right, valid_end_right)
    """
    return Interval(col(VALID_START + suffix), col(VALID_END + suffix), is_ticks=True)


def into_interval(given: IntoInterval, verb: str) -> Interval:
    """An interval from what users write: one that is made, or a pair of columns."""
    if isinstance(given, Interval):
        return given
    if isinstance(given, tuple) and len(given) == 2:
        return interval(*given)
    raise SchemaError(
        f"{verb}: {given!r} is no interval",
        instead="; write rc.valid(), rc.interval(start, end) or a pair of columns",
    )


def intersects(one: IntoInterval, other: IntoInterval) -> Expr:
    """Does each start before the other ends? (What TSQL2 and the paper call OVERLAPS.)"""
    a, b = into_interval(one, "intersects"), into_interval(other, "intersects")
    return starts_before_end(a.start, b.end) & starts_before_end(b.start, a.end)


def intersect(one: IntoInterval, other: IntoInterval) -> Interval:
    """From the later start to the earlier end; it does not exist (null start) if they do not intersect."""
    a, b = into_interval(one, "intersect"), into_interval(other, "intersect")
    start = when(a.start >= b.start).then(a.start).otherwise(b.start)
    end = when(end_before_end(a.end, b.end)).then(a.end).otherwise(b.end)
    return Interval(start, end, a.is_ticks and b.is_ticks, there=intersects(a, b))


@overload
def duration(of: IntoInterval) -> Expr: ...
@overload
def duration(of: DurationLike) -> int: ...


def duration(of: IntoInterval | DurationLike) -> Expr | int:
    """The length of an interval in ticks; ``rc.FOREVER`` if it never ends, null if it does not exist.

    For a duration written as text, it is the number of ticks, to compare with.

    >>> at_least_four_minutes = duration(valid()) >= duration("4m")
    >>> duration("4m")
    240000000
    """
    if not isinstance(of, Interval | tuple):
        return ticks.duration(of)
    given = into_interval(of, "duration")
    low, high = (x if given.is_ticks else _ticks(x) for x in (given.low, given.high))
    # A length beyond int64 is endless too; one that is as far below 0 (an interval written backwards) is cut.
    is_endless = high.is_null() | (high > when(low < 0).then(low + FOREVER))
    is_backwards = high < when(low > 0).then(low + BEGINNING)
    known = when(is_endless).then(lit(FOREVER)).when(is_backwards).then(lit(BEGINNING)).otherwise(high - low)
    return when(~low.is_null() if given.there is None else given.there).then(known)


def _ticks(time: Expr) -> Expr:
    return time.cast("timestamp[us]").cast("int64")


def starts_before_end(start: Expr, end: Expr) -> Expr:
    """``start < end``, where a null end is for ever."""
    return (start < end) | (end.is_null() & ~start.is_null())


def end_before_start(end: Expr, start: Expr) -> Expr:
    """``end < start``, where a null end is for ever."""
    return ~end.is_null() & (end < start)


def end_at_start(end: Expr, start: Expr) -> Expr:
    """``end == start``, where a null end is for ever."""
    return ~end.is_null() & (end == start)


def end_before_end(one: Expr, other: Expr) -> Expr:
    """``one < other``, where null is for ever."""
    return ~one.is_null() & (other.is_null() | (one < other))


def end_at_end(one: Expr, other: Expr) -> Expr:
    """``one == other``, where null is for ever."""
    return (one.is_null() & other.is_null()) | (~one.is_null() & ~other.is_null() & (one == other))


Relation: TypeAlias = Callable[[IntoInterval, IntoInterval], Expr]


def before(one: IntoInterval, other: IntoInterval) -> Expr:
    """It ends, and there is a gap.

    ::

        one    |---|
        other          |---|
    """
    a, b = _both(one, other, "before")
    return end_before_start(a.end, b.start) & (a.start < b.start)


def meets(one: IntoInterval, other: IntoInterval) -> Expr:
    """It ends where the other starts.

    ::

        one    |---|
        other      |---|
    """
    a, b = _both(one, other, "meets")
    return end_at_start(a.end, b.start) & (a.start < b.start)


def overlaps(one: IntoInterval, other: IntoInterval) -> Expr:
    """It starts first and ends inside the other; for a shared instant of any kind see ``intersects``.

    ::

        one    |-----|
        other     |-----|
    """
    a, b = _both(one, other, "overlaps")
    return (a.start < b.start) & starts_before_end(b.start, a.end) & end_before_end(a.end, b.end)


def starts(one: IntoInterval, other: IntoInterval) -> Expr:
    """Both start together; it ends first.

    ::

        one    |---|
        other  |------|
    """
    a, b = _both(one, other, "starts")
    return (a.start == b.start) & end_before_end(a.end, b.end)


def during(one: IntoInterval, other: IntoInterval) -> Expr:
    """It starts later and ends earlier.

    ::

        one      |--|
        other  |------|
    """
    a, b = _both(one, other, "during")
    return (b.start < a.start) & starts_before_end(a.start, b.end) & end_before_end(a.end, b.end)


def finishes(one: IntoInterval, other: IntoInterval) -> Expr:
    """It starts later; both end together.

    ::

        one       |---|
        other  |------|
    """
    a, b = _both(one, other, "finishes")
    return (b.start < a.start) & starts_before_end(a.start, b.end) & end_at_end(a.end, b.end)


def equals(one: IntoInterval, other: IntoInterval) -> Expr:
    """Both start together and end together."""
    a, b = _both(one, other, "equals")
    return (a.start == b.start) & end_at_end(a.end, b.end)


def after(one: IntoInterval, other: IntoInterval) -> Expr:
    """The other is before it."""
    return before(other, one)


def met_by(one: IntoInterval, other: IntoInterval) -> Expr:
    """It starts where the other ends."""
    return meets(other, one)


def overlapped_by(one: IntoInterval, other: IntoInterval) -> Expr:
    """The other starts first and ends inside it."""
    return overlaps(other, one)


def started_by(one: IntoInterval, other: IntoInterval) -> Expr:
    """Both start together; the other ends first."""
    return starts(other, one)


def contains(one: IntoInterval, other: IntoInterval) -> Expr:
    """The other starts later and ends earlier."""
    return during(other, one)


def finished_by(one: IntoInterval, other: IntoInterval) -> Expr:
    """The other starts later; both end together."""
    return finishes(other, one)


RELATIONS: Final[tuple[Relation, ...]] = (
    *(before, meets, overlaps, starts, during, finishes, equals),
    *(after, met_by, overlapped_by, started_by, contains, finished_by),
)


def relation(one: IntoInterval, other: IntoInterval) -> Expr:
    """The name of the relation that is true of them, null if one of them does not exist."""
    a, b = _both(one, other, "relation")
    last, *others = reversed(RELATIONS)
    name: Expr = when(last(a, b)).then(lit(last.__name__))
    for holds in others:
        name = when(holds(a, b)).then(lit(holds.__name__)).otherwise(name)
    return name


def _both(one: IntoInterval, other: IntoInterval, verb: str) -> tuple[Interval, Interval]:
    return into_interval(one, verb), into_interval(other, verb)
