"""Span steps: Spark's own filters and projections where they compute what Arrow does, else Arrow itself.

Expressions become Spark columns where Spark computes exactly what Arrow computes. Arrow is the measure: NaN
is equal to and less than nothing. Types are limited to those whose values both hold alike; everything else
(divisions, casts, text in capitals, narrow numbers) is left to Arrow itself. So is arithmetic of whole
numbers, which fails where the result does not fit: Spark may compute it for rows that an earlier step drops,
or leave it out, and would fail elsewhere than Arrow does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as f

from recension.plan.expressions import Expression, column, result_type
from recension.plan.expressions.tree import Call, Literal, Tree
from recension.plan.expressions.tree import Column as ColumnTree
from recension.plan.nodes import Project, Span, Where
from recension.runners.spark.batch.frame import VE, VS, Frame, column_name
from recension.runners.spark.batch.local_operators import map_batches, stand_in_source


def where(node: Where, frame: Frame) -> Frame:
    """The events whose payload satisfies the predicate."""
    holds = to_spark(node.predicate, frame.schema, frame.column)
    return map_batches(node, frame) if holds is None else Frame(frame.df.where(holds), frame.schema)


def project(node: Project, frame: Frame) -> Frame:
    """Other columns."""
    columns = _to_columns([computed for _, computed in node.outputs], frame)
    if columns is None:
        return map_batches(node, frame)
    chosen = [made.alias(column_name(i)) for i, made in enumerate(columns)]
    return Frame(frame.df.select(VS, VE, *chosen), node.schema)


def span(node: Span, frame: Frame) -> Frame:
    """Predicates in turn, then the outputs; from the first one that Spark cannot do on, by Arrow."""
    predicates = list(node.predicates)
    while predicates and (holds := to_spark(predicates[0], frame.schema, frame.column)) is not None:
        frame = Frame(frame.df.where(holds), frame.schema)
        predicates.pop(0)
    if predicates:
        return map_batches(replace(node, input=stand_in_source(frame), predicates=tuple(predicates)), frame)
    return project(Project(stand_in_source(frame), node.outputs), frame)


def add_columns(frame: Frame, computed: Sequence[Expression]) -> tuple[Frame, list[str]]:
    """The frame with further columns, and what Spark calls those."""
    own = tuple((name, column(name)) for name in frame.schema.names)
    # No payload column may be called so: names that start with an underscore are reserved.
    fresh = tuple((f"_computed {i}", expression) for i, expression in enumerate(computed))
    wider = project(Project(stand_in_source(frame), (*own, *fresh)), frame)
    return wider, [wider.name(name) for name, _ in fresh]


def _to_columns(computed: Sequence[Expression], frame: Frame) -> list[Column] | None:
    found = [to_spark(expression, frame.schema, frame.column) for expression in computed]
    return None if any(made is None for made in found) else found


Resolve: TypeAlias = Callable[[str], Column]

_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


@dataclass(frozen=True)
class TypedColumn:
    """A column and the Arrow type of its values; the value itself if it is a literal."""

    column: Column
    kind: pa.DataType
    literal: Any = None


class DiffersError(Exception):
    """Spark might compute something else."""


def to_spark(computed: Expression, schema: pa.Schema, resolve: Resolve) -> Column | None:
    """The expression as a Spark column over payloads of this schema."""
    if computed.column is not None:
        return resolve(computed.column)
    try:
        found = _ColumnTranslation(schema, resolve).of(computed.tree)
    except DiffersError:
        return None
    return found.column if found.kind == result_type(computed, schema, "batch") else None


class _ColumnTranslation:
    def __init__(self, schema: pa.Schema, resolve: Resolve) -> None:
        self._schema, self._resolve = schema, resolve

    def of(self, tree: Tree) -> TypedColumn:
        """The expression, operands first."""
        match tree:
            case ColumnTree(name):
                return TypedColumn(self._resolve(name), self._schema.field(name).type)
            case Literal(value, None):
                return _literal(value)
            case Call("when", operands):
                return _translate_when([self.of(x) for x in operands])
            case Call(name, operands) if name in _STEPS:
                options = {k: self.of(v) if isinstance(v, Tree) else v for k, v in tree.arguments}
                return _STEPS[name](*(self.of(x) for x in operands), **options)
        raise DiffersError


def _literal(value: Any) -> TypedColumn:
    if isinstance(value, bool):
        return TypedColumn(f.lit(value), pa.bool_(), value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return TypedColumn(f.lit(value).cast("bigint"), pa.int64(), value)
    if isinstance(value, float):
        return TypedColumn(f.lit(value), pa.float64(), value)
    if isinstance(value, str):
        return TypedColumn(f.lit(value), pa.string(), value)
    raise DiffersError(repr(value))


def _translate_when(operands: Sequence[TypedColumn]) -> TypedColumn:
    """A condition that is null is not true."""
    condition, then, *rest = operands
    _require(condition.kind == pa.bool_() and all(other.kind == then.kind for other in rest))
    chosen = f.when(condition.column, then.column)
    return TypedColumn(chosen.otherwise(rest[0].column) if rest else chosen, then.kind)


def _require(holds: bool) -> None:
    if not holds:
        raise DiffersError


def _match_floats(left: TypedColumn, right: TypedColumn) -> tuple[TypedColumn, TypedColumn]:
    """Both as floats if one is a float and the other a small whole literal."""
    return _as_float(left, right), _as_float(right, left)


def _as_float(value: TypedColumn, other: TypedColumn) -> TypedColumn:
    is_small = isinstance(value.literal, int) and abs(value.literal) <= 2**53
    if other.kind == pa.float64() and value.kind == pa.int64() and is_small:
        return TypedColumn(value.column.cast("double"), pa.float64())
    return value


def _arithmetic(compute: Callable[[Column, Column], Column]) -> Callable[..., TypedColumn]:
    def step(left: TypedColumn, right: TypedColumn) -> TypedColumn:
        left, right = _match_floats(left, right)
        _require(left.kind == right.kind == pa.float64())
        return TypedColumn(compute(left.column, right.column), left.kind)

    return step


def _comparison(
    compare: Callable[[Column, Column], Column], *, if_nan: bool = False
) -> Callable[..., TypedColumn]:
    def step(left: TypedColumn, right: TypedColumn) -> TypedColumn:
        left, right = _match_floats(left, right)
        whole = left.kind in _INTEGERS and right.kind in _INTEGERS
        _require(whole or (left.kind == right.kind and _is_comparable(left.kind)))
        found = compare(left.column, right.column)
        if left.kind == pa.float64():
            has_nan = f.isnan(left.column) | f.isnan(right.column)
            has_null = left.column.isNull() | right.column.isNull()
            found = f.when(has_null, f.lit(None)).when(has_nan, f.lit(if_nan)).otherwise(found)
        return TypedColumn(found.cast("boolean"), pa.bool_())

    return step


def _is_comparable(kind: pa.DataType) -> bool:
    plain = (pa.bool_(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us"))
    return kind in plain


def _translate_between(
    value: TypedColumn, lower_bound: TypedColumn, upper_bound: TypedColumn, closed: str
) -> TypedColumn:
    at_least = _STEPS[">=" if closed in ("both", "left") else ">"]
    at_most = _STEPS["<=" if closed in ("both", "right") else "<"]
    low, high = at_least(value, lower_bound), at_most(value, upper_bound)
    return TypedColumn(low.column & high.column, pa.bool_())


def _logic(combine: Callable[[Column, Column], Column]) -> Callable[..., TypedColumn]:
    def step(left: TypedColumn, right: TypedColumn) -> TypedColumn:
        _require(left.kind == right.kind == pa.bool_())
        return TypedColumn(combine(left.column, right.column), pa.bool_())

    return step


def _invert(value: TypedColumn) -> TypedColumn:
    _require(value.kind == pa.bool_())
    return TypedColumn(~value.column, pa.bool_())


def _is_null(value: TypedColumn) -> TypedColumn:
    return TypedColumn(value.column.isNull(), pa.bool_())


def _fill_null(of: TypedColumn, value: Any) -> TypedColumn:
    _, filling = _match_floats(of, value if isinstance(value, TypedColumn) else _literal(value))
    _require(of.kind == filling.kind)
    return TypedColumn(f.coalesce(of.column, filling.column), of.kind)


def _is_in(value: TypedColumn, other: tuple[Any, ...]) -> TypedColumn:
    _require(value.kind in (pa.int64(), pa.string()))
    others = [_literal(x) for x in other]
    _require(bool(others) and all(one.kind == value.kind for one in others))
    return TypedColumn(value.column.isin(*(one.literal for one in others)), pa.bool_())


_STEPS: Final[dict[str, Callable[..., TypedColumn]]] = {
    "+": _arithmetic(operator.add),
    "-": _arithmetic(operator.sub),
    "*": _arithmetic(operator.mul),
    "==": _comparison(operator.eq),
    "!=": _comparison(operator.ne, if_nan=True),
    "<": _comparison(operator.lt),
    "<=": _comparison(operator.le),
    ">": _comparison(operator.gt),
    ">=": _comparison(operator.ge),
    "&": _logic(operator.and_),
    "|": _logic(operator.or_),
    "not": _invert,
    "is_between": _translate_between,
    "is_null": _is_null,
    "fill_null": _fill_null,
    "is_in": _is_in,
}
