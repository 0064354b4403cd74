"""Times that are taken out as time passes: things to look at again, and bags of times."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.change_log import Change
from recension.core.sorted_runs import Column, Columns, Run, SortedRuns
from recension.core.ticks import BEGINNING, FOREVER, Ticks


class TimeQueue(SortedRuns):
    """Pairs (time, group): look at the group when its time has come.

    Pairs may repeat, and may no longer matter when they come out: the taker looks. What is taken out is
    not stored pair by pair: it is enough to know up to which time it was done, and when.
    """

    key: Final = ("time", "group")

    def __init__(self) -> None:
        super().__init__({"time": np.int64, "group": np.int64})

    def clear(self) -> None:
        super().clear()
        # Pairs that came since the last checkpoint; None: all may have.
        self._fresh: list[Columns] | None = None
        # (version, time): of the pairs stored by that version, those before that time were taken out later.
        self._taken: list[tuple[int, int]] = []
        self._version = 0

    def push(self, *columns: Column, is_run: bool = False) -> None:
        super().push(*columns, is_run=is_run)
        if self._fresh is not None:
            self._fresh.append(dict(zip(self._types, columns, strict=True)))

    def pop(self, t: int, side: Literal["left", "right"] = "left") -> Columns:
        if self._fresh is not None:
            before = min(t + (side == "right"), FOREVER)
            keep = [rows["time"] >= before for rows in self._fresh]
            self._fresh = [
                {name: column[own] for name, column in rows.items()}
                for rows, own in zip(self._fresh, keep, strict=True)
            ]
            self._taken = [(v, bound) for v, bound in self._taken if bound > before]
            self._taken.append((self._version, before))
        return super().pop(t, side)

    def restore(self, table: pa.Table | Change, expired_before: int = BEGINNING) -> None:
        """Become what `snapshot` gave, or take over changes."""
        if not isinstance(table, Change):
            super().restore(table, expired_before)
            return
        assert table.versions is not None
        taken = [(int(version), int(bound)) for version, bound in table.memo["taken"]]
        rows = table.rows.filter(pa.array(~_is_taken(table.rows, table.versions, taken)))
        if table.is_whole:
            super().restore(rows, expired_before)
        else:
            super().pop(max((bound for v, bound in taken if v >= table.since), default=BEGINNING))
            super().push(*(rows[name].to_numpy() for name in self._types))
        self._fresh, self._taken, self._version = [], taken, int(table.memo["version"])

    def take_changes(self, version: int) -> Change:
        """See `Logged.take_changes`."""
        fresh, self._fresh, self._version = self._fresh, [], version
        if is_whole := fresh is None:
            self._taken, rows = [], self.snapshot()
        else:
            rows = pa.table(self._sort_rows(self._join_parts(fresh or [])))
        memo = {"taken": self._taken, "version": version}
        return Change(rows, rows.slice(0, 0), is_whole, memo)

    def find_current(self, change: Change, version: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        versions = np.full(len(change.rows), version)
        return ~_is_taken(change.rows, versions, self._taken), np.zeros(0, np.bool_)

    def pop_before(self, t: int) -> tuple[Ticks, Index]:
        """Take out every pair with a time before ``t``."""
        out = self.pop(t)
        return out["time"], out["group"]

    def pop_some(self, t: int, most: int) -> Index:
        """Take out the groups of so many pairs with a time before ``t``, the earliest first, or of all.

        Of pairs with one time some may be taken out; they may come again.
        """
        fronts = [run.key[: min(int(run.key.searchsorted(t)), most + 1)] for run in self]
        times = np.concatenate([np.zeros(0, np.int64), *fronts])
        if len(times) <= most:
            return self.pop_before(t)[1]
        bound = int(np.partition(times, most)[most])
        taken = [self.pop_before(bound)[1]]
        left = most - len(taken[0])

        def cut(run: Run) -> Run:
            nonlocal left
            size = min(left, int(run.key.searchsorted(bound, "right")))
            left -= size
            taken.append(run.part(0, size)["group"])
            return run.cut(size)

        # Where runs are being merged it is not known which rows those will be: they come again.
        self._change(cut, later=lambda run: run)
        return np.concatenate(taken)

    def pop_until(self, t: int) -> tuple[Ticks, Index]:
        """Take out every pair with a time at or before ``t``."""
        out = self.pop(t, "right")
        return out["time"], out["group"]


def _is_taken(rows: pa.Table, versions: Index, taken: list[tuple[int, int]]) -> Mask:
    """Which pairs were taken out after they were stored, as these versions."""
    time, is_taken = rows["time"].to_numpy(), np.zeros(len(rows), np.bool_)
    for version, bound in taken:
        is_taken |= (versions <= version) & (time < bound)
    return is_taken


class TimeBag(SortedRuns):
    """A bag of times; counts those in an interval, and gives up the earliest."""

    def __init__(self) -> None:
        super().__init__({"time": np.int64})

    def count_within(self, low: int, high: int) -> int:
        """How many are in ``[low, high)``."""
        return sum(int(np.diff(run.key.searchsorted((low, high)))[0]) for run in self)

    def pop_before(self, t: int) -> Ticks:
        """Take out the times before ``t``, in order."""
        return np.sort(self.pop(t)["time"])

    def pop_until(self, t: int) -> Ticks:
        """Take out the times up to ``t``, itself included, in order."""
        return np.sort(self.pop(t, "right")["time"])
