"""The standard deviation, from the live values themselves.

Sums of squares lose all digits of values that are large beside their differences; so each snapshot is looked
at twice, first for its mean, then for the distances from it. The values are sorted: the answer is then a
function of the values alone, and what was shown is retracted to the last bit, whatever order events have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import Index
from recension.operators.double_double import Floats
from recension.operators.snapshot.events import CoveringEvents
from recension.operators.snapshot.selections import Selection

Numbers = npt.NDArray[Any]


class StdDev(Selection):
    """The sample standard deviation: null of fewer than two values, NaN of any that is not finite."""

    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        valid = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        numbers = _numbers(values)
        by_value = valid[np.argsort(numbers[valid], kind="stable")]
        snapshot, event = events.incidence_in(by_value)
        count = np.bincount(snapshot, minlength=events.snapshots)
        found = np.zeros(events.snapshots)
        found[count > 0] = _deviations(numbers[event], count[count > 0])
        return pa.array(found, mask=count < 2)


def _numbers(values: pa.Array) -> Numbers:
    kind = values.type
    if not pa.types.is_uint64(kind):
        kind = pa.float64() if pa.types.is_floating(kind) else pa.int64()
    numbers: Numbers = pc.fill_null(values.cast(kind), 0).to_numpy(zero_copy_only=False)
    return numbers


@np.errstate(over="ignore", invalid="ignore")
def _deviations(numbers: Numbers, count: Index) -> Floats:
    """One answer for each stretch of ``count`` sorted numbers; none is empty."""
    first = np.cumsum(count) - count
    distance, exponent = _distances(numbers, first, count)
    mean = np.add.reduceat(distance, first) / count if len(first) else np.zeros(0)
    error = distance - np.repeat(mean, count)
    squares, left = (np.add.reduceat(x, first) if len(first) else mean for x in (error * error, error))
    # What is left of the sum of errors is the rounding error of the mean.
    variance = np.maximum(squares - left * left / count, 0.0) / np.maximum(count - 1, 1)
    return np.ldexp(np.sqrt(variance), exponent)


def _distances(numbers: Numbers, first: Index, count: Index) -> tuple[Floats, Index]:
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
