"""Sums at the ends of changes by counting instead of sorting, where the points lie close together.

Windows do: a batch has far more events than there are window starts in the stretch of time it spans.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recension.core.batch import Index


@dataclass(frozen=True, slots=True)
class Dense:
    """Where changes begin, where they end, and what else is looked at: places from 0 to ``size``."""

    begins: Index
    ends: Index
    looked: Index
    size: int

    @staticmethod
    def of(begins: Index, ends: Index, looked: Index, ints: list[Index]) -> Dense | None:
        """None if counting would not pay, or sums would not be exact in floats."""
        count = 2 * len(begins) + len(looked)
        if not count or any(len(x) * max(int(x.max()), -int(x.min())) >= 2**53 for x in ints if len(x)):
            return None
        every = [keys for keys in (begins, ends, looked) if len(keys)]
        low, high = min(int(k.min()) for k in every), max(int(k.max()) for k in every)
        if high - low > 2 * count:
            return None
        return Dense(begins - low, ends - low, looked - low, high - low + 1)

    def points(self) -> Index:
        """The places where there is anything."""
        is_point = np.zeros(self.size, np.bool_)
        for places in (self.begins, self.ends, self.looked):
            is_point[places] = True
        return np.flatnonzero(is_point)

    def spread(self, at_begin: Index, at_end: Index, looked: Index) -> Index:
        """Values that are the same wherever places are, by place."""
        values = np.empty(self.size, np.int64)
        values[self.begins], values[self.ends], values[self.looked] = at_begin, at_end, looked
        return values

    def counts(self) -> tuple[Index, Index]:
        """How many changes begin and end at each place."""
        return np.bincount(self.begins, minlength=self.size), np.bincount(self.ends, minlength=self.size)

    def change(self, by: Index) -> Index:
        """What is added where changes begin and taken away where they end."""
        return (np.bincount(self.begins, by, self.size) - np.bincount(self.ends, by, self.size)).astype(
            np.int64
        )

    def sum(self, ends: tuple[Index, Index]) -> Index:
        """What is added at the two ends."""
        at_begin, at_end = (
            np.bincount(self.begins, ends[0], self.size),
            np.bincount(self.ends, ends[1], self.size),
        )
        return (at_begin + at_end).astype(np.int64)

    def sum_looked(self, values: Index) -> Index:
        """What is added at the places looked at."""
        return np.bincount(self.looked, values, self.size).astype(np.int64)
