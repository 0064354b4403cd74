"""Functions that queries are written with: aggregates and users' own, of columns' names or expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from recension.core.errors import SchemaError
from recension.modules.functions import OVER, Function, Over, on_arrays
from recension.plan import aggregates as specs
from recension.plan.expressions import Expr, IntoExpression, expression
from recension.plan.expressions.tree import FunctionCall
from recension.plan.schemas import IntoType, type_of

# All of these are names of `recension` itself.
__all__ = [
    "aggregate",
    "collect",
    "count",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "quantile",
    "stddev",
    "sum",
    "top_k",
    "udf",
]


def count(column: IntoExpression | None = None) -> specs.Aggregate:
    """How many events, or how many of a column's values are not null.

    >>> print(count(), count("x"))
    count() count(x)
    """
    return specs.Count(None if column is None else expression(column))


def sum(column: IntoExpression) -> specs.Aggregate:
    """The sum: int64 of whole numbers and truth values, float64 of floats.

    >>> import recension as rc
    >>> print(sum(rc.col("price") * rc.col("amount")))
    sum(price * amount)
    """
    return specs.Sum(expression(column))


def mean(column: IntoExpression) -> specs.Aggregate:
    """The mean.

    >>> print(mean("x"))
    mean(x)
    """
    return specs.Mean(expression(column))


def min(column: IntoExpression) -> specs.Aggregate:
    """The least value; NaN only if there is nothing else.

    >>> print(min("x"))
    min(x)
    """
    return specs.Min(expression(column))


def max(column: IntoExpression) -> specs.Aggregate:
    """The greatest value; NaN is greater than every number.

    >>> print(max("x"))
    max(x)
    """
    return specs.Max(expression(column))


def stddev(column: IntoExpression) -> specs.Aggregate:
    """The sample standard deviation (n - 1); null of fewer than two values.

    >>> print(stddev("x"))
    stddev(x)
    """
    return specs.StdDev(expression(column))


def quantile(column: IntoExpression, q: float) -> specs.Aggregate:
    """The value a part ``q`` of the way through the sorted values, linear between neighbours.

    >>> print(quantile("x", 0.5))
    quantile(x, 0.5)
    """
    return specs.Quantile(expression(column), q)


def first(column: IntoExpression) -> specs.Aggregate:
    """The value of the first event, by (vs, ve, payload).

    >>> print(first("x"))
    first(x)
    """
    return specs.First(expression(column))


def last(column: IntoExpression) -> specs.Aggregate:
    """The value of the last event, by (vs, ve, payload).

    >>> print(last("x"))
    last(x)
    """
    return specs.Last(expression(column))


def collect(column: IntoExpression) -> specs.Aggregate:
    """All values as a list, in (vs, ve, payload) order.

    >>> print(collect("x"))
    collect(x)
    """
    return specs.Collect(expression(column))


def top_k(k: int, by: IntoExpression, descending: bool = True) -> specs.Aggregate:
    """The first ``k`` events by a column, as whole rows with their ``rank`` from 1.

    >>> print(top_k(3, by="bytes"))
    top_k(3, by=bytes)
    """
    return specs.TopK(expression(by), k, descending)


def aggregate(
    fn: Callable[[Any], Any], column: IntoExpression, *, result: IntoType = "float64"
) -> specs.Aggregate:
    """Any function of one array: the column's values, nulls included, in order of start and then of value.

    A function of pandas, such as ``pd.Series.skew``, gets a Series. It gives a float64 unless ``result``
    names another type.

    >>> import numpy as np
    >>> print(aggregate(np.ptp, "x", result="int64"))
    ptp(x)
    """
    if not callable(fn):
        raise SchemaError(f"aggregate: {fn!r} is not a function")
    return specs.FunctionOf(expression(column), on_arrays(fn), type_of(result, "aggregate(result=...)"))


@overload
def udf(fn: Callable[..., Any], *, result: IntoType, over: Over = "rows") -> Callable[..., Expr]: ...
@overload
def udf(
    fn: None = None, *, result: IntoType, over: Over = "rows"
) -> Callable[[Callable[..., Any]], Callable[..., Expr]]: ...


def udf(fn: Callable[..., Any] | None = None, *, result: IntoType, over: Over = "rows") -> Callable[..., Any]:
    """A Python function for use in ``where``, ``select``, join conditions: wherever expressions stand.

    Parameters
    ----------
    fn
        A function of as many values as it is given columns. The same values must always give the same.
    result
        The type of what it gives.
    over
        ``rows``: it is called for every row, with Python values. ``numpy``, ``arrow``: it is called once a
        batch, with whole columns, and gives a column.

    >>> import recension as rc
    >>> @rc.udf(result="float64", over="numpy")
    ... def threshold(kind):
    ...     return 10.0 + kind
    >>> s = rc.source("s", {"kind": "int64", "x": "float64"})
    >>> low = s.where(rc.col("x") < threshold("kind"))
    >>> rc.run(low, {"s": [rc.Insert({"kind": 1, "x": 3.5}, 0, 9)]}).show()
    _vs  _ve  kind  x
    0    9    1     3.5
    """
    if fn is None:
        return lambda given: udf(given, result=result, over=over)
    if not callable(fn):
        raise SchemaError(f"udf: {fn!r} is not a function")
    if over not in OVER:
        raise SchemaError(f"udf: over is one of {', '.join(map(repr, OVER))}, not {over!r}")
    function = Function(fn, type_of(result, "udf(result=...)"), over)

    def call(*columns: IntoExpression) -> Expr:
        if not columns:
            raise SchemaError(f"udf {function.name}: give it a column, as in {function.name}('x')")
        return Expr(FunctionCall(function, tuple(expression(column).tree for column in columns)), None)

    call.__name__, call.__doc__ = function.name, fn.__doc__
    return call
