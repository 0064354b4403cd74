"""Expressions in a plan: what a row says about itself, checked when the query is built.

An expression is computed row by row, so that it means the same on any batch. It is never evaluated on
data to find its type: an empty batch of the right schema is enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

from recension.core.errors import SchemaError, suggest_name
from recension.plan.expressions.conversion import operand
from recension.plan.expressions.expr import Expr
from recension.plan.expressions.functions import named_column
from recension.plan.expressions.tree import (
    ARITHMETIC,
    TOTAL,
    AggregateCall,
    Call,
    Column,
    Tree,
    aggregates_of,
    calls_functions,
    columns_of,
    render,
    walk,
)
from recension.plan.expressions.values import values_of
from recension.plan.schemas import END, START, list_columns, type_name
from recension.plan.structure import Structural

_COLUMN_FOR: Final = {START: "began", END: "ended"}

IntoExpression: TypeAlias = Expr | str | Any

_TOO_MANY_DIGITS: Final = "Decimal precision out of range"
_NO_KERNEL: Final = re.compile(r"Function '(\w+?)(?:_checked)?' has no kernel matching input types (\(.*\))")


@dataclass(frozen=True, eq=False)
class Expression(Structural):
    """A tree, with what is known of it; equal if the trees are."""

    tree: Tree

    @cached_property
    def references(self) -> frozenset[str]:
        """The columns it reads."""
        return frozenset(columns_of(self.tree))

    @cached_property
    def column(self) -> str | None:
        """The column's name if that is all there is to it."""
        return self.tree.name if isinstance(self.tree, Column) else None

    @cached_property
    def constant(self) -> pa.Scalar | None:
        """The value it has on every row, if it reads no column."""
        if self.references:
            return None
        (value,) = values_of([self.tree], pa.record_batch({"_": [0]}))
        return value

    def is_total(self, schema: pa.Schema) -> bool:
        """Can it be computed for any row of this schema? (A cast may fail, whole numbers may not fit.)"""
        calls = [node for node in walk(self.tree) if isinstance(node, Call)]
        if calls_functions(self.tree) or not all(call.name in TOTAL for call in calls):
            return False
        computed = (Expression(call) for call in calls if call.name in ARITHMETIC)
        return all(pa.types.is_floating(result_type(each, schema, "")) for each in computed)

    def __str__(self) -> str:
        return render(self.tree)


def expression(value: IntoExpression) -> Expression:
    """An expression from what users write: an expression, a column's name, or a value.

    >>> from recension.plan.expressions import col
    >>> str(expression(col("bytes") * 8)), str(expression("bytes")), str(expression(1))
    ('bytes * 8', 'bytes', '1')
    """
    if isinstance(value, Expression):
        return value
    tree = tree_of(value)
    if found := aggregates_of(tree):
        where = "" if isinstance(tree, AggregateCall) else f", here in {render(tree)}"
        raise SchemaError(
            f"{found[0]} is an aggregate{where}: it is computed from many events, not for each one",
            instead="; use it in agg(...) or having(...)",
        )
    return Expression(tree)


def tree_of(value: IntoExpression) -> Tree:
    """The same as a tree, in which there may be aggregates."""
    return named_column(value) if isinstance(value, str) else operand(value)


def column(name: str) -> Expression:
    """A column as an expression."""
    return Expression(Column(name))


def result_type(computed: Expression, schema: pa.Schema, verb: str) -> pa.DataType:
    """The type the expression has on rows of this schema; ``verb`` says in errors where it stands."""
    require_columns(computed.references, schema, verb)
    if computed.column is not None:
        return schema.field(computed.column).type
    try:
        return _infer_type(computed, schema)
    except Exception as why:  # whatever fails on no rows at all is a misfit of types
        _require_conditions(computed, schema, verb)
        raise SchemaError(
            f"{verb}: cannot compute {computed}{_describe_misfit(computed, schema, why)}"
        ) from None


def _require_conditions(computed: Expression, schema: pa.Schema, verb: str) -> None:
    """Raise if it has a ``when``, as ``where=`` of an aggregate is one, of what is not true or false."""
    for call in walk(computed.tree):
        if isinstance(call, Call) and call.name == "when":
            require_boolean(Expression(call.operands[0]), schema, verb)


@lru_cache(maxsize=4096)
def _infer_type(computed: Expression, schema: pa.Schema) -> pa.DataType:
    """Remembered, for rewrites ask again and again."""
    nothing = pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)
    (value,) = values_of([computed.tree], nothing)
    return value.type


def _describe_misfit(computed: Expression, schema: pa.Schema, why: Exception) -> str:
    """The types of the columns, and why the computation refuses them."""
    types = [f"{name} is {type_name(schema.field(name).type)}" for name in sorted(computed.references)]
    reason = str(why).splitlines()[0] if str(why) else type(why).__name__
    if match := _NO_KERNEL.match(reason):
        reads_times = not computed.references.isdisjoint((START, END))
        advice = _advise_on_times(match[1], match[2], reads_times=reads_times)
        reason = f"{match[1]} does not take {match[2]}{advice}"
    elif _TOO_MANY_DIGITS in reason:
        reason = (
            "a decimal has at most 38 digits, and the answer may have more; cast to float64 first, "
            'as in .cast("float64"); for a mean there is rc.mean'
        )
    return f", where {' and '.join(types)}: {reason}" if types else f": {reason}"


def _advise_on_times(kernel: str, types: str, *, reads_times: bool) -> str:
    """What to write where a duration was written that is none."""
    is_moved = (
        "timestamp" in types and kernel in ("add", "subtract") and ("string" in types or "int" in types)
    )
    if is_moved or ("duration" in types and "string" in types):
        return "; write a duration as in datetime.timedelta(minutes=10)"
    if reads_times and "int64" in types and "string" in types:
        return "; times are ticks here: write a duration as in rc.duration('10m')"
    if reads_times and "int64" in types and "duration" in types:
        return (
            "; times are ticks here: write a duration as in rc.duration('10m'), or say in the source what "
            "its times are, as in times='timestamp[us, UTC]'"
        )
    return ""


def result_name(given: IntoExpression, verb: str) -> str:
    """The name of a column that is not given one: its alias, or the first column it reads."""
    name = given.output_name if isinstance(given, Expr) else "literal"
    if name is None:
        raise SchemaError(f"{verb}: name the column", instead=f", as in {verb}(answer={given})")
    return name


def require_columns(names: Iterable[str], schema: pa.Schema, verb: str) -> None:
    """Raise unless every name is a column."""
    for name in sorted(set(names) - set(schema.names)):
        if name in (START, END):
            raise SchemaError(
                f"{verb}: rc.{name} cannot be used here; make it a column first",
                instead=f", as in with_columns({_COLUMN_FOR[name]}=rc.{name})",
            )
        hint = suggest_name(name, schema.names)
        raise SchemaError(f"{verb}: there is no column {name!r}{hint}; {list_columns(schema)}")


def require_boolean(predicate: Expression, schema: pa.Schema, verb: str) -> None:
    """Raise unless the expression is a condition."""
    kind = result_type(predicate, schema, verb)
    if not pa.types.is_boolean(kind):
        raise SchemaError(f"{verb}: a condition must be true or false, but {predicate} is {type_name(kind)}")
