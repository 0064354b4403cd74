"""Arithmetic that refuses what does not fit: whole numbers and times never wrap around.

Floats have no such end (they become infinite). Arrow's checked kernels do the work; only when one of them
refuses is it asked which row it was. Beside a float, a whole number is the nearest float.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal
from functools import partial, reduce
from itertools import repeat
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from recension.core.casts import refuse_wrapped_decimals
from recension.core.errors import RecensionError
from recension.plan.expressions import zones
from recension.plan.expressions.tree import Call, render
from recension.plan.schemas import type_name

Value: TypeAlias = pa.Array | pa.Scalar
"""What an expression is on a batch; a scalar if it is the same on every row."""

# Unchecked, checked, and exactly, on Python's numbers.
KERNELS: Final[dict[str, tuple[Callable[..., Value], Callable[..., Value], Callable[..., Any]]]] = {
    "+": (pc.add, pc.add_checked, operator.add),
    "-": (pc.subtract, pc.subtract_checked, operator.sub),
    "*": (pc.multiply, pc.multiply_checked, operator.mul),
    "**": (pc.power, pc.power_checked, lambda x, y: _power(x, y)),
    "negate": (pc.negate, pc.negate_checked, operator.neg),
    "abs": (pc.abs, pc.abs_checked, abs),
}
_BITS: Final = 64
_MOST_DIGITS: Final = 76
_EXACT: Final = Context(prec=4 * _MOST_DIGITS)
_NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def compute(call: Call, operands: Sequence[Value], shown: Call | None = None) -> Value:
    """``+ - * **``, minus and the absolute value of columns or scalars; ``shown`` is what errors name."""
    plain, checked, exact = KERNELS[call.name]
    if any(pa.types.is_floating(x.type) for x in operands):
        return plain(*as_floats(operands))
    if call.name == "negate" and _is_negated_by_subtraction(operands[0].type):
        plain, checked, exact = KERNELS["-"]
        operands = [pa.scalar(0, operands[0].type), *operands]
    try:
        return checked(*operands)
    except pa.ArrowInvalid as why:
        kind = plain(*(_no_rows(x) for x in operands)).type
        raise _overflow_error(shown or call, kind, operands, exact, why) from None


def _is_negated_by_subtraction(kind: pa.DataType) -> bool:
    """Arrow's checked negation does not take unsigned numbers, and does not check durations."""
    return bool(pa.types.is_unsigned_integer(kind) or pa.types.is_duration(kind))


def as_floats(operands: Sequence[Value]) -> list[Value]:
    """Whole numbers next to floats as the nearest floats; Arrow alone refuses those beyond 2**53."""
    floats = [x.type for x in operands if pa.types.is_floating(x.type)]
    if not floats:
        return list(operands)
    widest = max(floats, key=lambda kind: kind.bit_width)
    return [cast(x, widest) if pa.types.is_integer(x.type) else x for x in operands]


def cast(value: Value, kind: pa.DataType) -> Value:
    """As another type; what does not fit is an error, but a whole number becomes the nearest float."""
    rounds = pa.types.is_integer(value.type) and pa.types.is_floating(kind)
    if zones.reads_clock(kind) and isinstance(value, pa.Array) and zones.is_far(value):
        return zones.cast_clock(value, kind)
    found = pc.cast(value, kind, safe=not rounds)
    if pa.types.is_floating(kind) and _may_grow_infinite(value.type, kind):
        _require_finite(value, found)
    refuse_wrapped_decimals(value, found)
    return found


def _may_grow_infinite(of: pa.DataType, kind: pa.DataType) -> bool:
    """Has it numbers beyond those of this type of floats?"""
    is_wider = pa.types.is_floating(of) and of.bit_width > kind.bit_width
    is_wider |= pa.types.is_integer(of) and of.bit_width >= kind.bit_width
    return bool(kind.bit_width < 64 and (is_wider or pa.types.is_decimal(of)))


def _require_finite(value: Value, found: Value) -> None:
    """Refuse numbers that have become infinite."""
    is_beyond = pc.is_inf(found)
    if pa.types.is_floating(value.type):
        is_beyond = pc.and_(is_beyond, pc.is_finite(value))
    if isinstance(is_beyond, pa.Scalar):
        is_beyond, value = pa.array([is_beyond.as_py()]), pa.array([value.as_py()])
    if pc.any(is_beyond).as_py():
        wrong = value.filter(is_beyond)[0].as_py()
        raise pa.ArrowInvalid(f"{wrong} does not fit in {type_name(found.type)}")


def round_decimals(value: Value, compute: Callable[[Value], Value]) -> Value:
    """Decimals rounded with digits to spare: what then does not fit in their type is an error.

    Arrow gives 0 for it, and says so only if it comes last.
    """
    wide = compute(pc.cast(value, pa.decimal256(_MOST_DIGITS, value.type.scale)))
    return pc.cast(wide, value.type)


def compare_values(compare: Callable[..., Value], left: Value, right: Value) -> Value:
    """A comparison; unsigned numbers that int64 does not hold are above all others."""
    try:
        return compare(*as_floats([left, right]))
    except pa.ArrowInvalid:
        if left.type == pa.uint64() and pa.types.is_signed_integer(right.type):
            return _compare_with_signed(compare, left, right)
        if right.type == pa.uint64() and pa.types.is_signed_integer(left.type):
            return _compare_with_signed(lambda x, y: compare(y, x), right, left)
        raise


def _compare_with_signed(compare: Callable[..., Value], unsigned: Value, signed: Value) -> Value:
    """Every unsigned number is above those below 0; the others are unsigned numbers too."""
    below = pc.less(signed, pa.scalar(0, signed.type))
    same = pc.if_else(below, pa.scalar(0, signed.type), signed).cast(pa.uint64())
    above = compare(pa.scalar(1), pa.scalar(0))
    return pc.if_else(pc.and_(below, pc.is_valid(unsigned)), above, compare(unsigned, same))


def floor_divide(left: Value, right: Value) -> Value:
    """The quotient rounded down, of whole numbers in the type of the left one; null by 0."""
    left, right = as_floats([left, right])
    if any(pa.types.is_decimal(x.type) for x in (left, right)):
        return _floor_divide_decimals(left, right)
    is_whole = pa.types.is_integer(left.type) and pa.types.is_integer(right.type)
    divides = pc.not_equal(right, pa.scalar(0, right.type))
    right = pc.if_else(divides, right, pa.scalar(None, right.type))
    if not is_whole:
        return pc.floor(pc.divide(left, right))
    whole = pc.divide_checked(left, right)  # rounded towards 0
    if pa.types.is_signed_integer(whole.type):
        is_inexact = pc.not_equal(pc.multiply(whole, right), left)
        is_negative = pc.less(pc.bit_wise_xor(left, right), pa.scalar(0, whole.type))
        down = pc.subtract(whole, pa.scalar(1, whole.type))
        whole = pc.if_else(pc.and_(is_inexact, is_negative), down, whole)
    return pc.cast(whole, left.type)


def _floor_divide_decimals(left: Value, right: Value) -> Value:
    """One by one, on whole numbers: Arrow cuts digits off the quotient before it is rounded down."""
    kind = pc.divide(*(pa.array([], x.type) for x in (left, right))).type
    return _on_wholes(left, right, kind, lambda x, y, _: x // y)


def decimal_remainder(left: Value, right: Value) -> Value:
    """As exactly; the quotient itself need not fit anywhere."""
    none, no_divisor = (pa.array([], x.type) for x in (left, right))
    kind = pc.subtract(none, pc.multiply(floor_divide(none, no_divisor), no_divisor)).type
    return _on_wholes(left, right, kind, lambda x, y, scale: Decimal(x % y).scaleb(-scale, _EXACT))


def _on_wholes(
    left: Value, right: Value, kind: pa.DataType, compute: Callable[[int, int, int], Any]
) -> Value:
    """What is computed of decimals as whole numbers of the last place of both; null by 0."""
    scale = max(x.type.scale for x in (left, right) if pa.types.is_decimal(x.type))

    def whole(value: Any) -> int:
        return int(Decimal(value).scaleb(scale, _EXACT))

    found = [
        None if None in row or not row[1] else compute(whole(row[0]), whole(row[1]), scale)
        for row in _rows([left, right])
    ]
    try:
        array = pa.array(found, kind)
    except pa.ArrowInvalid:
        raise pa.ArrowInvalid(f"the answer does not fit in {type_name(kind)}") from None
    return array[0] if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar) else array


def remainder_operands(left: Value, right: Value) -> list[Value]:
    """Of one type, and with 1 for a divisor of -1: both leave 0, but the quotient by -1 may not fit."""
    if not (pa.types.is_integer(left.type) and pa.types.is_integer(right.type)):
        return as_floats([left, right])
    kind = pc.add(_no_rows(left), _no_rows(right)).type
    left, right = pc.cast(left, kind), pc.cast(right, kind)
    if not pa.types.is_signed_integer(kind):
        return [left, right]
    is_minus_one = pc.equal(right, pa.scalar(-1, kind))
    return [left, pc.if_else(is_minus_one, pa.scalar(1, kind), right)]


def explain_error(call: Call, operands: Sequence[Value], why: Exception) -> RecensionError:
    """The error for a call that Arrow refuses to compute."""
    kind = operands[0].type if operands else None
    if call.name in _ROUNDED and kind is not None and pa.types.is_integer(kind):
        exact = partial(_ROUNDED[call.name], **dict(call.arguments))
        if _first_outside(kind, operands, exact) is not None:
            return _overflow_error(call, kind, operands, exact, why)
    reason = "".join(x for x in str(why).split("\n")[0] if x.isprintable())
    return RecensionError(f"{render(call)}: {reason}")


def sum_columns(call: Call, operands: Sequence[Value]) -> Value:
    """The sum of several columns, nulls counted as 0."""
    filled = [pc.fill_null(x, 0) for x in operands]
    plus = Call("+", ())
    return reduce(lambda a, b: compute(plus, [a, b], shown=call), filled)


def mean_of_columns(call: Call, operands: Sequence[Value]) -> Value:
    """The mean of several columns, whole numbers as floats; null where all of them are."""
    values = [cast(x, pa.float64()) if pa.types.is_integer(x.type) else x for x in operands]
    count = reduce(pc.add, (pc.cast(pc.is_valid(x), pa.int64()) for x in values))
    return pc.divide(
        sum_columns(call, values), pc.if_else(pc.equal(count, 0), pa.scalar(None, pa.int64()), count)
    )


def scale_time(call: Call, value: Value, unit: str) -> Value | None:
    """A time or duration counted in a finer unit than its own; None if it is not finer."""
    if pa.types.is_date(value.type):
        days = value.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        return _scale(call, days, 86_400 * 10**9 // _NANOSECONDS[unit])
    if not (pa.types.is_timestamp(value.type) or pa.types.is_duration(value.type)):
        return None
    factor = _NANOSECONDS[value.type.unit] // _NANOSECONDS[unit]
    if factor <= 1:
        return None
    return _scale(call, value.cast(pa.int64()), factor)


def _scale(call: Call, count: Value, factor: int) -> Value:
    try:
        return pc.multiply_checked(count, factor)
    except pa.ArrowInvalid as why:
        raise _overflow_error(call, pa.int64(), [count, pa.scalar(factor)], operator.mul, why) from None


def require_sums(call: Call, lists: pa.Array, sums: pa.Array) -> None:
    """Raise if the sum of a list of whole numbers has wrapped around."""
    if not pa.types.is_integer(sums.type) or not len(sums):
        return
    rough = pc.max(pc.abs(pc.cast(pc.list_flatten(lists), pa.float64(), safe=False))).as_py() or 0.0
    longest = pc.max(pc.list_value_length(lists)).as_py() or 0
    if rough * longest < 2.0**62:
        return
    for items, found in zip(lists.to_pylist(), sums.to_pylist(), strict=True):
        if items is not None and sum(x for x in items if x is not None) != found:
            raise RecensionError(f"{render(call)} does not fit in {type_name(sums.type)}, as of {items}")


def require_moved(call: Call, before: pa.Array, after: pa.Array, by: str) -> None:
    """Raise if a time that was moved has come out on the other side of the end of time."""
    compare = pc.less if not by.startswith("-") else pc.greater
    if pa.types.is_timestamp(before.type) and pc.any(compare(after, before)).as_py():
        raise RecensionError(f"{render(call)}: the resulting time does not fit in {after.type}")


def _no_rows(value: Value) -> Value:
    return value.slice(0, 0) if isinstance(value, pa.Array) else value


def _power(base: int, exponent: int) -> int:
    """Exactly, as far as it may fit in any type: a power of that many digits would never be done."""
    if exponent > _BITS and abs(base) > 1:
        return int(base**_BITS)
    return int(base ** max(exponent, 0))


def _quotient(left: int, right: int) -> int:
    return left // right if right else 0


def _round(value: int, decimals: int = 0) -> int:
    step = int(10 ** max(-decimals, 0))
    away = (abs(value) + step // 2) // step * step
    return away if value > 0 else -away


_ROUNDED: Final[dict[str, Callable[..., int]]] = {"//": _quotient, "round": _round}


def _overflow_error(
    call: Call, kind: pa.DataType, operands: Sequence[Value], exact: Callable[..., Any], why: Exception
) -> RecensionError:
    """The error, with the first row that does not fit."""
    wider = "float64" if kind in (pa.int64(), pa.uint64()) else "int64"
    if not pa.types.is_integer(kind):
        return RecensionError(f"{render(call)} does not fit in {type_name(kind)}: {why}")
    if call.name == "**" and (low := _below_zero(operands)) is not None:
        return RecensionError(
            f"{render(call)}: whole numbers have no whole power below 0, as of {low}; cast to float64 first"
        )
    row = _first_outside(kind, operands, exact)
    example = "" if row is None else f", as of {' and '.join(map(str, row))}"
    return RecensionError(f"{render(call)} does not fit in {type_name(kind)}{example}; cast to {wider} first")


def _below_zero(operands: Sequence[Value]) -> str | None:
    """The first row with a power below 0."""
    row = next((row for row in _rows(operands) if None not in row and row[1] < 0), None)
    return None if row is None else f"{row[0]} and {row[1]}"


def _first_outside(
    kind: pa.DataType, operands: Sequence[Value], exact: Callable[..., Any]
) -> tuple[Any, ...] | None:
    bits = kind.bit_width
    low, high = (-(1 << bits - 1), 1 << bits - 1) if pa.types.is_signed_integer(kind) else (0, 1 << bits)
    outside = (row for row in _rows(operands) if None not in row and not low <= exact(*row) < high)
    return next(outside, None)


def _rows(operands: Sequence[Value]) -> Iterator[tuple[Any, ...]]:
    """The operands of each row; of one, if they are the same on all."""
    if all(isinstance(x, pa.Scalar) for x in operands):
        return iter([tuple(x.as_py() for x in operands)])
    columns = [x.to_pylist() if isinstance(x, pa.Array) else repeat(x.as_py()) for x in operands]
    return zip(*columns, strict=False)
