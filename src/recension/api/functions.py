"""Functions for queries: aggregates and user-defined functions, of column names or expressions.

An aggregate is an expression: it may be part of arithmetic and conditions with others (`agg`, `having`). The
``where`` of an aggregate says which events count. If the aggregate ignores nulls, the values of all other
events become null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from recension.core.errors import SchemaError
from recension.modules.functions import OVER, Function, Over, on_arrays
from recension.plan import aggregates as specs
from recension.plan.aggregates import Interpolation
from recension.plan.expressions import Expr, Expression, IntoExpression, expression, tree_of
from recension.plan.expressions.tree import AggregateCall, Call, FunctionCall, Literal
from recension.plan.schemas import IntoType, type_of

# All of these are names of `recension` itself.
__all__ = [
    "aggregate",
    "all",
    "any",
    "arg_max",
    "arg_min",
    "collect",
    "count",
    "first",
    "last",
    "max",
    "mean",
    "median",
    "min",
    "n_unique",
    "quantile",
    "stddev",
    "sum",
    "time_weighted_mean",
    "top_k",
    "udf",
]


def count(column: IntoExpression | None = None, *, where: IntoExpression | None = None) -> Expr:
    """How many events, or how many of a column's values are not null.

    >>> import recension as rc
    >>> print(count(), count("x"), count(where=rc.col("x") > 3))
    count() count(x) count(when(x > 3).then(True))
    """
    if column is None and where is None:
        return as_expr(specs.Count(None))
    return as_expr(specs.Count(_argument(Literal(True) if column is None else column, where)))


def sum(column: IntoExpression, *, where: IntoExpression | None = None) -> Expr:
    """The sum: an int64 for whole numbers and booleans, a float64 for floats, exact for decimals.

    The sum of decimals has ten more digits than they have, at most 38.

    >>> import recension as rc
    >>> print(sum(rc.col("price") * rc.col("amount")))
    sum(price * amount)
    """
    return as_expr(specs.Sum(_argument(column, where)))


def mean(column: IntoExpression, *, where: IntoExpression | None = None) -> Expr:
    """The mean; for decimals it has four more digits, rounded half up.

    >>> print(mean("x"))
    mean(x)
    """
    return as_expr(specs.Mean(_argument(column, where)))


def time_weighted_mean(column: IntoExpression, *, where: IntoExpression | None = None) -> Expr:
    """The mean of the values, each weighted by how long its event lives within the window, as a float.

    An event that reaches beyond the window, or never ends, counts for the part inside. In a snapshot the same
    events live all the time, so there it equals the mean.

    >>> import recension as rc
    >>> s = rc.source("s", {"x": "int64"})
    >>> mean = s.tumbling(10).agg(mean=rc.time_weighted_mean("x"))
    >>> rc.run(mean, {"s": [rc.Insert({"x": 1}, 0, 9), rc.Insert({"x": 5}, 9, 20)]}, close=True).show()
    _vs  _ve  mean
    0    10   1.4
    10   20   5.0
    """
    return as_expr(specs.TimeWeightedMean(_argument(column, where)))


def min(column: IntoExpression, *, where: IntoExpression | None = None) -> Expr:
    """The least value; NaN only if there is nothing else.

    >>> print(min("x"))
    min(x)
    """
    return as_expr(specs.Min(_argument(column, where)))


def max(column: IntoExpression, *, where: IntoExpression | None = None) -> Expr:
    """The greatest value; NaN is greater than every number.

    >>> print(max("x"))
    max(x)
    """
    return as_expr(specs.Max(_argument(column, where)))


def arg_max(column: IntoExpression, by: IntoExpression, *, where: IntoExpression | None = None) -> Expr:
    """The value of the event that has the greatest ``by``; of several, of the first by (vs, ve, payload).

    Events whose ``by`` is null do not count. NaN is greater than every number.

    >>> print(arg_max("user", by="bytes"))
    arg_max(user, by=bytes)
    """
    return as_expr(specs.ArgMax(expression(column), _argument(by, where)))


def arg_min(column: IntoExpression, by: IntoExpression, *, where: IntoExpression | None = None) -> Expr:
    """The value of the event that has the least ``by``; of several, of the first by (vs, ve, payload).

    Events whose ``by`` is null do not count. NaN decides only if there is nothing else.

    >>> print(arg_min("user", by="bytes"))
    arg_min(user, by=bytes)
    """
    return as_expr(specs.ArgMin(expression(column), _argument(by, where)))


def n_unique(column: IntoExpression, *, where: IntoExpression | None = None) -> Expr:
    """How many different values there are, compared by 64-bit hashes; null does not count, NaN is one value.

    >>> print(n_unique("user"))
    n_unique(user)
    """
    return as_expr(specs.NUnique(_argument(column, where)))


def any(column: IntoExpression, *, where: IntoExpression | None = None) -> Expr:
    """Is a condition true for some event? Nulls do not count; if all are null, the answer is null.

    >>> import recension as rc
    >>> print(any(rc.col("bytes") > 3))
    any(bytes > 3)
    """
    return as_expr(specs.AnyTrue(_argument(column, where)))


def all(column: IntoExpression, *, where: IntoExpression | None = None) -> Expr:
    """Is a condition true for every event? Nulls do not count; if all are null, the answer is null.

    >>> print(all("ok"))
    all(ok)
    """
    return as_expr(specs.AllTrue(_argument(column, where)))


def stddev(column: IntoExpression, *, where: IntoExpression | None = None) -> Expr:
    """The sample standard deviation (n - 1); null for fewer than two values.

    >>> print(stddev("x"))
    stddev(x)
    """
    return as_expr(specs.StdDev(_argument(column, where)))


def quantile(
    column: IntoExpression,
    q: float,
    interpolation: Interpolation = "linear",
    *,
    where: IntoExpression | None = None,
) -> Expr:
    """The value at the fraction ``q`` of the sorted values, as a float.

    Between two values ``interpolation`` decides: ``linear``, the ``lower`` or the ``higher`` of the two, the
    ``nearest`` (the one of even rank, from 0, if both are equally near), or their ``midpoint``.

    >>> print(quantile("x", 0.9), quantile("x", 0.9, "lower"))
    quantile(x, 0.9) quantile(x, 0.9, interpolation='lower')
    """
    return as_expr(specs.Quantile(_argument(column, where), q, interpolation))


def median(column: IntoExpression, *, where: IntoExpression | None = None) -> Expr:
    """The middle one of the sorted values, or the mean of the two in the middle, as a float.

    >>> print(median("x"))
    quantile(x, 0.5)
    """
    return quantile(column, 0.5, where=where)


def first(column: IntoExpression, *, where: IntoExpression | None = None) -> Expr:
    """The value of the first event, by (vs, ve, payload).

    >>> print(first("x"))
    first(x)
    """
    return as_expr(specs.First(expression(column), where=_condition(where)))


def last(column: IntoExpression, *, where: IntoExpression | None = None) -> Expr:
    """The value of the last event, by (vs, ve, payload).

    >>> print(last("x", where="ok"))
    last(x, where=ok)
    """
    return as_expr(specs.Last(expression(column), where=_condition(where)))


def collect(column: IntoExpression, *, where: IntoExpression | None = None) -> Expr:
    """All values as a list, in (vs, ve, payload) order.

    >>> print(collect("x"))
    collect(x)
    """
    return as_expr(specs.Collect(expression(column), where=_condition(where)))


def top_k(
    k: int, by: IntoExpression, descending: bool = True, *, where: IntoExpression | None = None
) -> Expr:
    """The first ``k`` events by a column, as whole rows with their ``rank`` from 1.

    >>> print(top_k(3, by="bytes"))
    top_k(3, by=bytes)
    """
    return as_expr(specs.TopK(expression(by), k, descending, where=_condition(where)))


def aggregate(
    fn: Callable[[Any], Any],
    column: IntoExpression,
    *,
    result: IntoType = "float64",
    where: IntoExpression | None = None,
) -> Expr:
    """Any function of one array: the column's values, nulls included, in order of start and then of value.

    A function of pandas, such as ``pd.Series.skew``, gets a Series. It gives a float64 unless ``result``
    names another type. It is not called for a window in which no event satisfies ``where``: the answer is
    then null.

    >>> import numpy as np
    >>> print(aggregate(np.ptp, "x", result="int64"))
    ptp(x)
    """
    if not callable(fn):
        raise SchemaError(f"aggregate: {fn!r} is not a function")
    kind = type_of(result, "aggregate(result=...)")
    return as_expr(specs.FunctionOf(expression(column), on_arrays(fn), kind, where=_condition(where)))


def as_expr(aggregate: specs.Aggregate) -> Expr:
    """An aggregate as an expression, without a name of its own."""
    return Expr(AggregateCall(aggregate), None)


def _argument(column: IntoExpression, where: IntoExpression | None) -> Expression:
    """The value that counts; null for events that do not."""
    value = Expression(column) if isinstance(column, Literal) else expression(column)
    return value if where is None else Expression(Call("when", (expression(where).tree, value.tree)))


def _condition(where: IntoExpression | None) -> Expression | None:
    return None if where is None else expression(where)


@overload
def udf(fn: Callable[..., Any], *, result: IntoType, over: Over = "rows") -> Callable[..., Expr]: ...
@overload
def udf(
    fn: None = None, *, result: IntoType, over: Over = "rows"
) -> Callable[[Callable[..., Any]], Callable[..., Expr]]: ...


def udf(fn: Callable[..., Any] | None = None, *, result: IntoType, over: Over = "rows") -> Callable[..., Any]:
    """Make an expression of a Python function, for ``where``, ``select``, join conditions and so on.

    Parameters
    ----------
    fn
        A function with one argument per column. The same values must always give the same result.
    result
        The type of what it gives.
    over
        ``rows``: it is called for every row, with Python values. ``numpy``, ``arrow``: it is called once per
        batch, with whole columns, and returns a column.

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
        return Expr(FunctionCall(function, tuple(map(tree_of, columns))), None)

    call.__name__, call.__doc__ = function.name, fn.__doc__
    return call
