"""Sums of floats of very different sizes: each is kept in lanes, in which nothing is ever rounded.

A pair of floats holds some 106 digits in base two. A number has 53, and the sum of two million some 21
more. So the numbers of a lane may differ by 30 digits in size: their sum is exact, and so is taking one of
them back. Numbers that lie farther apart get lanes of their own, of as many more pairs. Most columns have
one lane. In which lane a number is does not matter, for nothing is lost in any: it may come in one and go
in another.

    digits of    1e16      |=====================|
                 1e-3                        |=====================|         one lane
                 1e-300                                   far away: |=====================|
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from recension.operators.windowed import double_double as dd
from recension.operators.windowed.dense_axis import constant_float
from recension.operators.windowed.double_double import Floats, Pair
from recension.operators.windowed.index import WindowIndex

_DIGITS: Final = 53
_MANY: Final = 21
"""Two to this power is how many numbers may be in a sum."""
_PART: Final = 1 << 13
_HELD: Final = 104
"""So many digits of a sum pairs hold exactly, whatever is added or taken back."""

Window: TypeAlias = tuple[int, int]
"""The exponents of the last digit of the numbers in a lane, and of the first digit of their sums."""
_UNUSED: Final[Window] = (1 << 20, -(1 << 20))


class FloatLanes:
    """The lanes of ``size`` pairs of an index; those named by ``floats`` are floats, or exact sums."""

    def __init__(
        self, index: WindowIndex, size: int, floats: Sequence[int], *, are_sums: bool = False
    ) -> None:
        self._index, self._size, self._floats, self._are_sums = index, size, floats, are_sums
        self._windows: dict[int, list[Window]] | None = None

    def forget(self) -> None:
        """The index has another state."""
        self._windows = None

    @property
    def count(self) -> int:
        """How many lanes each pair has."""
        return self._index.count_pairs() // self._size if self._size else 1

    def split(self, pairs: list[Pair]) -> list[Pair]:
        """What events add to each lane: the pairs of the first, then those of the second, and so on."""
        if self._windows is None:
            self._windows = {i: self._find_windows(i) for i in self._floats}
        split = _split_sums if self._are_sums else _split_floats
        own = {i: split(self._windows[i], pairs[i]) for i in self._floats}
        lanes = max([self.count, *map(len, own.values())])
        if lanes > self.count:
            self._index.widen(lanes * self._size)
        if lanes == 1:
            return pairs
        return [
            self._pair_in(lane, pair, own.get(i)) for lane in range(lanes) for i, pair in enumerate(pairs)
        ]

    def _pair_in(self, lane: int, pair: Pair, own: list[Pair] | None) -> Pair:
        parts = [pair] if own is None else own
        nothing = constant_float(0.0, len(pair[0]))
        return parts[lane] if lane < len(parts) else (nothing, nothing)

    def collapse(self, pairs: list[Pair]) -> list[Pair]:
        """One pair for each sum, of the pairs in all its lanes."""
        if len(pairs) <= self._size:
            return pairs
        return [
            dd.collapse([part for pair in pairs[i :: self._size] for part in pair]) for i in range(self._size)
        ]

    def _find_windows(self, pair: int) -> list[Window]:
        """The windows of the lanes of a pair, by the sums that are kept: all their digits must fit."""
        found = list[Window]()
        for lane in range(self.count):
            parts = [part[part != 0.0] for part in self._index.read_pair(lane * self._size + pair)]
            numbers = np.concatenate([np.zeros(0), *parts])
            is_used = bool(len(numbers))
            found.append((_last_digit(numbers), int(np.frexp(numbers)[1].max())) if is_used else _UNUSED)
        return found


def _split_floats(windows: list[Window], pair: Pair) -> list[Pair]:
    """Pairs of numbers as they come, the low part of which is nothing."""
    return [(part, pair[1]) for part in _split_numbers(windows, pair[0])]


def _split_sums(windows: list[Window], pair: Pair) -> list[Pair]:
    """Pairs that are sums already: their digits lie as far apart as those of a lane may."""
    numbers = np.concatenate([part[part != 0.0] for part in pair])
    if not len(numbers):
        return [pair]
    lane = _find_lane(windows, (_last_digit(numbers), int(np.frexp(numbers)[1].max()) + _MANY))
    if lane is not None:
        return [(np.zeros_like(pair[0]),) * 2] * lane + [pair]
    high, low = (_split_numbers(windows, part) for part in pair)
    nothing = [np.zeros_like(pair[0])]
    high, low = high + nothing * (len(low) - len(high)), low + nothing * (len(high) - len(low))
    return [dd.two_sum(*parts) for parts in zip(high, low, strict=True)]


def _split_numbers(windows: list[Window], numbers: Floats) -> list[Floats]:
    least, largest = _sizes(numbers)
    if largest == 0.0:
        return [numbers]
    lane = _find_lane(windows, _window_of(int(np.frexp(least)[1]), int(np.frexp(largest)[1])))
    if lane is not None:
        return [np.zeros_like(numbers)] * lane + [numbers]
    exponents = np.frexp(numbers)[1]
    there = np.unique(exponents[numbers != 0.0])
    lanes = np.array([_find_lane(windows, _window_of(e, e)) for e in there.tolist()])
    own = lanes[np.minimum(np.searchsorted(there, exponents), len(there) - 1)]
    return [np.where(own == lane, numbers, 0.0) for lane in range(int(lanes.max()) + 1)]


def _sizes(numbers: Floats) -> tuple[float, float]:
    """The least size of a number that is not 0, and the greatest; in parts that fit in the nearest memory."""
    least, largest, room = np.inf, 0.0, np.empty(min(len(numbers), _PART))
    for start in range(0, len(numbers), _PART):
        part = numbers[start : start + _PART]
        size = np.abs(part, out=room[: len(part)])
        largest = max(largest, float(size.max()))
        own = float(size.min())
        least = min(least, own if own > 0.0 else float(size.min(where=size > 0.0, initial=np.inf)))
    return least, largest


def _window_of(least: int, greatest: int) -> Window:
    """What numbers with such exponents need."""
    return least - _DIGITS, greatest + _MANY


def _find_lane(windows: list[Window], wanted: Window) -> int | None:
    """The lane that takes such numbers, made wider if need be; None if it takes several."""
    for lane, (last, first) in enumerate(windows):
        both = min(last, wanted[0]), max(first, wanted[1])
        if both[1] - both[0] <= _HELD:
            windows[lane] = both
            return lane
    if wanted[1] - wanted[0] > _HELD:
        return None
    windows.append(wanted)
    return len(windows) - 1


def _last_digit(numbers: Floats) -> int:
    """The exponent of the least digit that any of them has."""
    fraction, exponent = np.frexp(numbers)
    whole = np.abs(np.ldexp(fraction, _DIGITS)).astype(np.int64)
    trailing = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return int((exponent - _DIGITS + trailing).min())
