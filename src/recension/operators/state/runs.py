"""Runs: for each group the maximal stretches of time during which something holds.

    runs so far      [-----)    [---)         [----)
    covered now            [----)
    uncovered now                               [--)
    runs             [--------------)         [-)

Runs of one group neither overlap nor meet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.ticks import BEGINNING, Ticks
from recension.operators.state.block_table import sort_keys
from recension.operators.state.leaf_table import LeafTable


@dataclass(frozen=True, slots=True)
class RunChanges:
    """Run by run: its end moves from ``old`` to ``new``; equal to ``start`` means "not there"."""

    group: Index
    start: Ticks
    old: Ticks
    new: Ticks


class Runs:
    """Kept by (group, start)."""

    def __init__(self) -> None:
        self._table = LeafTable({"end": np.int64})

    def __len__(self) -> int:
        return len(self._table)

    def nbytes(self) -> int:
        """Memory taken by the runs."""
        return self._table.nbytes()

    def clear(self) -> None:
        """Forget everything."""
        self._table.clear()

    def change(self, group: Index, low: Ticks, high: Ticks, covers: Mask) -> RunChanges:
        """Cover stretches that were not covered, and uncover stretches that were.

        The stretches ``[low, high)`` are sorted and do not overlap.
        """
        extract = self._table.extract(group, low, high)
        own, start, end = (extract.columns[name][~extract.follower] for name in ("group", "time", "end"))
        one, sign = np.ones(len(own), np.int64), np.where(covers, 1, -1)
        axis = _Axis([own, own, group, group], [start, end, low, high])
        # Whether time is covered goes up by one where a run starts and down by one where it ends.
        was = axis.sums([one, -one, 0 * sign, 0 * sign])
        now = was + axis.sums([0 * one, 0 * one, sign, -sign])
        old, new = axis.ends(was), axis.ends(now)
        starts = now > 0
        columns = {"group": axis.group[starts], "time": axis.time[starts], "end": new[starts]}
        self._table.replace(extract, columns)
        differs = old != new
        return RunChanges(axis.group[differs], axis.time[differs], old[differs], new[differs])

    def forget_before(self, groups: Index, t: int) -> None:
        """Drop those groups' runs that ended before ``t``; one that ends at ``t`` can still grow."""
        extract = self._table.extract(groups, np.full(len(groups), BEGINNING), np.full(len(groups), t))
        keep = ~extract.follower & (extract.columns["end"] >= t)
        self._table.replace(extract, {name: column[keep] for name, column in extract.columns.items()})

    def renumber(self, numbers: Index) -> None:
        """Groups got new numbers."""
        self._table.renumber(numbers)

    def snapshot(self) -> pa.Table:
        """All runs."""
        return self._table.snapshot()

    def restore(self, table: pa.Table) -> None:
        """Become the runs that `snapshot` gave."""
        self._table.restore(table)


class _Axis:
    """The distinct (group, time) points of several arrays, in order."""

    def __init__(self, groups: list[Index], times: list[Ticks]) -> None:
        group, time = np.concatenate(groups), np.concatenate(times)
        self._order = np.argsort(sort_keys([group], [time])[0])
        group, time = group[self._order], time[self._order]
        self._first = np.flatnonzero(np.append(True, (group[1:] != group[:-1]) | (time[1:] != time[:-1])))
        self.group, self.time = group[self._first], time[self._first]

    def sums(self, amounts: list[Index]) -> Index:
        """What the amounts at each point add up to."""
        total: Index = np.add.reduceat(np.concatenate(amounts)[self._order], self._first)
        return total

    def ends(self, change: Index) -> Ticks:
        """The end of the run that starts at each point; the point itself where none does.

        Starts and ends take turns, so the k-th end belongs to the k-th start.
        """
        ends = self.time.copy()
        ends[change > 0] = self.time[change < 0]
        return ends
