"""All that is asked of windows together: named values, one row a window, or the rows of one operator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from recension.modules.module import Stamping
from recension.operators.modules.answers import Hosted, Rows
from recension.operators.modules.gathered import Delta, Gathered
from recension.operators.modules.stamping import Collected, beside_keys
from recension.operators.modules.states import States
from recension.operators.modules.values import BuiltIn, ModuleValues, StateValues

Value: TypeAlias = BuiltIn | ModuleValues | StateValues


class Answering(ABC):
    """Makes the output rows of windows; ``states`` are those its incremental modules keep."""

    def __init__(self, schema: pa.Schema, states: Sequence[States]) -> None:
        self.schema, self.states = schema, list(states)

    @abstractmethod
    def now(
        self, gathered: Gathered, keys: pa.RecordBatch, delta: Delta | None, gone: list[tuple[int, int]]
    ) -> Rows:
        """The rows of windows as they are now; ``gone``: windows that were shown and are no longer."""

    @abstractmethod
    def before(self, gathered: Gathered, keys: pa.RecordBatch) -> Rows:
        """The rows of windows as they were shown, made again."""


class NamedValues(Answering):
    """One row a window, as long as the window."""

    def __init__(self, schema: pa.Schema, values: Sequence[Value], states: Sequence[States]) -> None:
        super().__init__(schema, states)
        self._values = list(values)

    def now(
        self, gathered: Gathered, keys: pa.RecordBatch, delta: Delta | None, gone: list[tuple[int, int]]
    ) -> Rows:
        columns = [
            value.of(gathered, delta, gone) if isinstance(value, StateValues) else value.of(gathered)
            for value in self._values
        ]
        return self._rows(gathered, keys, columns)

    def before(self, gathered: Gathered, keys: pa.RecordBatch) -> Rows:
        columns = [
            value.before(gathered) if isinstance(value, StateValues) else value.of(gathered)
            for value in self._values
        ]
        return self._rows(gathered, keys, columns)

    def _rows(self, gathered: Gathered, keys: pa.RecordBatch, columns: list[pa.Array]) -> Rows:
        payload = pa.RecordBatch.from_arrays([*keys.columns, *columns], schema=self.schema)
        windows = gathered.windows
        return Rows(np.arange(len(windows)), windows.start, windows.end, payload)


class OperatorRows(Answering):
    """Any number of rows a window, with the lifetimes that the policy gives them."""

    def __init__(self, schema: pa.Schema, keys: int, hosted: Hosted, stamp: Stamping, states: States | None):
        super().__init__(schema, [] if states is None else [states])
        self.hosted, self._stamp = hosted, stamp
        self._own = pa.schema(list(schema)[keys:])

    def now(
        self, gathered: Gathered, keys: pa.RecordBatch, delta: Delta | None, gone: list[tuple[int, int]]
    ) -> Rows:
        if not self.states:
            return self.before(gathered, keys)
        return self._stamped(gathered, keys, self.states[0].results(gathered, delta, gone))

    def before(self, gathered: Gathered, keys: pa.RecordBatch) -> Rows:
        if self.states:
            return self._stamped(gathered, keys, self.states[0].again(gathered))
        collected = Collected(self._own, self._stamp, self.hosted.caller)
        given = self.hosted.given(gathered.windows, gathered.members(self.hosted))
        for row, (window, members) in enumerate(given):
            collected.add(row, window, self.hosted.compute(window, members), members)
        return self._beside(collected.rows(), keys)

    def _stamped(self, gathered: Gathered, keys: pa.RecordBatch, results: list[object]) -> Rows:
        collected = Collected(self._own, self._stamp, self.hosted.caller)
        given_to = gathered.given_to(self.hosted)
        for row, answer in enumerate(results):
            window, members = given_to(row)
            collected.add(row, window, answer, members)
        return self._beside(collected.rows(), keys)

    def _beside(self, rows: Rows, keys: pa.RecordBatch) -> Rows:
        return Rows(rows.owner, rows.vs, rows.ve, beside_keys(keys, rows, self.schema))
