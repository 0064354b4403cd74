"""User-defined functions as users write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from recension.core.errors import SchemaError
from recension.modules.functions import OVER, Function, Over
from recension.plan.expressions import Expr, IntoExpression, expression
from recension.plan.expressions.tree import FunctionCall
from recension.plan.schemas import IntoType, type_of


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
