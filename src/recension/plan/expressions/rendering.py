"""Expressions as text, the way their author wrote them: ``bytes > 0``, ``(a + b) * 2``.

For people: two expressions that print alike need not be the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from inspect import Parameter, signature
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from recension.plan.expressions.tree import Call, Column, FunctionCall, Literal, Tree
from recension.plan.type_names import type_name

_ATOM: Final = 9
_BINARY: Final = {
    "==": 1,
    "!=": 1,
    "<": 1,
    "<=": 1,
    ">": 1,
    ">=": 1,
    "|": 2,
    "&": 3,
    "+": 4,
    "-": 4,
    "*": 5,
    "/": 5,
    "//": 5,
    "%": 5,
    "**": 7,
}
_UNARY: Final = {"negate": "-", "not": "~"}


def render(tree: Tree) -> str:
    """The expression as Python would have it, with columns by their bare names.

    >>> x = Column("x")
    >>> first = Call("str.slice", (x,), (("offset", 0), ("length", 3)))
    >>> render(Call("*", (Call("+", (x, Literal(1))), first)))
    '(x + 1) * x.str.slice(0, 3)'
    """
    return _rendered(tree)[0]


def _rendered(tree: Tree) -> tuple[str, int]:
    """The text and how tightly its outermost operation binds, as in Python."""
    match tree:
        case Column(name):
            return name, _ATOM
        case Literal(value, None):
            return repr(value), _ATOM
        case Literal(value, dtype):
            return f"lit({value!r}, {_plain(dtype)})", _ATOM
        case FunctionCall(function, operands):
            return f"{function.name}({', '.join(map(render, operands))})", _ATOM
        case Call(name) if name in _UNARY:
            return _UNARY[name] + _bracketed(tree.operands[0], 6), 6
        case Call(sign) if sign in _BINARY:
            return _binary(sign, *tree.operands), _BINARY[sign]
        case Call("when"):
            return _when(*tree.operands), _ATOM
        case Call():
            return _call(tree), _ATOM
    raise AssertionError(f"no text for {type(tree).__name__}")


def _binary(sign: str, left: Tree, right: Tree) -> str:
    # Comparisons do not chain and powers group to the right: their left side needs brackets.
    level = _BINARY[sign]
    left_least = level + 1 if level in (1, 7) else level
    return f"{_bracketed(left, left_least)} {sign} {_bracketed(right, level + 1)}"


def _bracketed(tree: Tree, least: int) -> str:
    text, binds = _rendered(tree)
    return text if binds >= least else f"({text})"


def _when(condition: Tree, value: Tree, otherwise: Tree | None = None) -> str:
    end = "" if otherwise is None else f".otherwise({render(otherwise)})"
    return f"when({render(condition)}).then({render(value)}){end}"


def _call(call: Call) -> str:
    """A method of its first operand, or a function of all; arguments left at their usual values are noise."""
    known = _parameters(call.name)
    shown: list[str] = []
    is_in_order = True
    for name, value in call.arguments:
        usual = known[name].default
        if type(value) is type(usual) and value == usual:
            is_in_order = False
            continue
        is_named = not is_in_order or known[name].kind is Parameter.KEYWORD_ONLY
        shown.append(f"{name}={_plain(value)}" if is_named else _plain(value))
    if "self" not in known:
        return f"{call.name}({', '.join([*map(render, call.operands), *shown])})"
    (of,) = call.operands
    return f"{_bracketed(of, _ATOM)}.{call.name}({', '.join(shown)})"


@cache
def _parameters(name: str) -> Mapping[str, Parameter]:
    """The parameters of a method or function, as users know it."""
    from recension.plan.expressions import functions  # which print themselves with this module

    space, _, method = name.rpartition(".")
    column = functions.col("x")
    home = type(attrgetter(space)(column) if space else column)
    return signature(getattr(home, method, None) or getattr(functions, method)).parameters


def _plain(value: Any) -> str:
    if isinstance(value, Tree):
        return render(value)
    if isinstance(value, pa.DataType):
        return repr(type_name(value))
    return repr(list(value) if isinstance(value, tuple) else value)
