"""Expressions as text, the way their author wrote them: ``bytes > 0``, ``(a + b) * 2``."""

from __future__ import annotations

from typing import Any, Final

import narwhals as nw
from narwhals._expression_parsing import ExprKind, ExprNode

from recension.plan import expression_tree as tree

_ATOM: Final = 9
_BINARY: Final = {
    "__eq__": ("==", 1),
    "__ne__": ("!=", 1),
    "__lt__": ("<", 1),
    "__le__": ("<=", 1),
    "__gt__": (">", 1),
    "__ge__": (">=", 1),
    "__or__": ("|", 2),
    "__and__": ("&", 3),
    "__add__": ("+", 4),
    "__sub__": ("-", 4),
    "__mul__": ("*", 5),
    "__truediv__": ("/", 5),
    "__floordiv__": ("//", 5),
    "__mod__": ("%", 5),
    "__pow__": ("**", 7),
}
_UNARY: Final = {"__neg__": "-", "__invert__": "~"}


def render(native: nw.Expr) -> str:
    """The expression as Python would have it, with columns by their bare names.

    >>> render((nw.col("bytes") > 0) & ~nw.col("site").is_in(["a", "b"]))
    "(bytes > 0) & ~site.is_in(['a', 'b'])"
    """
    return _chain(tree.operations(native))[0]


def _chain(nodes: tuple[ExprNode, ...]) -> tuple[str, int]:
    """The text and how tightly its outermost operation binds, as in Python."""
    text, binds = _root(nodes[0])
    for node in nodes[1:]:
        text, binds = _applied(node, text, binds)
    return text, binds


def _root(node: ExprNode) -> tuple[str, int]:
    if node.kind is ExprKind.COL:
        return ", ".join(node.kwargs["names"]), _ATOM
    if node.kind is ExprKind.LITERAL:
        return repr(node.kwargs["value"]), _ATOM
    if node.name == "when_then":
        return _when(node), _ATOM
    if node.name == "all_horizontal" and len(node.exprs) == 1:
        return _operand(tree.arguments(node)[0])
    return f"{node.name}({_call_arguments(node)})", _ATOM


def _applied(node: ExprNode, text: str, binds: int) -> tuple[str, int]:
    """One more operation on what stands so far."""
    if node.name == tree.CALL:
        operands = text.removeprefix("struct(").removesuffix(")") if text.startswith("struct(") else text
        return f"{node.kwargs['function'].name}({operands})", _ATOM
    if node.name in _UNARY:
        return _UNARY[node.name] + _bracketed(text, binds, 6), 6
    is_reversed = node.name.startswith("__r") and node.name.replace("__r", "__", 1) in _BINARY
    name = node.name.replace("__r", "__", 1) if is_reversed else node.name
    if name not in _BINARY:
        return f"{_bracketed(text, binds, _ATOM)}.{node.name}({_call_arguments(node)})", _ATOM
    sign, level = _BINARY[name]
    other, other_binds = _operand(tree.arguments(node)[0])
    left, right = (
        ((other, other_binds), (text, binds)) if is_reversed else ((text, binds), (other, other_binds))
    )
    # Comparisons do not chain and powers group to the right: their left side needs brackets.
    left_least = level + 1 if level in (1, 7) else level
    return f"{_bracketed(*left, left_least)} {sign} {_bracketed(*right, level + 1)}", level


def _operand(value: Any) -> tuple[str, int]:
    return _chain(tree.operations(value)) if isinstance(value, nw.Expr) else (repr(value), _ATOM)


def _bracketed(text: str, binds: int, least: int) -> str:
    return text if binds >= least else f"({text})"


def _when(node: ExprNode) -> str:
    condition, value, *otherwise = (_operand(operand)[0] for operand in tree.arguments(node))
    end = f".otherwise({otherwise[0]})" if otherwise else ""
    return f"when({condition}).then({value}){end}"


def _call_arguments(node: ExprNode) -> str:
    """What was given to a function; options left at their usual values would only be noise."""
    operands = [_operand(operand)[0] for operand in tree.arguments(node)]
    options = {k: v for k, v in node.kwargs.items() if v not in (None, False, "", "both", "half_to_even")}
    if node.name == "is_in":
        return repr(list(options["other"]))
    shown = [repr(v) if len(options) == 1 and not operands else f"{k}={v!r}" for k, v in options.items()]
    return ", ".join(operands + shown)
