"""Aggregates: what a set of events that are alive together says, as one value or as rows.

Source: the guide (aggregates, equality, ties). Nulls as in SQL: ``count()`` counts events, ``count(c)``
values that are not null; ``sum mean min max stddev quantile`` ignore nulls and are null of none;
``first last collect`` keep them. Ties go by (vs, ve, payload); functions of the user's own get values by
start and value, whatever the ends are.
"""

from __future__ import annotations

import builtins
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from recension.core.errors import SchemaError
from recension.core.events import Event, Payload
from recension.denote.order import canonical, value_order

Aggregate: TypeAlias = Callable[[Sequence[Event]], Any]
RowFunction: TypeAlias = Callable[[Sequence[Event]], list[Payload]]


def agg(**named: Aggregate) -> RowFunction:
    """One row: a column for each named aggregate.

    >>> agg(n=count(), total=sum("x"))([Event({"x": 1}, 0), Event({"x": None}, 0)])
    [{'n': 2, 'total': 1}]
    """
    return lambda events: [{name: compute(events) for name, compute in named.items()}]


def aggregate(fn: Callable[[list[Any]], Any], column: str) -> Aggregate:
    """Any function of one column's values, nulls included, by start and then by value."""

    def by_start(event: Event) -> tuple[Any, ...]:
        return (event.vs, value_order(event.payload[column]))

    return lambda events: fn([event.payload[column] for event in sorted(events, key=by_start)])


def _in_turn(fn: Callable[[list[Any]], Any], column: str) -> Aggregate:
    """A function of one column's values in (vs, ve, payload) order."""
    return lambda events: fn([event.payload[column] for event in canonical(events)])


def _of_values(fn: Callable[[list[Any]], Any], column: str, least: int = 1) -> Aggregate:
    """A function of the values that are not null, or null when there are fewer than ``least``."""

    def compute(values: list[Any]) -> Any:
        present = [value for value in values if value is not None]
        return fn(present) if len(present) >= least else None

    return aggregate(compute, column)


def count(column: str | None = None) -> Aggregate:
    """How many events, or how many of a column's values are not null."""
    return len if column is None else _of_values(len, column, least=0)


def sum(column: str) -> Aggregate:
    """The sum: exact for integers, correctly rounded for floats."""
    return _of_values(_sum, column)


def mean(column: str) -> Aggregate:
    """The sum divided by the number of values."""
    return _of_values(lambda values: _sum(values) / len(values), column)


def _sum(values: list[Any]) -> Any:
    if not any(isinstance(value, float) for value in values):
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
        if not all(math.isfinite(value) for value in values):
            return math.nan
        try:
            return float(statistics.stdev(values))  # in fractions, rounded once
        except OverflowError:  # beyond the largest float
            return math.inf

    return _of_values(compute, column, least=2)


def quantile(column: str, q: float) -> Aggregate:
    """The value a part ``q`` of the way through the sorted values, linear between neighbours.

    >>> quantile("x", 0.5)([Event({"x": x}, 0) for x in (4, 1, 3, 2)])
    2.5
    """

    def compute(values: list[Any]) -> float:
        ordered = sorted(values, key=value_order)
        below = math.floor(q * (len(ordered) - 1))
        part = q * (len(ordered) - 1) - below
        low = float(ordered[below])
        return low + part * (float(ordered[below + 1]) - low) if part else low

    return _of_values(compute, column)


def first(column: str) -> Aggregate:
    """The value of the first event."""
    return _in_turn(lambda values: values[0], column)


def last(column: str) -> Aggregate:
    """The value of the last event."""
    return _in_turn(lambda values: values[-1], column)


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
        if any("rank" in event.payload for event in events):
            raise SchemaError("top_k adds a column 'rank', and the payload has one; rename it first")
        known = [event for event in canonical(events) if event.payload[by] is not None]
        unknown = [event for event in canonical(events) if event.payload[by] is None]
        # Sorting is stable, reversed too, so ties keep the order of events.
        known.sort(key=lambda event: value_order(event.payload[by]), reverse=descending)
        return [{**e.payload, "rank": rank} for rank, e in enumerate((known + unknown)[:k], start=1)]

    return compute
