"""Looking into narwhals expressions: which columns, which operations, and the same over other columns.

narwhals keeps an expression as a chain of operations: a root (a column, a literal, a function of other
expressions) and the methods called on it. Only this module, `rendering` and `expression_values` know that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final

import narwhals as nw
from narwhals._expression_parsing import ExprKind, ExprNode

CALL: Final = "map_batches"
SEVERAL: Final = "struct"
_SEVERAL = {ExprKind.ALL, ExprKind.EXCLUDE, ExprKind.NTH, ExprKind.SELECTOR}

# Operations that have a value for every row; others, such as casts and parsing, may raise on some.
_TOTAL = frozenset(
    {
        *("col", "lit", "when_then", "coalesce", "is_in", "is_between", "is_null", "is_nan", "is_finite"),
        *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__and__", "__or__", "__invert__"),
        *("__add__", "__sub__", "__rsub__", "__mul__", "__truediv__", "__rtruediv__", "__neg__", "abs"),
        *(
            "all_horizontal",
            "any_horizontal",
            "min_horizontal",
            "max_horizontal",
            "sum_horizontal",
            "fill_null",
        ),
        *("str.len_chars", "str.starts_with", "str.ends_with", "str.contains", "str.strip_chars"),
        *("str.to_lowercase", "str.to_uppercase", "struct.field", "dt.date", "dt.year", "dt.month", "dt.day"),
        *("dt.hour", "dt.minute", "dt.second", "dt.weekday"),
    }
)


def called(function: Any, operands: Sequence[nw.Expr]) -> nw.Expr:
    """A user's function of each row by itself, over one column or over several as a struct.

    narwhals never evaluates it; see `expression_values`.
    """
    first, *others = operands
    over = nw.struct(*operands) if others else first
    call = ExprNode(ExprKind.ELEMENTWISE, CALL, function=function, return_dtype=None, returns_scalar=False)
    return nw.Expr(*over._nodes, call)


def operations(native: nw.Expr) -> tuple[ExprNode, ...]:
    """The chain, root first, without the steps that only name the result."""
    return tuple(node for node in native._nodes if node.name != "alias" and not node.name.startswith("name."))


def arguments(node: ExprNode) -> list[Any]:
    """The operands of an operation: expressions, or values; a column given by name is an expression."""
    return [nw.col(x) if isinstance(x, str) and not node.str_as_lit else x for x in node.exprs]


def every_operation(native: nw.Expr) -> Iterator[ExprNode]:
    """All operations of the expression and of its operands."""
    for node in operations(native):
        yield node
        for operand in arguments(node):
            if isinstance(operand, nw.Expr):
                yield from every_operation(operand)


def columns_of(native: nw.Expr) -> Iterator[str]:
    """Names of the columns it reads, some perhaps twice."""
    for node in every_operation(native):
        if node.kind is ExprKind.COL:
            yield from node.kwargs["names"]


def plain_column(native: nw.Expr) -> str | None:
    """The column's name, if the expression is a column and nothing else."""
    root, *rest = operations(native)
    return str(root.kwargs["names"][0]) if root.kind is ExprKind.COL and not rest else None


def cannot_fail(native: nw.Expr) -> bool:
    """Has every operation a value for every row?"""
    return all(node.name in _TOTAL for node in every_operation(native))


def conjuncts(native: nw.Expr) -> list[nw.Expr]:
    """The conditions that must all be true for this one to be true."""
    *left, last = operations(native)
    if last.name != "__and__" or not isinstance(last.exprs[0], nw.Expr):
        return [native]
    return conjuncts(nw.Expr(*left)) + conjuncts(last.exprs[0])


def why_not_row_by_row(native: nw.Expr) -> str | None:
    """A sentence if the expression needs more than the row it stands on, or stands for several columns."""
    for node in every_operation(native):
        if node.kind in _SEVERAL or (node.kind is ExprKind.COL and len(node.kwargs["names"]) != 1):
            return "an expression here stands for one column; name each column by itself"
        if node.kind is ExprKind.SERIES or any(_is_data(operand) for operand in arguments(node)):
            return "an expression cannot hold data of its own; join with another stream instead"
        if not node.kind.is_elementwise:
            return (
                f"{node.name}() looks at other rows, but expressions are computed row by row;"
                " use agg(...) for what several events say together"
            )
    return None


def _is_data(operand: Any) -> bool:
    return isinstance(operand, nw.Series) or (
        hasattr(operand, "__array__") and getattr(operand, "ndim", 0) > 0
    )


def substitute(native: nw.Expr, replacement: Callable[[str], nw.Expr]) -> nw.Expr:
    """The same computation over other columns: every column replaced by an expression."""
    root, *rest = operations(native)

    def inside(operand: nw.Expr) -> nw.Expr:
        return substitute(operand, replacement)

    if root.kind is ExprKind.COL:
        new_root = operations(replacement(root.kwargs["names"][0]))
    else:
        new_root = (with_operands(root, inside),)
    return nw.Expr(*new_root, *(with_operands(node, inside) for node in rest))


def with_operands(node: ExprNode, change: Callable[[nw.Expr], nw.Expr]) -> ExprNode:
    """The operation with other expressions as operands."""
    operands = [change(x) if isinstance(x, nw.Expr) else x for x in arguments(node)]
    return ExprNode(
        node.kind,
        node.name,
        exprs=operands,
        str_as_lit=node.str_as_lit,
        allow_multi_output=node.allow_multi_output,
        **node.kwargs,
    )


def calls_functions(native: nw.Expr) -> bool:
    """Is a user's function called in it?"""
    return any(node.name == CALL for node in every_operation(native))


def with_functions(native: nw.Expr, change: Callable[[Any], Any]) -> nw.Expr:
    """The same computation with other functions in the place of users' own."""

    def changed(node: ExprNode) -> ExprNode:
        if node.kind is ExprKind.COL:
            return node
        new = with_operands(node, lambda operand: with_functions(operand, change))
        if node.name == CALL:
            new.kwargs["function"] = change(node.kwargs["function"])
        return new

    return nw.Expr(*(changed(node) for node in operations(native)))


def structure(native: nw.Expr) -> Hashable:
    """A value that is equal for expressions written alike."""
    return tuple(
        (
            node.name,
            tuple(_shape(operand) for operand in arguments(node)),
            tuple((name, _shape(value)) for name, value in sorted(node.kwargs.items())),
        )
        for node in operations(native)
    )


def _shape(value: Any) -> Hashable:
    """Literals by type and value, for 1, 1.0 and True are not the same literal; the rest by identity."""
    if isinstance(value, nw.Expr):
        return structure(value)
    if isinstance(value, list | tuple):
        return (type(value).__name__, *(_shape(item) for item in value))
    if isinstance(value, Mapping):
        return (type(value).__name__, *((_shape(key), _shape(item)) for key, item in value.items()))
    try:
        hash(value)
    except TypeError:
        return ("object", id(value))
    return (type(value).__name__, value)
