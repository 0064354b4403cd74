"""Points of an axis that lie close together, and columns of one value: what need not be sorted or stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeVar

import numpy as np

from recension.core.batch import Index
from recension.core.records import record
from recension.operators.windowed import double_double as dd
from recension.operators.windowed.double_double import Floats, Pair

_SHORT: Final = 256  # rows of which there is little to spare


@record
class DenseAxis:
    """Sums at the ends of changes by counting instead of sorting, where the points lie close together.

    Windows do: a batch has far more events than there are window starts in the time it spans. ``begins``,
    ``ends`` and ``looked`` are where changes begin, where they end and what else is looked at, as places from
    0 to ``size``; the first stands for the key ``low``. Where all changes are equally long, by ``lag``, what
    ends is what began that much earlier. ``come`` and ``go`` count changes that begin and end at each place.
    """

    begins: Index
    ends: Index
    looked: Index
    low: int
    size: int
    lag: int | None
    come: Index
    go: Index

    @staticmethod
    def try_build(begins: Index, ends: Index, looked: Index, ints: list[Index]) -> DenseAxis | None:
        """None if counting would not pay, or sums would not be exact in floats."""
        count = 2 * len(begins) + len(looked)
        every = [keys for keys in (begins, ends, looked) if len(keys)]
        if not count:
            return None
        low, high = min([int(k.min()) for k in every]), max([int(k.max()) for k in every])
        if high - low > 2 * count:
            return None
        if any(len(x) * _largest(x) >= 2**53 for x in ints if len(x)):
            return None
        begins, ends, size = begins - low, ends - low, high - low + 1
        lag = common_lag(begins, ends)
        come = np.bincount(begins, minlength=size)
        go = np.bincount(ends, minlength=size) if lag is None else _shift(come, lag)
        return DenseAxis(begins, ends, looked - low, low, size, lag, come, go)

    @property
    def most_at_one_place(self) -> int:
        """How many changes begin, or end, at one place."""
        return max(int(self.come.max()), int(self.go.max()))

    def points(self) -> Index:
        """The places that are used."""
        is_point = (self.come + self.go) > 0
        is_point[self.looked] = True
        return np.flatnonzero(is_point)

    def running_total(self, by: Index, at: Index, n: Index) -> Index:
        """The sum along the axis of what each change adds; ``n`` is that of one each."""
        # Often all are alike: every value is there, or none is large.
        if len(by) and (is_constant(by) or bool((by == by[0]).all())):
            return n * int(by[0]) if by[0] else constant(0, len(at))
        return np.cumsum(self._change(by)[at]).astype(np.int64)

    def running_pairs(self, pairs: Sequence[Pair], at: Index, most: int) -> list[Pair] | None:
        """The same of floats, exactly; None if ``most`` of them cannot be added without rounding.

        Each part is added in floats without rounding, at a place and along the axis: any order gives the
        same. Where no event changes it is nothing again.
        """
        totals = list[Pair]()
        for high, low in pairs:
            has_low = bool(low[:1].any()) if is_constant(low) else bool(low.any())
            parts = None if has_low else dd.exact_parts(high, most)
            if parts is None:
                return None
            sums = [np.cumsum(self._change(part).take(at)) for part in parts]
            totals.append(dd.add_up(sums, len(at)))
        return totals

    def _change(self, by: Index | Floats) -> Floats:
        """What is added where changes begin and taken away where they end."""
        come = np.bincount(self.begins, by, self.size).astype(np.float64, copy=False)
        return come - (np.bincount(self.ends, by, self.size) if self.lag is None else _shift(come, self.lag))

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


def constant(value: int, size: int) -> Index:
    """A column of one value, not to be written to; a long one takes no memory."""
    return _short_constant(value, size) if size < _SHORT else np.broadcast_to(np.int64(value), size)


@lru_cache(maxsize=2 * _SHORT)
def _short_constant(value: int, size: int) -> Index:
    column = np.full(size, value)
    column.flags.writeable = False
    return column


def constant_float(value: float, size: int) -> Floats:
    """The same of a float."""
    return np.full(size, value) if size < _SHORT else np.broadcast_to(np.float64(value), size)


def is_constant(column: Index | Floats) -> bool:
    """Is it known to be of one value, since every row is the same place in memory?"""
    return column.strides == (0,)


def _largest(column: Index) -> int:
    if is_constant(column):
        return abs(int(column[0]))
    return max(int(column.max()), -int(column.min()))


def common_lag(begins: Index, ends: Index) -> int | None:
    """By how much all ends come after their beginnings; None if they differ, or come before."""
    lag = int(ends[0] - begins[0]) if len(begins) else 0
    return lag if lag >= 0 and bool((ends - begins == lag).all()) else None


Amounts = TypeVar("Amounts", Index, Floats)


def _shift(column: Amounts, lag: int) -> Amounts:
    """Every value so much later; nothing comes after the last place."""
    later = np.zeros_like(column)
    later[lag:] = column[: len(column) - lag]
    return later
