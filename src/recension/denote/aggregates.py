"""Aggregates: what a set of events that are alive together says, as one value or as rows.

Source: the guide (aggregates, equality, ties). Nulls as in SQL: ``count()`` counts events, ``count(c)``
values that are not null, ``n_unique`` different ones; ``sum mean min max stddev quantile any all`` ignore
nulls and are null of none, and so are ``arg_max arg_min`` with nulls of what they are chosen by;
``first last collect`` keep them. Ties go by (vs, ve, payload); functions of the user's own get values by
start and value, whatever the ends are.
"""

from __future__ import annotations

import builtins
import math
import statistics
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, TypeAlias, TypeVar

from recension.core.errors import SchemaError
from recension.core.events import Event, Payload
from recension.denote.order import canonical, value_order

T = TypeVar("T")
Aggregate: TypeAlias = Callable[[Sequence[Event]], Any]
RowFunction: TypeAlias = Callable[[Sequence[Event]], list[Payload]]


def agg(**named: Aggregate) -> RowFunction:
    """One row: a column for each named aggregate.

    >>> agg(n=count(), total=sum("x"))([Event({"x": 1}, 0), Event({"x": None}, 0)])
    [{'n': 2, 'total': 1}]
    """
    return lambda events: [{name: compute(events) for name, compute in named.items()}]


def computed(fn: Callable[..., Any], *of: Aggregate) -> Aggregate:
    """What is computed from several aggregates; null if one of them is.

    >>> computed(lambda total, n: total / n, sum("x"), count())([Event({"x": 1}, 0), Event({"x": 4}, 0)])
    2.5
    """

    def compute(events: Sequence[Event]) -> Any:
        values = [each(events) for each in of]
        return None if any_null(values) else fn(*values)

    return compute


def any_null(values: Sequence[Any]) -> bool:
    """Is one of them null?"""
    return builtins.any(value is None for value in values)


def filtered(of: Callable[[Sequence[Event]], T], where: Callable[[Payload], Any]) -> Callable[..., T]:
    """An aggregate of the events whose payload satisfies a condition; null is not true.

    >>> filtered(count(), lambda payload: payload["x"] > 1)([Event({"x": 1}, 0), Event({"x": 4}, 0)])
    1
    """
    return lambda events: of([event for event in events if where(event.payload)])


def aggregate(fn: Callable[[list[Any]], Any], column: str) -> Aggregate:
    """Any function of one column's values, nulls included, by start and then by value; null of no events."""

    def by_start(event: Event) -> tuple[Any, ...]:
        return (event.vs, value_order(event.payload[column]))

    def compute(events: Sequence[Event]) -> Any:
        values = [event.payload[column] for event in sorted(events, key=by_start)]
        return fn(values) if values else None

    return compute


def _in_turn(fn: Callable[[list[Any]], Any], column: str) -> Aggregate:
    """A function of one column's values in (vs, ve, payload) order."""
    return lambda events: fn([event.payload[column] for event in canonical(events)])


def _of_values(fn: Callable[[list[Any]], Any], column: str, least: int = 1) -> Aggregate:
    """A function of the values that are not null, or null when there are fewer than ``least``."""

    def compute(values: list[Any]) -> Any:
        present = [value for value in values if value is not None]
        return fn(present) if len(present) >= least else None

    by_value = aggregate(compute, column)
    return lambda events: by_value(events) if events else compute([])


def count(column: str | None = None) -> Aggregate:
    """How many events, or how many of a column's values are not null."""
    return len if column is None else _of_values(len, column, least=0)


def n_unique(column: str) -> Aggregate:
    """How many different values there are: NaN is one, and 0.0 is -0.0."""
    return _of_values(lambda values: len({value_order(value) for value in values}), column, least=0)


def any(column: str) -> Aggregate:
    """Is some value true?"""
    return _of_values(builtins.any, column)


def all(column: str) -> Aggregate:
    """Are all values true?"""
    return _of_values(builtins.all, column)


def sum(column: str) -> Aggregate:
    """The sum: exact for integers and decimals, correctly rounded for floats."""
    return _of_values(_sum, column)


def mean(column: str) -> Aggregate:
    """The sum divided by the number of values; of decimals to four more digits, rounded half up."""
    return _of_values(_mean, column)


def _mean(values: list[Any]) -> Any:
    if not isinstance(values[0], Decimal):
        return _sum(values) / len(values)
    unit = Decimal(1).scaleb(builtins.min(int(value.as_tuple().exponent) for value in values) - 4)
    with localcontext(prec=200):
        return (_sum(values) / len(values)).quantize(unit, ROUND_HALF_UP)


def _sum(values: list[Any]) -> Any:
    if isinstance(values[0], Decimal):
        with localcontext(prec=200):
            return builtins.sum(values)
    if not builtins.any(isinstance(value, float) for value in values):
        return builtins.sum(values)
    try:
        return math.fsum(values)
    except (ValueError, OverflowError):  # infinities of both signs, or a sum beyond the largest float
        return builtins.sum(values)


def min(column: str) -> Aggregate:
    """The least value; NaN only if there is nothing else."""
    return _of_values(lambda values: builtins.min(values, key=value_order), column)


def max(column: str) -> Aggregate:
    """The greatest value; NaN is greater than every number."""
    return _of_values(lambda values: builtins.max(values, key=value_order), column)


def stddev(column: str) -> Aggregate:
    """The sample standard deviation (n - 1); null of fewer than two values."""

    def compute(values: list[Any]) -> float:
        if not builtins.all(math.isfinite(value) for value in values):
            return math.nan
        try:
            return float(statistics.stdev(values))  # in fractions, rounded once
        except OverflowError:  # beyond the largest float
            return math.inf

    return _of_values(compute, column, least=2)


def quantile(column: str, q: float, interpolation: str = "linear") -> Aggregate:
    """The value a part ``q`` of the way through the sorted values; ``interpolation`` is for between two.

    >>> quantile("x", 0.5)([Event({"x": x}, 0) for x in (4, 1, 3, 2)])
    2.5
    """

    def compute(values: list[Any]) -> float:
        ordered = [float(value) for value in sorted(values, key=value_order)]
        place = q * (len(ordered) - 1)
        low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
        if place == math.floor(place) or low == high:
            return low
        match interpolation:
            case "lower":
                return low
            case "higher":
                return high
            case "nearest":
                return ordered[round(place)]  # Python rounds a half to the even number
            case "midpoint":
                return 0.5 * low + 0.5 * high
        part = place - math.floor(place)
        return (1 - part) * low + part * high

    return _of_values(compute, column)


def median(column: str) -> Aggregate:
    """The value in the middle."""
    return quantile(column, 0.5)


def arg_max(column: str, by: str) -> Aggregate:
    """The value of the first event that has the greatest of another; NaN is greater than every number."""
    return _of_extreme(
        lambda found: builtins.max(found, key=lambda e: value_order(e.payload[by])), column, by
    )


def arg_min(column: str, by: str) -> Aggregate:
    """The value of the first event that has the least of another."""
    return _of_extreme(
        lambda found: builtins.min(found, key=lambda e: value_order(e.payload[by])), column, by
    )


def _of_extreme(choose: Callable[[list[Event]], Event], column: str, by: str) -> Aggregate:
    def compute(events: Sequence[Event]) -> Any:
        # Of several extreme ones Python's min and max give the first.
        found = [event for event in canonical(events) if event.payload[by] is not None]
        return choose(found).payload[column] if found else None

    return compute


def first(column: str) -> Aggregate:
    """The value of the first event."""
    return _in_turn(lambda values: values[0] if values else None, column)


def last(column: str) -> Aggregate:
    """The value of the last event."""
    return _in_turn(lambda values: values[-1] if values else None, column)


def collect(column: str) -> Aggregate:
    """All values as a list."""
    return _in_turn(list, column)


def top_k(k: int, by: str, descending: bool = True) -> RowFunction:
    """The first ``k`` events by a column, as whole payloads with their ``rank`` from 1.

    A null never outranks a value, whichever way the column is sorted.

    >>> top_k(2, by="x")([Event({"x": 1}, 0), Event({"x": 5}, 0), Event({"x": 3}, 0)])
    [{'x': 5, 'rank': 1}, {'x': 3, 'rank': 2}]
    """

    def compute(events: Sequence[Event]) -> list[Payload]:
        if builtins.any("rank" in event.payload for event in events):
            raise SchemaError("top_k adds a column 'rank', and the payload has one; rename it first")
        known = [event for event in canonical(events) if event.payload[by] is not None]
        unknown = [event for event in canonical(events) if event.payload[by] is None]
        # Sorting is stable, reversed too, so ties keep the order of events.
        known.sort(key=lambda event: value_order(event.payload[by]), reverse=descending)
        return [{**e.payload, "rank": rank} for rank, e in enumerate((known + unknown)[:k], start=1)]

    return compute


Counting: TypeAlias = Callable[[Sequence[Event], Sequence[Any]], list[Event]]
"""Of events and their values, those on which an answer rests: without the others it is the same."""


def counting_all(events: Sequence[Event], values: Sequence[Any]) -> list[Event]:
    """All of them: ``count()``, ``collect`` and functions of the user's own."""
    return list(events)


def counting_known(events: Sequence[Event], values: Sequence[Any]) -> list[Event]:
    """Those with values; if there are none, all: that there is no value rests on any of them."""
    return [e for e, value in zip(events, values, strict=True) if value is not None] or list(events)


def counting_extreme(choose: Callable[..., Any]) -> Counting:
    """Those that have the least value (``min``) or the greatest (``max``)."""

    def counting(events: Sequence[Event], values: Sequence[Any]) -> list[Event]:
        known = [(value_order(v), e) for e, v in zip(events, values, strict=True) if v is not None]
        if not known:
            return list(events)
        extreme = choose(order for order, _ in known)
        return [event for order, event in known if order == extreme]

    return counting


def counting_truth(decisive: bool) -> Counting:
    """Those with the value that decides, ``any`` by true ones and ``all`` by false ones; else as known."""

    def counting(events: Sequence[Event], values: Sequence[Any]) -> list[Event]:
        found = [e for e, value in zip(events, values, strict=True) if value is decisive]
        return found or counting_known(events, values)

    return counting


def counting_end(place: int) -> Counting:
    """The first (0) or the last (-1)."""
    return lambda events, values: [canonical(events)[place]]


def counting_first_extreme(choose: Callable[..., Any]) -> Counting:
    """The first of those with the least or greatest value: ``arg_min``, ``arg_max``."""
    extreme = counting_extreme(choose)

    def counting(events: Sequence[Event], values: Sequence[Any]) -> list[Event]:
        if not builtins.any(value is not None for value in values):
            return list(events)
        return [canonical(extreme(events, values))[0]]

    return counting


def counting_top(rank: int, descending: bool) -> Counting:
    """The first events by value, up to a rank."""

    def counting(events: Sequence[Event], values: Sequence[Any]) -> list[Event]:
        found = {id(event): value for event, value in zip(events, values, strict=True)}
        known = [event for event in canonical(events) if found[id(event)] is not None]
        unknown = [event for event in canonical(events) if found[id(event)] is None]
        known.sort(key=lambda event: value_order(found[id(event)]), reverse=descending)
        return (known + unknown)[:rank]

    return counting
