"""Sums of floats to about 32 digits, as pairs (high, low) of float64.

Taking a value back out of a plain running sum leaves a rounding error behind; in pairs the error is some
1e-32 of what passed through, so that a retracted event leaves no visible trace.

Assumes     values so small that no sum overflows: it would be NaN, and NaN never leaves again.

Source      Ogita, Rump, Oishi: Accurate Sum and Dot Product (2005); Rump, Ogita, Oishi: Accurate
            Floating-Point Summation, part I (2008), for `exact_parts`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Pair: TypeAlias = tuple[Floats, Floats]
"""A sum as a float and what rounding took from it."""

_MOST_PARTS: Final = 3
_ALL_PARTS: Final = 4096  # more than any numbers have
_LARGEST: Final = 2.0**960


def two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """``a + b`` and its exact rounding error."""
    total = a + b
    part = total - a
    error = total - part
    error = np.subtract(a, error, out=error)
    error += np.subtract(b, part, out=part)
    return total, error


def add(a: tuple[Floats, Floats], b: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """The sum of two pairs."""
    high, error = two_sum(a[0], b[0])
    return two_sum(high, error + (a[1] + b[1]))


def multiply(a: tuple[Floats, Floats], b: Floats) -> tuple[Floats, Floats]:
    """The product of a pair and a number; of a single number, exactly."""
    product = a[0] * b
    (x, y), (u, v) = _halves(a[0]), _halves(b)
    error = y * v - (((product - x * u) - y * u) - x * v)
    return two_sum(product, error + a[1] * b)


def _halves(a: Floats) -> tuple[Floats, Floats]:
    """Two numbers of half the digits whose sum it is."""
    scaled = a * float(2**27 + 1)
    high = scaled - (scaled - a)
    return high, a - high


def exact_parts(values: Floats, most: int, parts_at_most: int = _MOST_PARTS) -> list[Floats] | None:
    """Parts that make up the values; of each, so many can be added in any order without rounding.

    The digits of a part are all above one place, so that ``most`` of them add up within 53 bits. None if
    that takes many parts: the values are of very different sizes.
    """
    parts, rest = list[Floats](), values
    while largest := _greatest(rest):
        if len(parts) == parts_at_most or not largest <= _LARGEST:
            return None
        bound = math.ldexp(1.0, math.frexp(largest)[1] + most.bit_length())
        part = rest + bound
        part -= bound
        rest = np.subtract(rest, part, out=rest if parts else None)
        parts.append(part)
    return parts


def _greatest(values: Floats) -> float:
    """The greatest by size; NaN if there is one."""
    high, low = float(values.max(initial=0.0)), float(values.min(initial=0.0))
    return high if high != high else max(high, -low)


def add_up(parts: Sequence[Floats], size: int) -> tuple[Floats, Floats]:
    """Some exact parts together; without any they are nothing. Two of them make a pair without rounding."""
    if not parts:
        return np.zeros(size), np.zeros(size)
    if len(parts) == 1:
        return parts[0], np.zeros(size)
    pair = two_sum(parts[0], parts[1])
    for part in parts[2:]:
        pair = add(pair, (part, np.zeros(size)))
    return pair


def running_sum(high: Floats, low: Floats, lengths: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Sums of the prefixes of each stretch, as pairs; stretches do not affect each other.

    Stretches of similar length are summed side by side, as the rows of a matrix.
    """
    total = np.empty(len(high)), np.empty(len(high))
    starts = np.cumsum(lengths) - lengths
    size_class = np.frexp(lengths.astype(np.float64))[1]
    for size in np.unique(size_class[lengths > 0]).tolist():
        rows = np.flatnonzero((size_class == size) & (lengths > 0))
        width = int(lengths[rows].max())
        place = starts[rows, None] + np.arange(width)
        inside = np.arange(width) < lengths[rows, None]
        place = np.where(inside, place, 0)
        found = _prefix_sums(np.where(inside, high[place], 0.0), np.where(inside, low[place], 0.0))
        for part, sums_of_part in zip(total, found, strict=True):
            part[place[inside]] = sums_of_part[inside]
    return total


def sums(pair: tuple[Floats, Floats], lengths: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The sum of each stretch, none of which is empty."""
    high, low = running_sum(*pair, lengths)
    last = np.cumsum(lengths) - 1
    return high[last], low[last]


def collapse(parts: Sequence[Floats]) -> Pair:
    """The sum of any floats as a pair, rounded only once all of them are added up."""
    # Shewchuk (1997), Grow-Expansion: the parts so far do not overlap, the least is first.
    grown = list[Floats]()
    for part in parts:
        for i, known in enumerate(grown):
            part, grown[i] = two_sum(part, known)
        grown.append(part)
    rest = grown[0] * 0.0
    for part in grown[:-1]:
        rest = rest + part
    return two_sum(grown[-1], rest)


def _prefix_sums(high: Floats, low: Floats) -> Pair:
    sums, error = _running_total(high)
    lost = error + low
    rest, more = _running_total(lost)
    is_exact = not (bool(more.any()) or bool((lost - error != low).any()))
    return two_sum(sums, rest) if is_exact else _exact_prefix_sums(high, low)


def _running_total(column: Floats) -> tuple[Floats, Floats]:
    """The sums of the prefixes of each row, and what rounding took from each step."""
    sums = np.cumsum(column, axis=1)
    before = np.concatenate([np.zeros((len(column), 1)), sums[:, :-1]], axis=1)
    part = sums - before
    return sums, (before - (sums - part)) + (column - part)


def _exact_prefix_sums(high: Floats, low: Floats) -> Pair:
    """Where digits are too far apart for pairs: in parts that are each summed without rounding."""
    found = [exact_parts(column, 2 * high.shape[1], _ALL_PARTS) for column in (high, low)]
    sums = [np.cumsum(part, axis=1) for parts in found if parts is not None for part in parts]
    return collapse(sums or [high])
