"""How likely tuples are to coalesce and to come out of order, learned from batches as they pass.

Assumes     every batch that arrives is shown once, in the order of arrival.
Guarantees  cp is the share of tuples that are equivalent to the one before them in their group, of those
            whose neighbour is at hand and those that are the first of a group; oop the share of tuples
            older than their group's latest. Old tuples fade: one counts half after ``half_life`` more.
State       the latest tuple of every group, and four numbers.
Cost        O(n log n) for n tuples in a batch, and a merge of the groups they touch.
Source      coalescing ruling 31.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask, take_rows
from recension.core.rowhash import Hashes, rows_equal
from recension.core.ticks import Ticks

Alike: TypeAlias = Callable[[pa.RecordBatch, pa.RecordBatch], Mask]
"""Which rows of the second are equivalent to those of the first, the ones before them in their groups?"""

HALF_LIFE: Final = 20_000.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """The probabilities so far, and the number of tuples they come from; faded tuples count in part."""

    cp: float
    oop: float
    compared: float
    arrived: float


class Probabilities:
    """cp and oop of one coalescing query."""

    def __init__(self, values: pa.Schema, alike: Alike | None = None, half_life: float = HALF_LIFE) -> None:
        self._alike = alike or (lambda one, other: rows_equal(one, other, one.num_rows))
        self._half_life = half_life
        self._counts = np.zeros(4)  # arrived, late, compared, merged
        self._groups = np.zeros(0, np.uint64)
        self._times = np.zeros(0, np.int64)
        self._values: pa.RecordBatch = pa.RecordBatch.from_pylist([], values)

    def __len__(self) -> int:
        return len(self._groups)

    def nbytes(self) -> int:
        """Memory taken."""
        return 16 * len(self) + int(self._values.nbytes) + self._counts.nbytes

    def estimate(self) -> Estimate:
        """The estimate so far; 0 where there were no tuples."""
        arrived, late, compared, merged = (float(x) for x in self._counts)
        return Estimate(
            merged / compared if compared else 0.0, late / arrived if arrived else 0.0, compared, arrived
        )

    def observe(self, groups: Hashes, times: Ticks, values: pa.RecordBatch) -> None:
        """Tuples have arrived, in this order."""
        if not len(times):
            return
        known = self._find_known(groups)
        seen = _Tuples(
            np.append(self._groups[known], groups),
            np.append(self._times[known], times),
            pa.concat_batches([take_rows(self._values, known), values]),
            len(known),
        )
        compared, merged = seen.count_compared(self._alike)
        counts = np.array([len(times), seen.count_late(), compared, merged], np.float64)
        self._counts = self._counts * 0.5 ** (len(times) / self._half_life) + counts
        self._keep(known, seen)

    def forget_before(self, t: int) -> None:
        """Forget groups without a tuple since ``t``: the window holds nothing of them any more."""
        self._keep_rows(np.flatnonzero(self._times >= t))

    def _find_known(self, groups: Hashes) -> Index:
        """Where the groups of a batch stand among those seen before."""
        found: Index = np.flatnonzero(np.isin(self._groups, groups))
        return found

    def _keep(self, known: Index, seen: _Tuples) -> None:
        """The latest tuple of each group in the batch instead of the one kept so far."""
        self._keep_rows(np.delete(np.arange(len(self)), known))
        groups, times, values = seen.latest_tuples()
        order = np.argsort(np.append(self._groups, groups))
        self._groups = np.append(self._groups, groups)[order]
        self._times = np.append(self._times, times)[order]
        self._values = take_rows(pa.concat_batches([self._values, values]), order)

    def _keep_rows(self, kept: Index) -> None:
        self._groups, self._times = self._groups[kept], self._times[kept]
        self._values = take_rows(self._values, kept)

    def snapshot(self) -> dict[str, pa.Table]:
        """The state as named tables."""
        return {
            "counts": pa.table({"count": self._counts}),
            "latest": pa.table({"group": self._groups, "time": self._times}),
            "values": pa.Table.from_batches([self._values]),
        }

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Become what gave these chunks."""
        self._counts = chunks["counts"]["count"].to_numpy().copy()
        self._groups, self._times = (chunks["latest"][name].to_numpy().copy() for name in ("group", "time"))
        values = chunks["values"].combine_chunks().to_batches()
        self._values = values[0] if values else self._values.slice(0, 0)


@dataclass(frozen=True)
class _Tuples:
    """The latest of each group seen before, so many, then the tuples of a batch."""

    groups: Hashes
    times: Ticks
    values: pa.RecordBatch
    before: int

    def count_late(self) -> int:
        """How many of the batch are older than the latest of their group when they arrive."""
        by_group = np.argsort(self.groups, kind="stable")
        rank = np.unique(self.times[by_group], return_inverse=True)[1]
        number = np.cumsum(np.append(0, self.groups[by_group][1:] != self.groups[by_group][:-1]))
        # Groups one above the other, so that a running maximum never leaves its group.
        height = number * np.int64(len(rank)) + rank
        return int((height < np.maximum.accumulate(height)).sum())

    def count_compared(self, alike: Alike) -> tuple[int, int]:
        """How many of the batch have a neighbour at hand or need none; how many are equivalent to theirs.

        The first of a group needs none. A late tuple that comes before all at hand of its group has one
        somewhere: nothing is known of it.
        """
        order, has_neighbour = self._sort_by_group()
        after = np.flatnonzero(has_neighbour & (order >= self.before))
        pairs = alike(take_rows(self.values, order[after - 1]), take_rows(self.values, order[after]))
        first_of_all = int((~has_neighbour).sum()) - self.before
        return len(after) + first_of_all, int(pairs.sum())

    def latest_tuples(self) -> tuple[Hashes, Ticks, pa.RecordBatch]:
        """The latest tuple of each group."""
        order, has_neighbour = self._sort_by_group()
        last = order[np.append(~has_neighbour[1:], True)]
        return self.groups[last], self.times[last], take_rows(self.values, last)

    def _sort_by_group(self) -> tuple[Index, Mask]:
        """By group and time; and whether a tuple of the same group stands before."""
        order = np.lexsort((self.times, self.groups))
        same = self.groups[order][1:] == self.groups[order][:-1]
        return order, np.append(False, same)
