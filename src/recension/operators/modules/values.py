"""One value a window: by a module, by an incremental module, or by an aggregate of the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from recension.operators import double_double as dd
from recension.operators.modules.answers import Hosted, as_array
from recension.operators.modules.gathered import Delta, Gathered
from recension.operators.modules.states import States
from recension.operators.snapshot.accumulators import Accumulator, BeyondInt64Error, TooLargeError
from recension.operators.snapshot.events import CoveringEvents
from recension.operators.snapshot.measures import Aggregation
from recension.operators.snapshot.selections import Selection
from recension.operators.snapshot.steps import Pair


class BuiltIn:
    """An aggregate of the library, beside modules."""

    def __init__(self, aggregation: Aggregation) -> None:
        self._argument: Callable[[pa.RecordBatch], pa.Array] | None = aggregation.argument
        self._measure = aggregation.measure

    def of(self, gathered: Gathered) -> pa.Array:
        """The value of each window."""
        found = gathered.found
        values = None if self._argument is None else self._argument(found.payload)
        if isinstance(self._measure, Selection):
            return self._measure.result(found, values)
        assert isinstance(self._measure, Accumulator)
        try:
            return self._summed(self._measure, found, values)
        except TooLargeError as why:
            raise OverflowError(
                f"the value {why}, where sums may leave float64; scale the values down"
            ) from None
        except BeyondInt64Error:
            raise OverflowError("a sum does not fit in int64; give the column as float64") from None

    def _summed(self, measure: Accumulator, found: CoveringEvents, values: pa.Array | None) -> pa.Array:
        window, event = found.incidence_in(np.arange(len(found.vs)))
        parts = measure.contributions(values, len(found.vs))
        lengths = np.bincount(window, minlength=found.snapshots)
        ints = [_sums(column[event], lengths) for column in parts.ints]
        pairs = [_pair_sums((high[event], low[event]), lengths) for high, low in parts.pairs]
        return measure.result(lengths, ints, pairs)


def _sums(column: Any, lengths: Any) -> Any:
    running = np.append(np.zeros(1, column.dtype), np.cumsum(column))
    ends = np.cumsum(lengths)
    return running[ends] - running[ends - lengths]


def _pair_sums(pair: Pair, lengths: Any) -> Pair:
    """No window is without events, so each has a last sum."""
    high, low = dd.running_sum(*pair, lengths)
    last = np.cumsum(lengths) - 1
    return high[last], low[last]


class ModuleValues:
    """A module that is given all members of a window."""

    def __init__(self, hosted: Hosted, kind: pa.DataType) -> None:
        self._hosted, self._kind = hosted, kind

    def of(self, gathered: Gathered) -> pa.Array:
        """The value of each window."""
        given = self._hosted.given(gathered.windows, gathered.members(self._hosted))
        values = [self._hosted.compute(*one) for one in given]
        return as_array(values, self._kind, self._hosted, gathered.given_to(self._hosted))


class StateValues:
    """An incremental module."""

    def __init__(self, hosted: Hosted, kind: pa.DataType, states: States) -> None:
        self._hosted, self._kind, self._states = hosted, kind, states

    def of(self, gathered: Gathered, delta: Delta | None, gone: list[tuple[int, int]]) -> pa.Array:
        """The value of each window."""
        return self._typed(gathered, self._states.results(gathered, delta, gone))

    def before(self, gathered: Gathered) -> pa.Array:
        """The value each window had."""
        return self._typed(gathered, self._states.again(gathered))

    def _typed(self, gathered: Gathered, values: list[Any]) -> pa.Array:
        return as_array(values, self._kind, self._hosted, gathered.given_to(self._hosted))
