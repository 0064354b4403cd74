"""Two lists of the same whole numbers, in different orders: how many in a prefix of each are low, bit by bit.

The first level has the highest bit of every number. The second has the next bit, of those numbers first that
have a zero in the first; and so on. From the number of zeros before a position follows where that prefix ends
among the zeros on the next level, and where among the ones. So numbers are found from the highest bit down:

    numbers        5 1 4 0 | 1      the second least of the first four
    1st bit        1 0 1 0 | 0      two are low: it is the second of these
    2nd bit        0 0 | 0 0 0      two are low: … here stand 1 0 1 5 4

Counts of one list are taken from those of the other. As both have the same numbers, whatever lies before the
part of a level that is looked at cancels: so positions are counted from the beginning of the level.

Source      F. Claude, G. Navarro, A. Ordóñez, The wavelet matrix.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from recension.core.batch import Index, Mask

_WORD: Final = 6


class BitLevels:
    """The levels of ``numbers``, which are two rows of numbers of so many bits."""

    def __init__(self, numbers: npt.NDArray[np.int32], levels: int) -> None:
        self.size = numbers.shape[1]
        self._stride = (self.size >> _WORD) + 1
        # A level after the other: words of 64 bits, how many ones there are before each, and zeros in all.
        self._words: list[npt.NDArray[np.uint64]] = []
        self._ones: list[npt.NDArray[np.int32]] = []
        self._zeros: list[int] = []
        bits = np.zeros((2, self._stride << _WORD), np.bool_)
        is_one = bits[:, : self.size]
        for level in range(levels - 1, -1, -1):
            np.not_equal(numbers & (1 << level), 0, out=is_one)
            self._add_level(bits)
            numbers = np.stack(
                [
                    np.append(row.compress(~one), row.compress(one))
                    for row, one in zip(numbers, is_one, strict=True)
                ]
            )

    def _add_level(self, bits: Mask) -> None:
        words = np.packbits(bits, axis=1, bitorder="little").view("<u8")
        until = np.cumsum(np.bitwise_count(words), axis=1, dtype=np.int32)
        before = np.zeros_like(until)
        before[:, 1:] = until[:, :-1]
        self._words.append(words.reshape(-1))
        self._ones.append(before.reshape(-1))
        self._zeros.append(self.size - int(until[0, -1]))

    def nbytes(self) -> int:
        """Memory taken."""
        return sum(words.nbytes + ones.nbytes for words, ones in zip(self._words, self._ones, strict=True))

    def count_ones(self, level: int, at: Index) -> Index:
        """How many ones there are before some positions on a level; both have a row for each list."""
        word = at >> _WORD
        word[1] += self._stride
        before = (np.uint64(1) << (at & 63).astype(np.uint64)) - np.uint64(1)
        ones: Index = self._ones[level][word] + np.bitwise_count(self._words[level][word] & before)
        return ones

    def go_down(self, level: int, at: Index, ones: Index, is_one: Mask) -> Index:
        """Those positions on the next level, among what has a one here, or a zero."""
        return np.where(is_one, self._zeros[level] + ones, at - ones)
