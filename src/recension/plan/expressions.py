"""Expressions: what a row says about itself, written with narwhals, checked when the query is built.

An expression is computed row by row, so that it means the same on any batch. It is never evaluated on
data to find its type: an empty table of the right schema is enough.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import narwhals as nw
import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan import expression_tree as tree
from recension.plan.expression_values import values_of
from recension.plan.rendering import render
from recension.plan.type_names import type_name

IntoExpression: TypeAlias = nw.Expr | str | Any

_NO_KERNEL = re.compile(r"Function '(\w+)' has no kernel matching input types (\(.*\))")


@dataclass(frozen=True)
class Expression:
    """A narwhals expression; two that are written alike are equal."""

    structure: Hashable
    native: nw.Expr = field(compare=False, repr=False)

    @cached_property
    def references(self) -> frozenset[str]:
        """The columns it reads."""
        return frozenset(tree.columns_of(self.native))

    @cached_property
    def column(self) -> str | None:
        """The column's name if that is all there is to it."""
        return tree.plain_column(self.native)

    @cached_property
    def constant(self) -> pa.Scalar | None:
        """The value it has on every row, if it reads no column."""
        if self.references:
            return None
        return values_of([self.native], pa.table({"_": [0]})).column(0)[0]

    @cached_property
    def is_total(self) -> bool:
        """Can it be computed for any row at all? (A division or a cast may fail on some.)"""
        return tree.cannot_fail(self.native)

    def __str__(self) -> str:
        return render(self.native)


def expression(value: IntoExpression) -> Expression:
    """An expression from what users write: an expression, a column's name, or a value.

    >>> str(expression(nw.col("bytes") * 8)), str(expression("bytes")), str(expression(1))
    ('bytes * 8', 'bytes', '1')
    """
    if isinstance(value, Expression):
        return value
    native = (
        value if isinstance(value, nw.Expr) else nw.col(value) if isinstance(value, str) else nw.lit(value)
    )
    if reason := tree.why_not_row_by_row(native):
        raise SchemaError(f"{render(native)}: {reason}")
    return Expression(tree.structure(native), native)


def column(name: str) -> Expression:
    """A column as an expression."""
    return expression(nw.col(name))


def result_type(computed: Expression, schema: pa.Schema, verb: str) -> pa.DataType:
    """The type the expression has on rows of this schema; ``verb`` says in errors where it stands."""
    require_columns(computed.references, schema, verb)
    if computed.column is not None:
        return schema.field(computed.column).type
    try:
        return _inferred(computed, schema)
    except Exception as why:  # whatever fails on no rows at all is a misfit of types
        raise SchemaError(f"{verb}: cannot compute {computed}{_misfit(computed, schema, why)}") from None


@lru_cache(maxsize=4096)
def _inferred(computed: Expression, schema: pa.Schema) -> pa.DataType:
    """Remembered, for rewrites ask again and again."""
    return values_of([computed.native], schema.empty_table()).schema.field(0).type


def _misfit(computed: Expression, schema: pa.Schema, why: Exception) -> str:
    """Which types the columns have, and what the computation says to that."""
    types = [f"{name} is {type_name(schema.field(name).type)}" for name in sorted(computed.references)]
    said = str(why).splitlines()[0] if str(why) else type(why).__name__
    if match := _NO_KERNEL.match(said):
        said = f"{match[1]} does not take {match[2]}"
    return f", where {' and '.join(types)}: {said}" if types else f": {said}"


def result_name(computed: Expression, schema: pa.Schema, verb: str) -> str:
    """The name a column has that was not given one: its alias, or the first column it reads."""
    result_type(computed, schema, verb)
    if any(node.name == tree.CALL for node in tree.every_operation(computed.native)):
        raise SchemaError(f"{verb}: name the column, as in {verb}(answer={computed})")
    frame = nw.from_native(schema.empty_table(), eager_only=True)
    return str(frame.select(computed.native).columns[0])


def require_columns(names: Iterable[str], schema: pa.Schema, verb: str) -> None:
    """Raise unless every name is a column."""
    for name in sorted(set(names) - set(schema.names)):
        near = get_close_matches(name, schema.names, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise SchemaError(f"{verb}: there is no column {name!r}{hint}; {listed(schema)}")


def require_boolean(predicate: Expression, schema: pa.Schema, verb: str) -> None:
    """Raise unless the expression is a condition."""
    kind = result_type(predicate, schema, verb)
    if not pa.types.is_boolean(kind):
        raise SchemaError(f"{verb}: a condition must be true or false, but {predicate} is {type_name(kind)}")


def listed(schema: pa.Schema) -> str:
    """The columns that exist, for error messages."""
    if not schema.names:
        return "there are no columns"
    return "the columns are " + ", ".join(f"{f.name} ({type_name(f.type)})" for f in schema)
