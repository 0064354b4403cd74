"""Expressions as trees: columns, literals, calls of known operations, calls of the user's functions.

The nodes are frozen and compared by structure (`plan.structure`). They say what is computed, and nothing of
how: `values` computes them, `rendering` prints them, the Spark runner translates some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.modules.functions import Function
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

    def over(self, children: Sequence[Tree]) -> Tree:
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
            return plain.cast(self.dtype, safe=not rounds)
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

    def over(self, children: Sequence[Tree]) -> Tree:
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

    def over(self, children: Sequence[Tree]) -> Tree:
        return replace(self, operands=tuple(children))


def walk(tree: Tree) -> Iterator[Tree]:
    """The tree and everything below it."""
    yield tree
    for child in tree.children:
        yield from walk(child)


def columns_of(tree: Tree) -> Iterator[str]:
    """Names of the columns it reads, some perhaps twice."""
    return (node.name for node in walk(tree) if isinstance(node, Column))


def rebuilt(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """The tree with every node changed, operands first; itself if nothing changes."""
    children = [rebuilt(child, change) for child in tree.children]
    is_same = all(new is old for new, old in zip(children, tree.children, strict=True))
    return change(tree if is_same else tree.over(children))


def substitute(tree: Tree, replacement: Callable[[str], Tree]) -> Tree:
    """The same computation over other columns: every column replaced by a tree."""
    return rebuilt(tree, lambda node: replacement(node.name) if isinstance(node, Column) else node)


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
    return rebuilt(
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
