"""Aggregates that can take an event back: kept as sums, changed by differences."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import Index, Mask
from recension.operators.double_double import Floats
from recension.operators.snapshot.steps import Contributions, Pair

# Counts of NaN, +inf and -inf share one whole number, 21 bits each.
_KIND_BITS = 21
_KIND_MASK = (1 << _KIND_BITS) - 1


class Accumulator(ABC):
    """Whole numbers and float pairs that sum up one aggregate's events, and the result they stand for."""

    ints: int = 0
    pairs: int = 0

    @abstractmethod
    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        """What each event adds."""

    @abstractmethod
    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        """The aggregate where ``n`` events are live and the sums are as given."""


class CountEvents(Accumulator):
    """How many events are live."""

    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        return Contributions([], [])

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        return pa.array(n)


class CountValues(Accumulator):
    """How many live events have a value."""

    ints = 1

    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        return Contributions([_is_valid(values).astype(np.int64)], [])

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        return pa.array(ints[0])


class SumIntegers(Accumulator):
    """The sum of whole numbers, exact."""

    ints = 2

    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        return Contributions([_is_valid(values).astype(np.int64), _integers(values)], [])

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        return pa.array(ints[1], mask=ints[0] == 0)


class SumLongs(Accumulator):
    """The sum of whole numbers of 64 bits, exact, or an error where it does not fit in as many.

    Beside the sum, which wraps around, that of the upper halves tells how often it has.
    """

    ints = 3

    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        numbers = _integers(values)
        return Contributions([_is_valid(values).astype(np.int64), numbers, numbers >> 32], [])

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        valid, total, high = ints
        # What is left of the sum are the lower halves, which are not negative.
        high = high + (total - (high << 32) >> 32)
        beyond = (high >= 2**31) | (high < -(2**31))
        if bool(beyond.any()):
            raise BeyondInt64Error(int(np.argmax(beyond)))
        return pa.array(total, mask=valid == 0)


class BeyondInt64Error(Exception):
    """A sum of whole numbers does not fit in int64: that of ``row``."""

    def __init__(self, row: int) -> None:
        super().__init__("a sum of whole numbers leaves int64")
        self.row = row


class SumFloats(Accumulator):
    """The sum of floats: NaN and the infinities are counted, not summed, so that they can leave again."""

    ints = 2
    pairs = 1

    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        numbers, kinds = _finite(_floats(values))
        return Contributions([_is_valid(values).astype(np.int64), kinds], [(numbers, np.zeros(size))])

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        return pa.array(_with_kinds(_rounded(pairs[0]), ints[1]), mask=ints[0] == 0)


class Mean(SumFloats):
    """The arithmetic mean."""

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        mean = _rounded(pairs[0]) / np.maximum(ints[0], 1)
        return pa.array(_with_kinds(mean, ints[1]), mask=ints[0] == 0)


class MeanIntegers(Mean):
    """The arithmetic mean of whole numbers, exact where their sum would not fit in int64."""

    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        numbers = _integers(values)
        high = numbers.astype(np.float64)
        # The rounding error of a whole number is a whole number; at the top of the range high is 2**63.
        low = (numbers - np.where(high < 2.0**63, high, 2.0**63 - 1024).astype(np.int64)).astype(np.float64)
        low = np.where(high < 2.0**63, low, low - 1024.0)
        counts = [_is_valid(values).astype(np.int64), np.zeros(size, np.int64)]
        return Contributions(counts, [(high, low)])


def _is_valid(values: pa.Array | None) -> Mask:
    assert values is not None
    valid: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _integers(values: pa.Array | None) -> Index:
    filled = pc.fill_null(values.cast(pa.int64()), 0)  # type: ignore[union-attr]
    numbers: Index = filled.to_numpy(zero_copy_only=False)
    return numbers


def _floats(values: pa.Array | None) -> Floats:
    filled = pc.fill_null(values.cast(pa.float64(), safe=False), 0.0)  # type: ignore[union-attr]
    numbers: Floats = filled.to_numpy(zero_copy_only=False)
    return numbers


def _finite(numbers: Floats) -> tuple[Floats, Index]:
    """Numbers with 0 in the place of what is not finite, and codes that count what that was."""
    finite = np.isfinite(numbers)
    if bool(finite.all()):
        return numbers, np.zeros(len(numbers), np.int64)
    code = np.where(np.isnan(numbers), 1, np.where(numbers > 0, 1 << _KIND_BITS, 1 << 2 * _KIND_BITS))
    return np.where(finite, numbers, 0.0), np.where(finite, 0, code)


def _with_kinds(sums: Floats, kinds: Index) -> Floats:
    if not bool(kinds.any()):
        return sums
    nan, up, down = (((kinds >> (_KIND_BITS * i)) & _KIND_MASK) > 0 for i in range(3))
    infinite = np.where(up, np.inf, np.where(down, -np.inf, sums))
    return np.where(nan | (up & down), np.nan, infinite)


def _rounded(pair: Pair) -> npt.NDArray[np.float64]:
    return pair[0] + pair[1]
