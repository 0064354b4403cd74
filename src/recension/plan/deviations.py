"""The standard deviations of many stretches of numbers at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recension.core.batch import Index


@np.errstate(over="ignore", invalid="ignore")
def deviations(numbers: npt.NDArray[Any], count: Index) -> npt.NDArray[Any]:
    """The standard deviation of each stretch of ``count`` sorted numbers; none is empty.

    Sums of squares lose all digits of values that are large beside their differences; so each stretch is
    looked at twice, first for its mean, then for the distances from it.
    """
    first = np.cumsum(count) - count
    distance, exponent = _distances(numbers, first, count)
    mean = np.add.reduceat(distance, first) / count
    error = distance - np.repeat(mean, count)
    squares, left = (np.add.reduceat(x, first) for x in (error * error, error))
    # What is left of the sum of errors is the rounding error of the mean.
    variance = np.maximum(squares - left * left / count, 0.0) / np.maximum(count - 1, 1)
    found: npt.NDArray[Any] = np.ldexp(np.sqrt(variance), exponent)
    return found


def _distances(numbers: npt.NDArray[Any], first: Index, count: Index) -> tuple[npt.NDArray[Any], Index]:
    """How far each number is from the least of its stretch, divided by a power of two; its exponent.

    Whatever the numbers are, distances come to lie in [0, 1], where no square over- or underflows.
    """
    last = first + count - 1
    if numbers.dtype.kind == "f":
        # Infinities and NaN are first or last: distances from them are NaN, and so is the answer.
        largest = np.maximum(np.abs(numbers[first]), np.abs(numbers[last]))
        scale = np.frexp(largest)[1].astype(np.int64)
        numbers = np.ldexp(numbers, -np.repeat(scale, count))
        distance = numbers - np.repeat(numbers[first], count)
    else:
        scale = np.zeros(len(first), np.int64)
        # Modulo 2**64 the difference of sorted whole numbers is right even where int64 cannot hold it.
        whole = numbers.view(np.uint64)
        distance = (whole - np.repeat(whole[first], count)).astype(np.float64)
    spread = np.frexp(distance[last])[1].astype(np.int64)
    return np.ldexp(distance, -np.repeat(spread, count)), scale + spread
