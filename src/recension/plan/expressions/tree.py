"""Expressions as trees: columns, literals, calls of known operations, of the user's functions, of aggregates.

The nodes are frozen and compared by structure (`plan.structure`). They say what is computed, not how:
`values` computes them, the Spark runner translates some of them. Their text is for people: two expressions
that print alike need not be the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from inspect import Parameter, signature
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from recension.core.casts import refuse_wrapped_decimals
from recension.core.errors import SchemaError
from recension.modules.functions import Function
from recension.plan.schemas import type_name
from recension.plan.structure import Structural

ARITHMETIC: Final = frozenset({"+", "-", "*", "negate", "abs", "sum_horizontal"})
"""Computed for any numbers if these are floats; whole numbers may not fit their type."""

# Operations that have a value for every row; others, such as casts and parsing, may fail on some.
TOTAL: Final = ARITHMETIC | {
    *("==", "!=", "<", "<=", ">", ">=", "&", "|", "not", "/"),
    *("when", "coalesce", "is_in", "is_between", "is_null", "is_nan", "is_finite", "fill_null"),
    *("all_horizontal", "any_horizontal", "min_horizontal", "max_horizontal"),
    *("str.len_chars", "str.starts_with", "str.ends_with", "str.contains", "str.strip_chars"),
    *("str.to_lowercase", "str.to_uppercase", "struct.field", "dt.date", "dt.year", "dt.month", "dt.day"),
    *("dt.hour", "dt.minute", "dt.second", "dt.weekday"),
}


@dataclass(frozen=True, eq=False)
class Tree(Structural):
    """One node of an expression."""

    @property
    def children(self) -> tuple[Tree, ...]:
        """The trees it is computed from."""
        return ()

    def with_children(self, children: Sequence[Tree]) -> Tree:
        """The same operation on other operands."""
        return self


@dataclass(frozen=True, eq=False)
class Column(Tree):
    """A column of the payload."""

    name: str


@dataclass(frozen=True, eq=False)
class Literal(Tree):
    """A value, of the type that Arrow takes it for or of a given one."""

    value: Any
    dtype: pa.DataType | None = None

    def __post_init__(self) -> None:
        self.scalar  # noqa: B018 (an error is raised where the literal is written)

    @cached_property
    def scalar(self) -> pa.Scalar:
        """The value as Arrow has it."""
        try:
            # Arrow takes whole numbers for int64, whether they fit or not.
            is_long = self.dtype == pa.uint64() and isinstance(self.value, int) and self.value >= 2**63
            plain = pa.scalar(self.value, self.dtype if is_long else None)
            if self.dtype is None:
                return plain
            # As a cast of a column: a whole number becomes the nearest float.
            rounds = pa.types.is_integer(plain.type) and pa.types.is_floating(self.dtype)
            cast = plain.cast(self.dtype, safe=not rounds)
            refuse_wrapped_decimals(plain, cast)
            return cast
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            kind = "a value that a column can hold" if self.dtype is None else f"a value of {self.dtype}"
            raise SchemaError(f"{self.value!r} is not {kind}") from None


@dataclass(frozen=True, eq=False)
class Call(Tree):
    """A known operation: an operator (``+``), a function (``coalesce``) or a method (``str.slice``).

    A method's operand is what it is called on; ``arguments`` are all the others, by name, in the order of its
    signature. Some of these may be trees too.
    """

    name: str
    operands: tuple[Tree, ...]
    arguments: tuple[tuple[str, Any], ...] = ()

    @cached_property
    def children(self) -> tuple[Tree, ...]:
        return (*self.operands, *(value for _, value in self.arguments if isinstance(value, Tree)))

    def with_children(self, children: Sequence[Tree]) -> Tree:
        given = iter(children)
        operands = tuple(next(given) for _ in self.operands)
        arguments = [(k, next(given) if isinstance(v, Tree) else v) for k, v in self.arguments]
        return Call(self.name, operands, tuple(arguments))


@dataclass(frozen=True, eq=False)
class FunctionCall(Tree):
    """A user's function of each row by itself."""

    function: Function
    operands: tuple[Tree, ...]

    @property
    def children(self) -> tuple[Tree, ...]:
        return self.operands

    def with_children(self, children: Sequence[Tree]) -> Tree:
        return replace(self, operands=tuple(children))


@dataclass(frozen=True, eq=False)
class AggregateCall(Tree):
    """An aggregate of the events of a window; `agg` makes a column of it before the rest is computed."""

    aggregate: Any


def aggregates_of(tree: Tree) -> list[Any]:
    """The aggregates in it, from left to right, some perhaps twice."""
    return [node.aggregate for node in walk(tree) if isinstance(node, AggregateCall)]


def walk(tree: Tree) -> Iterator[Tree]:
    """The tree and everything below it."""
    yield tree
    for child in tree.children:
        yield from walk(child)


def columns_of(tree: Tree) -> Iterator[str]:
    """Names of the columns it reads, some perhaps twice."""
    return (node.name for node in walk(tree) if isinstance(node, Column))


def rebuild_tree(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """The tree with every node changed, operands first; itself if nothing changes."""
    children = [rebuild_tree(child, change) for child in tree.children]
    is_same = all(new is old for new, old in zip(children, tree.children, strict=True))
    return change(tree if is_same else tree.with_children(children))


def substitute(tree: Tree, replacement: Callable[[str], Tree]) -> Tree:
    """The same computation over other columns: every column replaced by a tree."""
    return rebuild_tree(tree, lambda node: replacement(node.name) if isinstance(node, Column) else node)


def conjuncts(tree: Tree) -> list[Tree]:
    """The conditions that must all be true for this one to be true."""
    if isinstance(tree, Call) and tree.name == "&":
        return [part for operand in tree.operands for part in conjuncts(operand)]
    return [tree]


def calls_functions(tree: Tree) -> bool:
    """Is a user's function called in it?"""
    return any(isinstance(node, FunctionCall) for node in walk(tree))


def with_functions(tree: Tree, change: Callable[[Function], Function]) -> Tree:
    """The same computation with other functions in the place of users' own."""
    return rebuild_tree(
        tree,
        lambda node: (
            replace(node, function=change(node.function)) if isinstance(node, FunctionCall) else node
        ),
    )


def root_name(tree: Tree) -> str:
    """The name of the first column that a value comes from; that of a literal is ``literal``."""
    if isinstance(tree, Column):
        return tree.name
    operands = tree.children[1:] if isinstance(tree, Call) and tree.name == "when" else tree.children
    return next((name for name in map(root_name, operands) if name != "literal"), "literal")


_ATOM: Final = 9
_BINARY: Final = {
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), 1),
    "|": 2,
    "&": 3,
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "//", "%"), 5),
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
    return _render_with_binding(tree)[0]


def _render_with_binding(tree: Tree) -> tuple[str, int]:
    """The text and how tightly its outermost operation binds, as in Python."""
    match tree:
        case Column(name):
            return name, _ATOM
        case Literal(value, None):
            return repr(value), _ATOM
        case Literal(value, dtype):
            return f"lit({value!r}, {_render_value(dtype)})", _ATOM
        case AggregateCall(aggregate):
            return str(aggregate), _ATOM
        case FunctionCall(function, operands):
            return f"{function.name}({', '.join(map(render, operands))})", _ATOM
        case Call(name) if name in _UNARY:
            return _UNARY[name] + _bracket(tree.operands[0], 6), 6
        case Call(sign) if sign in _BINARY:
            return _render_binary(sign, *tree.operands), _BINARY[sign]
        case Call("when"):
            return _render_when(*tree.operands), _ATOM
        case Call():
            return _render_call(tree), _ATOM
    raise AssertionError(f"no text for {type(tree).__name__}")


def _render_binary(sign: str, left: Tree, right: Tree) -> str:
    # Comparisons do not chain and powers group to the right: their left side needs brackets.
    level = _BINARY[sign]
    left_least = level + 1 if level in (1, 7) else level
    return f"{_bracket(left, left_least)} {sign} {_bracket(right, level + 1)}"


def _bracket(tree: Tree, least: int) -> str:
    text, binds = _render_with_binding(tree)
    return text if binds >= least else f"({text})"


def _render_when(condition: Tree, value: Tree, otherwise: Tree | None = None) -> str:
    end = "" if otherwise is None else f".otherwise({render(otherwise)})"
    return f"when({render(condition)}).then({render(value)}){end}"


def _render_call(call: Call) -> str:
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
        shown.append(f"{name}={_render_value(value)}" if is_named else _render_value(value))
    if "self" not in known:
        return f"{call.name}({', '.join([*map(render, call.operands), *shown])})"
    (of,) = call.operands
    return f"{_bracket(of, _ATOM)}.{call.name}({', '.join(shown)})"


@cache
def _parameters(name: str) -> Mapping[str, Parameter]:
    """The parameters of a method or function, as users know it."""
    from recension.plan.expressions import functions  # which print themselves with this module

    space, _, method = name.rpartition(".")
    column = functions.col("x")
    home = type(attrgetter(space)(column) if space else column)
    return signature(getattr(home, method, None) or getattr(functions, method)).parameters


def _render_value(value: Any) -> str:
    if isinstance(value, Tree):
        return render(value)
    if isinstance(value, pa.DataType):
        return repr(type_name(value))
    return repr(list(value) if isinstance(value, tuple) else value)
