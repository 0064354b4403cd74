"""Allen's thirteen relations between intervals in columns: of any two intervals exactly one is true.

Ends that are null are for ever. Intervals may be empty, ``[t, t)``, as the latest one of a window extent
is: the relations still exclude each other and leave nothing out. The starts decide first, so that
``[5, 5)`` starts ``[5, 9)`` and is met by ``[1, 5)``.

Source: Allen, Maintaining knowledge about temporal intervals; temporal coalescing §1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from recension.plan.expressions import Expr, lit, when
from recension.plan.intervals import (
    Interval,
    IntoInterval,
    end_at_end,
    end_at_start,
    end_before_end,
    end_before_start,
    into_interval,
    starts_before_end,
)

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
    """The name of the relation that is true of them, null if one of them is not there."""
    a, b = _both(one, other, "relation")
    last, *others = reversed(RELATIONS)
    name: Expr = when(last(a, b)).then(lit(last.__name__))
    for holds in others:
        name = when(holds(a, b)).then(lit(holds.__name__)).otherwise(name)
    return name


def _both(one: IntoInterval, other: IntoInterval, verb: str) -> tuple[Interval, Interval]:
    return into_interval(one, verb), into_interval(other, verb)
