"""Aggregates that must look at the events themselves: extremes, positions, lists, quantiles, functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import Index
from recension.core.errors import ModuleError
from recension.core.values import MISFITS, exact_array, misfit, plain
from recension.modules.calls import NotDeterministicError, failure, said
from recension.modules.members import Window
from recension.operators.double_double import Floats
from recension.operators.value_order import sort_key, value_ranks
from recension.operators.windowed.events import CoveringEvents

Numbers = npt.NDArray[Any]


class Selection(ABC):
    """Chooses or computes from the values of the events alive in each snapshot."""

    @abstractmethod
    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        """One answer per snapshot."""


class Extreme(Selection):
    """The least or greatest value; nulls do not count, NaN is greater than every number."""

    def __init__(self, *, greatest: bool) -> None:
        self._sign = -1 if greatest else 1

    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        ranks = value_ranks(values)
        order = np.flatnonzero(ranks >= 0)
        # Among equal values any will do: they are told apart only by the event they come from.
        by_rank = order[np.argsort(self._sign * ranks[order], kind="stable")]
        return _chosen(values, by_rank, events.least(np.arange(len(by_rank)), by_rank))


class Positional(Selection):
    """The value of the first or last event, null or not."""

    def __init__(self, *, last: bool) -> None:
        self._last = last

    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        order = events.order[::-1] if self._last else events.order
        return _chosen(values, order, events.least(np.arange(len(order)), order))


class Collect(Selection):
    """All values as a list, in the order of the events."""

    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        snapshot, event = events.incidence
        return pa.ListArray.from_arrays(_offsets(snapshot, events.snapshots), values.take(pa.array(event)))


class Quantile(Selection):
    """The value a part ``q`` of the way through the sorted values, linear between neighbours."""

    def __init__(self, q: float) -> None:
        self._q = q

    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        ranks = value_ranks(values)
        valid = np.flatnonzero(ranks >= 0)
        order = valid[np.argsort(ranks[valid], kind="stable")]
        snapshot, event = events.incidence_in(order)
        sorted_values = pc.fill_null(values.cast(pa.float64(), safe=False), 0.0).to_numpy(
            zero_copy_only=False
        )
        offsets = _offsets(snapshot, events.snapshots)
        count = np.diff(offsets)
        place = self._q * np.maximum(count - 1, 0)
        low = np.floor(place).astype(np.int64)
        at = np.minimum(offsets[:-1], max(len(event) - 1, 0))
        if not len(event):
            return pa.nulls(events.snapshots, pa.float64())
        below = sorted_values[event[at + np.where(count > 0, low, 0)]]
        above = sorted_values[event[at + np.where(count > 0, np.minimum(low + 1, count - 1), 0)]]
        share = place - low
        with np.errstate(invalid="ignore"):  # between two infinities lies NaN
            between = np.where(share == 0, below, below + (above - below) * share)
        return pa.array(between, mask=count == 0)


class StdDev(Selection):
    """The sample standard deviation: null of fewer than two values, NaN of any that is not finite.

    Sums of squares lose all digits of values that are large beside their differences; so each snapshot is
    looked at twice, first for its mean, then for the distances from it. The values are sorted: the answer is
    then a function of the values alone, and what was shown is retracted to the last bit, whatever order
    events have.
    """

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


class FunctionOf(Selection):
    """Any function of the array of values, by start and value, called once per snapshot."""

    def __init__(self, fn: Callable[[Any], Any], result: pa.DataType) -> None:
        self._fn, self._type = fn, result

    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        order = np.lexsort((sort_key(values), events.vs))
        snapshot, event = events.incidence_in(order)
        taken = values.take(pa.array(event))
        offsets = _offsets(snapshot, events.snapshots).tolist()
        # Each snapshot by itself: what a null does to the type of an array must not reach another one.
        parts = [taken.slice(a, b - a).to_numpy(zero_copy_only=False) for a, b in pairwise(offsets)]
        answers = [self._called(row, part) for row, part in enumerate(parts)]
        try:
            return exact_array(answers, self._type)
        except MISFITS:
            row = next(row for row, answer in enumerate(answers) if misfit(answer, self._type) is not None)
            reason = f"it gave {answers[row]!r}, but is declared to give {self._type}"
            raise self._failed(row, reason, parts[row]) from None

    def _called(self, row: int, values: Any) -> Any:
        try:
            return plain(self._fn(values))
        except NotDeterministicError as why:
            raise self._failed(row, str(why), values) from None
        except Exception as why:
            raise self._failed(row, said(why), values) from why

    def _failed(self, row: int, reason: str, values: Any) -> FunctionError:
        name = str(getattr(self._fn, "__name__", type(self._fn).__name__))
        return FunctionError(name, row, reason, values.tolist())


class FunctionError(Exception):
    """A user's function failed on the values of one snapshot; where that is in time, others know."""

    def __init__(self, name: str, row: int, reason: str, values: list[Any]) -> None:
        super().__init__(name, row, reason, values)
        self.row = row
        self._name, self._reason, self._values = name, reason, values

    def in_window(self, start: int, end: int) -> ModuleError:
        """What is told to the user."""
        return failure(self._name, self._reason, Window(start, end), self._values)


class TopK:
    """The first ``k`` events by a value: nulls last, ties in the order of the events."""

    def __init__(self, k: int, *, descending: bool) -> None:
        self._k, self._descending = k, descending

    def choose(self, events: CoveringEvents, values: pa.Array) -> tuple[Index, Index, Index]:
        """Chosen events snapshot by snapshot, their ranks from 1, and how many each snapshot has."""
        ranks = value_ranks(values)[events.order]
        keyed = np.where(ranks < 0, np.iinfo(np.int64).max, -ranks if self._descending else ranks)
        snapshot, event = events.incidence_in(events.order[np.argsort(keyed, kind="stable")])
        offsets = _offsets(snapshot, events.snapshots)
        place = np.arange(len(event)) - offsets[:-1][snapshot]
        chosen = place < self._k
        return event[chosen], place[chosen] + 1, np.minimum(np.diff(offsets), self._k)


def _chosen(values: pa.Array, order: Index, rank: Index) -> pa.Array:
    """The value of the event at each rank; null where there is no event."""
    if not len(order):
        return pa.nulls(len(rank), values.type)
    return values.take(pa.array(order[np.maximum(rank, 0)], mask=rank < 0))


def _offsets(snapshot: Index, size: int) -> Index:
    return np.append(0, np.cumsum(np.bincount(snapshot, minlength=size))).astype(np.int32)
