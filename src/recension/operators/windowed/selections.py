"""Aggregates that must look at the events themselves: extremes, positions, lists, kernels, functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import Index, Mask
from recension.core.errors import ModuleError, describe_error
from recension.core.netting import distinct
from recension.core.rowhash import row_hash
from recension.core.values import MISFITS, describe_misfit, exact_array, unwrap_scalar
from recension.modules.calls import NotDeterministicError, module_error
from recension.modules.members import Window
from recension.operators.state.value_counts import ValuesAt
from recension.operators.value_order import sort_key, value_ranks
from recension.operators.windowed.double_double import Floats
from recension.operators.windowed.events import CoveringEvents, least_of_ranges

# One of the rounds that choose an event for every snapshot costs as much as so many pairs for each event.
_ROUND = 8


class Selection(ABC):
    """Chooses or computes from the values of the events alive in each snapshot."""

    picks: int | None = None
    """How many events decide, the first in `order`; None: all of them."""
    sees_ends: bool = False
    """Does the answer depend on the lifetimes of events within the window?"""

    def order(self, values: pa.Array, by_event: Callable[[], Index]) -> Index:
        """All events in the order in which they are chosen; ``by_event`` gives that which breaks ties."""
        raise NotImplementedError

    @abstractmethod
    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        """One answer per snapshot."""


class Extreme(Selection):
    """The least or greatest value; nulls do not count, NaN is greater than every number."""

    picks = 1

    def __init__(self, *, greatest: bool) -> None:
        self._greatest = greatest

    def order(self, values: pa.Array, by_event: Callable[[], Index]) -> Index:
        # Of equal values any will do: they differ only in the event they come from.
        order = _order_by_value(values)
        nulls = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
        return np.append(order[::-1] if self._greatest else order, nulls)

    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        order = self.order(values, lambda: events.order)
        return _values_at(values, order, events.least_rank(np.arange(len(order)), order))


class Positional(Selection):
    """The value of the first or last event, null or not."""

    picks = 1

    def __init__(self, *, last: bool) -> None:
        self._last = last

    def order(self, values: pa.Array, by_event: Callable[[], Index]) -> Index:
        return by_event()[::-1] if self._last else by_event()

    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        order = self.order(values, lambda: events.order)
        return _values_at(values, order, events.least_rank(np.arange(len(order)), order))


class Collect(Selection):
    """All values as a list, in the order of the events."""

    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        snapshot, event = events.incidence
        return pa.ListArray.from_arrays(_offsets(snapshot, events.snapshots), values.take(pa.array(event)))


class SortedValues(Selection):
    """A kernel of the sorted values of each snapshot; nulls do not count, and of none the answer is null."""

    def __init__(self, kernel: Callable[[pa.Array, Index], pa.Array], result: pa.DataType) -> None:
        self._kernel, self._type = kernel, result

    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        snapshot, event = events.incidence_in(_order_by_value(values))
        count = np.bincount(snapshot, minlength=events.snapshots)
        is_filled = count > 0
        # A kernel may rely on at least one value: that is what reduceat needs.
        if not is_filled.any():
            return pa.nulls(events.snapshots, self._type)
        return _spread(self._kernel(values.take(pa.array(event)), count[is_filled]), is_filled)


class UniqueValues(Selection):
    """How many different values there are; nulls do not count."""

    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        valid = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        snapshot, event = events.incidence_in(valid)
        value = np.unique(row_hash(pa.record_batch([values], ["value"]), len(values)), return_inverse=True)[1]
        pairs = distinct(snapshot * len(values) + value[event])
        return pa.array(np.bincount(pairs // max(len(values), 1), minlength=events.snapshots))


class ArgExtreme(Selection):
    """The value of the first event of those with the least or greatest of another; that is never null.

    Its values are structs: the value, and what it is chosen by.
    """

    picks = 1

    def __init__(self, *, greatest: bool) -> None:
        self._by = TopK(1, descending=greatest)

    def order(self, values: pa.Array, by_event: Callable[[], Index]) -> Index:
        return self._by.order(values.field(1), by_event)

    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        value, by = values.flatten()
        order = self.order(values, lambda: events.order)
        # Those that do not count come last.
        order = order[: len(order) - by.null_count]
        return _values_at(value, order, events.least_rank(np.arange(len(order)), order))


class Filtered(Selection):
    """Another selection, of the events that satisfy a condition.

    Its values are structs: the value, and whether the event counts. Where no event does, the answer is null,
    and of lists the empty one.
    """

    def __init__(self, of: Selection) -> None:
        self._of, self.picks = of, of.picks

    def order(self, values: pa.Array, by_event: Callable[[], Index]) -> Index:
        return _put_first(_truths(values), self._of.order(values.field(0), by_event))

    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        rows = (_truths(values)).nonzero()[0]
        return self._of.result(events.take(rows), values.field(0).take(pa.array(rows)))


def _truths(values: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(values.field(1), False).to_numpy(zero_copy_only=False), np.bool_)


def _put_first(counts: Mask, order: Index) -> Index:
    """The rows that count in this order, then the others."""
    return np.concatenate([order[counts[order]], order[~counts[order]]])


class RankedValues(Selection):
    """Numbers of some ranks among those of each snapshot; nulls do not count, and of none the answer is null.

    ``choose`` gives the answers of snapshots with so many numbers, at least one each. It gets a function that
    finds the numbers of rows of ranks, from 0, as floats.
    """

    def __init__(self, choose: Callable[[Index, Callable[[Index], Floats]], pa.Array]) -> None:
        self._choose = choose

    def result(self, events: CoveringEvents, values: pa.Array) -> pa.Array:
        order, is_deep = _order_by_value(values), np.append(events.is_deep, False)
        snapshot, event = events.incidence_in(order[~is_deep[events.first[order]]])
        numbers = values.take(pa.array(event)).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        count = np.bincount(snapshot, minlength=events.snapshots)
        return self._answer(count, count.cumsum() - count, lambda first, rank: numbers[first + rank])

    def fill_deep(self, answers: pa.Array, is_deep: Mask, values: ValuesAt) -> pa.Array:
        """The answers with those of deep snapshots put in."""
        found = self._answer(values.count(), np.arange(np.count_nonzero(is_deep)), values.find)
        return pc.replace_with_mask(answers, pa.array(is_deep), found)

    def _answer(self, count: Index, rows: Index, find: Callable[[Index, Index], Floats]) -> pa.Array:
        is_filled = count > 0
        rows = rows[is_filled]
        return _spread(self._choose(count[is_filled], lambda rank: find(rows, rank)), is_filled)


def _spread(answers: pa.Array, is_filled: Mask) -> pa.Array:
    """The answers, one for each row that is filled; the others are null."""
    return answers.take(pa.array(is_filled.cumsum() - 1, mask=~is_filled))


def _order_by_value(values: pa.Array) -> Index:
    """The rows that are not null, sorted: numbers without ranks, which take longer."""
    kind, valid = values.type, np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    is_plain = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    keys = pc.fill_null(values, 0).to_numpy(zero_copy_only=False) if is_plain else value_ranks(values)
    return valid[keys[valid].argsort(kind="stable")]


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
        # A window is only empty if none of its events count.
        answers = [self._call_function(row, part) if len(part) else None for row, part in enumerate(parts)]
        try:
            return exact_array(answers, self._type)
        except MISFITS:
            row = next(
                row for row, answer in enumerate(answers) if describe_misfit(answer, self._type) is not None
            )
            reason = f"it gave {answers[row]!r}, but is declared to give {self._type}"
            raise self._function_error(row, reason, parts[row]) from None

    def _call_function(self, row: int, values: Any) -> Any:
        try:
            return unwrap_scalar(self._fn(values))
        except NotDeterministicError as why:
            raise self._function_error(row, str(why), values) from None
        except Exception as why:
            raise self._function_error(row, describe_error(why), values) from why

    def _function_error(self, row: int, reason: str, values: Any) -> FunctionError:
        name = str(getattr(self._fn, "__name__", type(self._fn).__name__))
        return FunctionError(name, row, reason, values.tolist())


class FunctionError(Exception):
    """A user's function failed on the values of one snapshot; the caller knows which window that is."""

    def __init__(self, name: str, row: int, reason: str, values: list[Any]) -> None:
        super().__init__(name, row, reason, values)
        self.row = row
        self._name, self._reason, self._values = name, reason, values

    def to_module_error(self, start: int, end: int) -> ModuleError:
        """The error that the user sees."""
        return module_error(self._name, self._reason, Window(start, end), self._values)


class TopK:
    """The first ``k`` events by a value: nulls last, ties in the order of the events."""

    def __init__(self, k: int, *, descending: bool) -> None:
        self.picks, self._descending = k, descending

    def order(self, values: pa.Array, by_event: Callable[[], Index]) -> Index:
        """All events in the order in which they are chosen."""
        ranks = value_ranks(values)[by_event()]
        keyed = np.where(ranks < 0, np.iinfo(np.int64).max, -ranks if self._descending else ranks)
        return by_event()[keyed.argsort(kind="stable")]

    def _candidates(self, events: CoveringEvents, values: pa.Array) -> Index:
        return self.order(values, lambda: events.order)

    def choose(self, events: CoveringEvents, values: pa.Array) -> tuple[Index, Index, Index]:
        """Chosen events snapshot by snapshot, their ranks from 1, and how many each snapshot has."""
        order = self._candidates(events, values)
        first, stop, size = events.first[order], events.stop[order], events.snapshots
        pairs = int((stop - first).sum())
        if pairs <= _ROUND * self.picks * (len(order) + size):
            snapshot, event = events.incidence_in(order)
            offsets = _offsets(snapshot, size)
            place = np.arange(pairs) - offsets[:-1][snapshot]
            chosen = place < self.picks
            return event[chosen], place[chosen] + 1, np.minimum(np.diff(offsets), self.picks)
        best = least_of_ranges(size, first, stop, self.picks)
        snapshot, place = np.nonzero(best >= 0)
        return order[best[snapshot, place]], place + 1, np.bincount(snapshot, minlength=size)


class FilteredTopK(TopK):
    """The first of the events that satisfy a condition; values as those of `Filtered`."""

    def order(self, values: pa.Array, by_event: Callable[[], Index]) -> Index:
        return _put_first(_truths(values), super().order(values.field(0), by_event))

    def _candidates(self, events: CoveringEvents, values: pa.Array) -> Index:
        order = self.order(values, lambda: events.order)
        return order[: np.count_nonzero(_truths(values))]


def _values_at(values: pa.Array, order: Index, rank: Index) -> pa.Array:
    """The value of the event at each rank; null where there is no event."""
    if not len(order):
        return pa.nulls(len(rank), values.type)
    return values.take(pa.array(order[np.maximum(rank, 0)], mask=rank < 0))


def _offsets(snapshot: Index, size: int) -> Index:
    return np.append(0, np.cumsum(np.bincount(snapshot, minlength=size))).astype(np.int32)
