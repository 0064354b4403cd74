"""The least times that an expression can have, given how early the times of an event can be.

A CTI may pass a step that gives events other lifetimes only as far as nothing before it can change any more.
How far that is, the expressions say:

    start() - 10                        with start() >= 50             is at least 40
    min_horizontal(end(), start() + 5)  with start() >= 50, end() > 50 is at least 51
    col("began")                        is anything

What is not known here is taken to be anything. Numbers, timestamps and durations are counted in ticks, which
are microseconds. An expression may also be null: the bounds are then those of the values that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from recension.plan.expressions.tree import Call, Column, Literal, Tree, columns_of
from recension.plan.schemas import END, START

LOWEST: Final = -(1 << 400)
HIGHEST: Final = 1 << 400
"""Beyond all numbers: no bound is known."""
_FAR: Final = 1 << 300  # no value that is computed comes so far: it would have been refused before


@dataclass(frozen=True, slots=True)
class Bounds:
    """A value that is not null is neither below ``low`` nor above ``high``."""

    low: int = LOWEST
    high: int = HIGHEST
    may_be_null: bool = True


def bounds(tree: Tree, start: Bounds, end: Bounds) -> Bounds:
    """The bounds of an expression, given those of the times of an event."""
    return _Bounding(start, end).of(tree)


def least_change(tree: Tree, end: int) -> int:
    """If the end of an event moves, and the value with it, neither the old nor the new one is below this.

    Both ends are at or after ``end``; the start is anything. Null counts as for ever. HIGHEST: the value does
    not change.

    >>> first = Call("min_horizontal", (Column(END), Call("+", (Column(START), Literal(5)))))
    >>> least_change(first, 50)
    50
    """
    if END not in columns_of(tree):
        return HIGHEST
    anything = _Bounding(Bounds(may_be_null=False), Bounds(end))
    match tree:
        case Column():
            return end
        case Call("min_horizontal", operands):
            # Null is ignored, as if it were for ever. If the least of them changes, it is one that changes.
            return min(least_change(x, end) for x in operands)
        case Call("+", (left, right)):
            moving, still = (left, right) if END in columns_of(left) else (right, left)
            if END not in columns_of(still):
                return _limit(least_change(moving, end) + anything.of(still).low)
        case Call("-", (left, right)) if END not in columns_of(right):
            return _limit(least_change(left, end) - anything.of(right).high)
        case Call("*", (left, right)) if (by := _positive(right)) is not None:
            return _limit(least_change(left, end) * by)
        case Call("//", (left, right)) if (by := _positive(right)) is not None:
            return _limit(least_change(left, end) // by)
    return anything.of(tree).low


class _Bounding:
    def __init__(self, start: Bounds, end: Bounds) -> None:
        self._times = {START: start, END: end}

    def of(self, tree: Tree) -> Bounds:
        match tree:
            case Column(name):
                return self._times.get(name, Bounds())
            case Literal():
                return _literal(tree)
            case Call("when", (_, *branches)):
                found = [self.of(branch) for branch in branches]
                return _any_of(found, may_be_null=len(found) < 2 or any(x.may_be_null for x in found))
            case Call("coalesce", operands):
                return _first_of([self.of(x) for x in operands])
            case Call("fill_null", (operand,)):
                value = dict(tree.arguments)["value"]
                filling = self.of(value if isinstance(value, Tree) else Literal(value))
                return _first_of([self.of(operand), filling])
            case Call(name, operands) if name in _RULES:
                return _RULES[name]([self.of(x) for x in operands])
        return Bounds()


def _literal(tree: Literal) -> Bounds:
    ticks = _ticks_of(tree.scalar)
    return Bounds() if ticks is None else Bounds(*ticks, may_be_null=False)


def _ticks_of(scalar: pa.Scalar) -> tuple[int, int] | None:
    """A number, or a time or duration in microseconds, rounded down and up; None of anything else."""
    if not scalar.is_valid:
        return None
    if pa.types.is_integer(scalar.type):
        return scalar.as_py(), scalar.as_py()
    if pa.types.is_timestamp(scalar.type) or pa.types.is_duration(scalar.type):
        scaled = scalar.value * _NANOSECONDS[scalar.type.unit]
        return scaled // 1000, -(-scaled // 1000)
    return None


_NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def _positive(tree: Tree) -> int | None:
    """The number, if it is a whole one above 0."""
    if not isinstance(tree, Literal) or not pa.types.is_integer(tree.scalar.type) or not tree.scalar.is_valid:
        return None
    value: int = tree.scalar.as_py()
    return value if value > 0 else None


def _limit(value: int) -> int:
    """What is far beyond all numbers is no bound."""
    return HIGHEST if value > _FAR else LOWEST if value < -_FAR else value


def _make_bounds(low: int, high: int, of: Sequence[Bounds]) -> Bounds:
    return Bounds(_limit(low), _limit(high), any(x.may_be_null for x in of))


def _sum(of: Sequence[Bounds]) -> Bounds:
    left, right = of
    return _make_bounds(left.low + right.low, left.high + right.high, of)


def _difference(of: Sequence[Bounds]) -> Bounds:
    left, right = of
    return _make_bounds(left.low - right.high, left.high - right.low, of)


def _product(of: Sequence[Bounds]) -> Bounds:
    left, right = of
    corners = [x * y for x in (left.low, left.high) for y in (right.low, right.high)]
    return _make_bounds(min(corners), max(corners), of)


def _quotient(of: Sequence[Bounds]) -> Bounds:
    """Rounded down, by a number above 0; by 0 it is null."""
    left, right = of
    if right.low != right.high or right.low <= 0:
        return Bounds()
    return _make_bounds(left.low // right.low, left.high // right.low, of)


def _any_of(of: Sequence[Bounds], *, may_be_null: bool) -> Bounds:
    return Bounds(min(x.low for x in of), max(x.high for x in of), may_be_null)


def _first_of(of: Sequence[Bounds]) -> Bounds:
    """The first that is not null: one after an operand that never is cannot be it."""
    last = next((i for i, x in enumerate(of) if not x.may_be_null), len(of) - 1)
    return _any_of(of[: last + 1], may_be_null=of[last].may_be_null)


def _least(of: Sequence[Bounds]) -> Bounds:
    """Nulls are ignored: only an operand that is always there bounds the others from above."""
    high = [x.high for x in of if not x.may_be_null] or [max(x.high for x in of)]
    return Bounds(min(x.low for x in of), min(high), all(x.may_be_null for x in of))


def _greatest(of: Sequence[Bounds]) -> Bounds:
    """Nulls are ignored: only an operand that is always there bounds the others from below."""
    low = [x.low for x in of if not x.may_be_null] or [min(x.low for x in of)]
    return Bounds(max(low), max(x.high for x in of), all(x.may_be_null for x in of))


_RULES: Final[dict[str, Callable[[Sequence[Bounds]], Bounds]]] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "//": _quotient,
    "negate": lambda of: _make_bounds(-of[0].high, -of[0].low, of),
    "min_horizontal": _least,
    "max_horizontal": _greatest,
}
