"""Expressions as Spark columns, where Spark computes exactly what Arrow computes; None where it might not.

Arrow is the measure: whole numbers wrap around, and NaN is equal to and less than nothing. Types are limited
to those whose values both hold alike; everything else (divisions, casts, text in capitals, narrow numbers) is
left to Arrow itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

import narwhals as nw
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as f

from recension.plan.expression_tree import arguments, operations
from recension.plan.expressions import Expression, result_type

Resolve: TypeAlias = Callable[[str], Column]

_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_HALF: Final = Decimal(2**63)
_WHOLE: Final = Decimal(2**64)


@dataclass(frozen=True)
class Typed:
    """A column and the Arrow type of its values; the value itself if it is a literal."""

    column: Column
    kind: pa.DataType
    literal: Any = None


class UnlikeError(Exception):
    """Spark might compute something else."""


def native(computed: Expression, schema: pa.Schema, resolve: Resolve) -> Column | None:
    """The expression as a Spark column over payloads of this schema."""
    if computed.column is not None:
        return resolve(computed.column)
    try:
        found = _Translation(schema, resolve).of(computed.native)
    except UnlikeError:
        return None
    return found.column if found.kind == result_type(computed, schema, "batch") else None


class _Translation:
    def __init__(self, schema: pa.Schema, resolve: Resolve) -> None:
        self._schema, self._resolve = schema, resolve

    def of(self, expression: nw.Expr) -> Typed:
        """The expression's chain of operations, from its root on."""
        root, *rest = operations(expression)
        value = self._root(root)
        for node in rest:
            step = _STEPS.get(node.name)
            if step is None:
                raise UnlikeError(node.name)
            value = step(value, [self._operand(x) for x in arguments(node)], dict(node.kwargs))
        return value

    def _root(self, node: Any) -> Typed:
        if node.name == "col":
            (name,) = node.kwargs["names"]
            return Typed(self._resolve(name), self._schema.field(name).type)
        if node.name == "lit" and node.kwargs.get("dtype") is None:
            return _literal(node.kwargs["value"])
        operands = [self._operand(x) for x in arguments(node)]
        if node.name == "all_horizontal" and len(operands) == 1:
            return operands[0]
        if node.name == "when_then":
            return _when(operands)
        raise UnlikeError(node.name)

    def _operand(self, value: Any) -> Typed:
        return self.of(value) if isinstance(value, nw.Expr) else _literal(value)


def _literal(value: Any) -> Typed:
    if isinstance(value, bool):
        return Typed(f.lit(value), pa.bool_(), value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return Typed(f.lit(value).cast("bigint"), pa.int64(), value)
    if isinstance(value, float):
        return Typed(f.lit(value), pa.float64(), value)
    if isinstance(value, str):
        return Typed(f.lit(value), pa.string(), value)
    raise UnlikeError(repr(value))


def _when(operands: Sequence[Typed]) -> Typed:
    """A condition that is null is not true."""
    condition, then, *rest = operands
    _require(condition.kind == pa.bool_() and all(other.kind == then.kind for other in rest))
    chosen = f.when(condition.column, then.column)
    return Typed(chosen.otherwise(rest[0].column) if rest else chosen, then.kind)


def _require(holds: bool) -> None:
    if not holds:
        raise UnlikeError


def _alike(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Both as floats if one is a float and the other a small whole literal."""
    return _as_float(left, right), _as_float(right, left)


def _as_float(value: Typed, beside: Typed) -> Typed:
    is_small = isinstance(value.literal, int) and abs(value.literal) <= 2**53
    if beside.kind == pa.float64() and value.kind == pa.int64() and is_small:
        return Typed(value.column.cast("double"), pa.float64())
    return value


def _arithmetic(
    of_floats: Callable[[Column, Column], Column], checked: Callable[[Column, Column], Column]
) -> Callable[..., Typed]:
    def step(left: Typed, operands: Sequence[Typed], options: dict[str, Any]) -> Typed:
        left, right = _alike(left, operands[0])
        _require(left.kind == right.kind and left.kind in (pa.int64(), pa.float64()))
        if left.kind == pa.float64():
            return Typed(of_floats(left.column, right.column), left.kind)
        exact = of_floats(left.column.cast("decimal(20,0)"), right.column.cast("decimal(20,0)"))
        # Null where it does not fit; only then is the sum taken again, and wrapped.
        return Typed(f.coalesce(checked(left.column, right.column), _wrapped(exact)), left.kind)

    return step


def _wrapped(exact: Column) -> Column:
    return (f.pmod(exact + f.lit(_HALF), f.lit(_WHOLE)) - f.lit(_HALF)).cast("bigint")


def _reversed(step: Callable[..., Typed]) -> Callable[..., Typed]:
    return lambda left, operands, options: step(operands[0], [left], options)


def _comparison(compare: Callable[[Column, Column], Column], *, if_nan: bool = False) -> Callable[..., Typed]:
    def step(left: Typed, operands: Sequence[Typed], options: dict[str, Any]) -> Typed:
        left, right = _alike(left, operands[0])
        whole = left.kind in _INTEGERS and right.kind in _INTEGERS
        _require(whole or (left.kind == right.kind and _is_comparable(left.kind)))
        found = compare(left.column, right.column)
        if left.kind == pa.float64():
            has_nan = f.isnan(left.column) | f.isnan(right.column)
            has_null = left.column.isNull() | right.column.isNull()
            found = f.when(has_null, f.lit(None)).when(has_nan, f.lit(if_nan)).otherwise(found)
        return Typed(found.cast("boolean"), pa.bool_())

    return step


def _is_comparable(kind: pa.DataType) -> bool:
    plain = (pa.bool_(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us"))
    return kind in plain


def _between(value: Typed, operands: Sequence[Typed], options: dict[str, Any]) -> Typed:
    closed = options["closed"]
    at_least = _STEPS["__ge__" if closed in ("both", "left") else "__gt__"]
    at_most = _STEPS["__le__" if closed in ("both", "right") else "__lt__"]
    low, high = (step(value, [bound], {}) for step, bound in zip((at_least, at_most), operands, strict=True))
    return Typed(low.column & high.column, pa.bool_())


def _logic(combine: Callable[[Column, Column], Column]) -> Callable[..., Typed]:
    def step(left: Typed, operands: Sequence[Typed], options: dict[str, Any]) -> Typed:
        _require(left.kind == operands[0].kind == pa.bool_())
        return Typed(combine(left.column, operands[0].column), pa.bool_())

    return step


def _invert(value: Typed, operands: Sequence[Typed], options: dict[str, Any]) -> Typed:
    _require(value.kind == pa.bool_())
    return Typed(~value.column, pa.bool_())


def _is_null(value: Typed, operands: Sequence[Typed], options: dict[str, Any]) -> Typed:
    return Typed(value.column.isNull(), pa.bool_())


def _fill_null(value: Typed, operands: Sequence[Typed], options: dict[str, Any]) -> Typed:
    _require(options.get("strategy") is None and options.get("limit") is None and len(operands) == 1)
    _, filling = _alike(value, operands[0])
    _require(value.kind == filling.kind)
    return Typed(f.coalesce(value.column, filling.column), value.kind)


def _is_in(value: Typed, operands: Sequence[Typed], options: dict[str, Any]) -> Typed:
    _require(isinstance(options["other"], list | tuple) and value.kind in (pa.int64(), pa.string()))
    others = [_literal(x) for x in options["other"]]
    _require(bool(others) and all(other.kind == value.kind for other in others))
    return Typed(value.column.isin(*(other.literal for other in others)), pa.bool_())


_STEPS: Final[dict[str, Callable[..., Typed]]] = {
    "__add__": _arithmetic(operator.add, f.try_add),
    "__radd__": _arithmetic(operator.add, f.try_add),
    "__sub__": _arithmetic(operator.sub, f.try_subtract),
    "__rsub__": _reversed(_arithmetic(operator.sub, f.try_subtract)),
    "__mul__": _arithmetic(operator.mul, f.try_multiply),
    "__rmul__": _arithmetic(operator.mul, f.try_multiply),
    "__eq__": _comparison(operator.eq),
    "__ne__": _comparison(operator.ne, if_nan=True),
    "__lt__": _comparison(operator.lt),
    "__le__": _comparison(operator.le),
    "__gt__": _comparison(operator.gt),
    "__ge__": _comparison(operator.ge),
    "__and__": _logic(operator.and_),
    "__or__": _logic(operator.or_),
    "__invert__": _invert,
    "is_between": _between,
    "is_null": _is_null,
    "fill_null": _fill_null,
    "is_in": _is_in,
}
