"""Aggregates that can take an event back: kept as sums, changed by differences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import EventBatch, Index, Mask
from recension.core.rowhash import Hashes
from recension.operators.base import Chunks
from recension.operators.windowed.dense_axis import constant, constant_float
from recension.operators.windowed.double_double import Floats, Pair
from recension.operators.windowed.steps import Contributions, Points

Longs: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.uint64]

# Counts of +inf and -inf share one whole number; that of NaN has its own.
_DOWN_BITS = 31

# Of floats up to this size no number of events that fits in int64 has a sum beyond the largest float.
_LARGEST = 2.0**960


class Accumulator(ABC):
    """Whole numbers and float pairs that sum up one aggregate's events, and the result they stand for."""

    ints: int = 0
    pairs: int = 0
    sums_floats: bool = False
    """Is its only pair the sum of floats as they come?"""

    @abstractmethod
    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        """What each event adds."""

    @abstractmethod
    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        """The aggregate where ``n`` events are live and the sums are as given."""


class PlacedAccumulator(Accumulator):
    """One whose sums change where its own state says, not where each event begins and ends.

    It keeps state of its own, and so needs windows that events live through.
    """

    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        """Nothing but what `points` says."""
        none, zero = np.zeros(size, np.int64), np.zeros(size)
        return Contributions([none] * self.ints, [(zero, zero)] * self.pairs)

    @abstractmethod
    def points(self, values: pa.Array, changes: PlacedChanges) -> Points:
        """Where the sums change, and by how much, as the ends of events with these values move."""

    @abstractmethod
    def forget_before(self, place: int) -> None:
        """Nothing changes before this place any more."""

    @abstractmethod
    def rows(self) -> int:
        """How many rows of state are held."""

    @abstractmethod
    def nbytes(self) -> int:
        """Memory taken."""

    @abstractmethod
    def snapshot(self) -> Chunks:
        """The state as named tables."""

    @abstractmethod
    def restore(self, chunks: Chunks) -> None:
        """Become what `snapshot` gave."""


@dataclass(frozen=True, slots=True)
class PlacedChanges:
    """The elements of a batch on the axis of windows: each takes an event's end from ``old`` to ``new``.

    ``hash`` is that of the group, which stays when numbers change. The batch has the times themselves.
    """

    group: Index
    hash: Hashes
    vs: Index
    old: Index
    new: Index
    batch: EventBatch


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
        return Contributions([_count_valid(values)], [])

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        return pa.array(ints[0])


class CountTruths(Accumulator):
    """Is some value true, or is every one? Null if there is none."""

    ints = 2

    def __init__(self, *, every: bool) -> None:
        self._every = every

    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        return Contributions([_count_valid(values), _integers(values)], [])

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        valid, true = ints
        return pa.array(true == valid if self._every else true > 0, mask=valid == 0)


class SumIntegers(Accumulator):
    """The sum of whole numbers, exact."""

    ints = 2

    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        return Contributions([_count_valid(values), _integers(values)], [])

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        return _nullable(ints[1], ints[0] == 0)


class SumLongs(Accumulator):
    """The sum of whole numbers of 64 bits, exact, or an error where it does not fit in as many.

    The sum itself wraps around. A second sum, of the upper halves, tells how often it did.
    """

    ints = 3

    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        numbers = _longs(values)
        # An unsigned number that does not fit in int64 wraps around; its upper half stays right.
        parts = [numbers.view(np.int64), (numbers >> 32).astype(np.int64)]
        return Contributions([_count_valid(values), *parts], [])

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        valid, total, high = ints
        # The rest of the sum are the lower halves, which are never negative.
        high = high + (total - (high << 32) >> 32)
        beyond = (high >= 2**31) | (high < -(2**31))
        if bool(beyond.any()):
            raise BeyondInt64Error(int(np.argmax(beyond)))
        return _nullable(total, valid == 0)


class BeyondInt64Error(Exception):
    """The sum of ``row`` does not fit in int64."""

    def __init__(self, row: int) -> None:
        super().__init__("a sum of whole numbers leaves int64")
        self.row = row


class BeyondDecimalError(Exception):
    """The sum or mean of ``row`` has more digits than its type."""

    def __init__(self, row: int, kind: pa.DataType) -> None:
        super().__init__(f"a decimal does not fit in {kind}")
        self.row, self.kind = row, kind


class TooLargeError(Exception):
    """A float is too large for sums of many to stay finite."""

    def __init__(self, value: float) -> None:
        super().__init__(f"{value!r} is beyond 2**960")
        self.value = value


OVERFLOWS: Final = (TooLargeError, BeyondInt64Error, BeyondDecimalError)


def overflow_error(
    why: Exception, name: str, key_of: Callable[[int], pa.RecordBatch] | None = None
) -> OverflowError:
    """One of `OVERFLOWS` as an error for users, with the column and the group if known.

    ``key_of`` gives the key of a row.
    """
    if not isinstance(why, BeyondInt64Error | BeyondDecimalError):
        return OverflowError(f"{name}: the value {why}, where sums may leave float64; scale the values down")
    keys = [] if key_of is None else key_of(why.row).to_pylist()
    group = f" of {keys[0]}" if any(keys) else ""
    if isinstance(why, BeyondInt64Error):
        return OverflowError(f"the sum {name}{group} does not fit in int64; give the column as float64")
    return OverflowError(f"the decimal {name}{group} does not fit in {why.kind}; give the column as float64")


class SumFloats(Accumulator):
    """The sum of floats: NaN and the infinities are counted, not summed, so that they can leave again."""

    ints = 3
    pairs = 1
    sums_floats = True

    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        numbers, *kinds = _split_finite(_floats(values))
        return Contributions([_count_valid(values), *kinds], [(numbers, constant_float(0.0, size))])

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        return _nullable(_with_kinds(_round_pair(pairs[0]), *ints[1:]), ints[0] == 0)


class Mean(SumFloats):
    """The arithmetic mean."""

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        mean = _round_pair(pairs[0]) / np.maximum(ints[0], 1)
        return _nullable(_with_kinds(mean, *ints[1:]), ints[0] == 0)


class MeanIntegers(Mean):
    """The arithmetic mean of whole numbers, exact where their sum would not fit in int64."""

    ints = 1
    sums_floats = False

    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        return Contributions([_count_valid(values)], [_exact_pair(_longs(values))])

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        return pa.array(_round_pair(pairs[0]) / np.maximum(ints[0], 1), mask=ints[0] == 0)


def number_pairs(values: pa.Array) -> tuple[list[Index], Pair]:
    """How many values there are, and how many of them are NaN and infinite; and the others as pairs."""
    valid = _count_valid(values)
    if pa.types.is_floating(values.type):
        numbers, *kinds = _split_finite(_floats(values))
        return [valid, *kinds], (numbers, constant_float(0.0, len(values)))
    none = constant(0, len(values))
    return [valid, none, none], _exact_pair(_longs(values))


def mean_of(total: Pair, weight: Pair, counts: list[Index]) -> pa.Array:
    """Weighted means; null where there are no values. ``counts`` are those of `number_pairs`."""
    valid, *kinds = counts
    with np.errstate(invalid="ignore", divide="ignore"):
        means = _round_pair(total) / _round_pair(weight)
    return pa.array(_with_kinds(means, *kinds), mask=(valid == 0) | (weight[0] == 0))


def _exact_pair(numbers: Longs) -> Pair:
    """Whole numbers of 64 bits as floats and their rounding errors."""
    high = numbers.astype(np.float64)
    # At the top of the range high is the next power of two, which is no number of this type.
    top, step = (2.0**64, 2048.0) if numbers.dtype == np.uint64 else (2.0**63, 1024.0)
    is_top = high == top
    near = np.where(is_top, top - step, high).astype(numbers.dtype)
    low = (numbers - near).view(np.int64).astype(np.float64)
    return high, np.where(is_top, low - step, low)


def _nullable(values: Index | Floats, missing: Mask) -> pa.Array:
    return pa.array(values, mask=missing) if bool(missing.any()) else pa.array(values)


def _count_valid(values: pa.Array | None) -> Index:
    """1 for every value that is there, 0 for a null."""
    assert values is not None
    if not values.null_count:
        return constant(1, len(values))
    valid: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    return valid.astype(np.int64)


def _integers(values: pa.Array | None) -> Index:
    assert values is not None
    numbers: Index = _without_nulls(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return numbers


def _longs(values: pa.Array | None) -> Longs:
    """Whole numbers of 64 bits; unsigned only if they are given so."""
    assert values is not None
    if not pa.types.is_uint64(values.type):
        return _integers(values)
    numbers: Longs = _without_nulls(values, 0).to_numpy(zero_copy_only=False)
    return numbers


def _floats(values: pa.Array | None) -> Floats:
    assert values is not None
    if values.type != pa.float64():
        values = values.cast(pa.float64(), safe=False)
    numbers: Floats = _without_nulls(values, 0.0).to_numpy(zero_copy_only=False)
    return numbers


def _without_nulls(values: pa.Array, other: float) -> pa.Array:
    """The values, with another in the place of nulls."""
    return pc.fill_null(values, other) if values.null_count else values


def _split_finite(numbers: Floats) -> tuple[Floats, Index, Index]:
    """Numbers with 0 for all that is not finite; and counts of NaN and of the infinities."""
    # With a NaN among them neither holds.
    if float(numbers.max(initial=0.0)) <= _LARGEST and float(numbers.min(initial=0.0)) >= -_LARGEST:
        nothing = constant(0, len(numbers))
        return numbers, nothing, nothing
    usual = np.abs(numbers) <= _LARGEST
    too_large = np.isfinite(numbers) & ~usual
    if bool(too_large.any()):
        raise TooLargeError(float(numbers[np.argmax(too_large)]))
    infinite = np.where(numbers == np.inf, 1, np.where(numbers == -np.inf, 1 << _DOWN_BITS, 0))
    return np.where(usual, numbers, 0.0), np.isnan(numbers).astype(np.int64), infinite


def _with_kinds(sums: Floats, nans: Index, infinite: Index) -> Floats:
    if not bool(nans.any() or infinite.any()):
        return sums
    up, down = infinite & ((1 << _DOWN_BITS) - 1) > 0, infinite >> _DOWN_BITS > 0
    with_infinite = np.where(up, np.inf, np.where(down, -np.inf, sums))
    return np.where((nans > 0) | (up & down), np.nan, with_infinite)


def _round_pair(pair: Pair) -> npt.NDArray[np.float64]:
    return pair[0] + pair[1]
