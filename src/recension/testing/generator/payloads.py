"""Payloads as a function of an element's number: an integer in 0..400 and a text.

The generator passes numbers around and makes the payload of a row only when the row is written: revisions
and replicas get equal payloads for the same number without carrying texts from batch to batch, and two
numbers below 16**string_size never share a text, so that ``(vs, payload)`` can be a key by construction.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.testing.generator.settings import SCHEMA

VALUES: Final = 401

_WORD = 8
_ODD: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(0x9E3779B97F4A7C15))
_NIBBLES: Final = np.uint64(0x0F0F0F0F0F0F0F0F)
_LETTERS: Final = np.uint64(0x6161616161616161)
_LOW: Final = np.uint64(0xFFFFFFFF)

Words = npt.NDArray[np.uint64]


class Payloads:
    """The payloads of one seed and text length."""

    def __init__(self, seed: int, string_size: int) -> None:
        self._string_size = string_size
        self._bits = min(64, 4 * string_size)
        start = np.random.default_rng([seed, 0xFACE]).integers(0, 2**62, 2)
        self._offset, self._salt = start.astype(np.uint64)

    def of(self, number: Index, absent: Mask) -> pa.RecordBatch:
        """The payload of each number; nulls where ``absent``."""
        value = pa.array(self.values(number), mask=absent)
        return pa.RecordBatch.from_arrays([value, self._texts(number, absent)], schema=SCHEMA)

    def values(self, number: Index) -> Index:
        """Integers in 0..400."""
        high = scramble(number.view(np.uint64) ^ self._salt, 64) >> np.uint64(32)
        return (high * np.uint64(VALUES) >> np.uint64(32)).view(np.int64)

    def text_keys(self, number: Index) -> list[Words]:
        """Numbers that compare as the texts do, the most significant first.

        Sixteen letters are enough: texts that long never share their first sixteen.
        """
        words = self._words(number, min(2, -(-self._string_size // _WORD)))
        return list(words.byteswap().T)

    def _codes(self, number: Index) -> Words:
        mask = np.uint64(2**self._bits - 1)
        return scramble((number.view(np.uint64) + self._offset) & mask, self._bits)

    def _words(self, number: Index, count: int) -> Words:
        """``count`` words of letters, one a byte: the first two spell the code, the rest follow from it."""
        codes = self._codes(number)
        words = np.empty((len(number), count), "<u8")
        for at in range(min(2, count)):
            words[:, at] = _spread((codes >> np.uint64(32 * at)) & _LOW)
        for at in range(2, count):
            with np.errstate(over="ignore"):
                words[:, at] = scramble(codes + np.uint64(at) * _ODD[2], 64) & _NIBBLES
        words += _LETTERS
        return words

    def _texts(self, number: Index, absent: Mask) -> pa.Array:
        size, length = len(number), self._string_size
        words = self._words(number, -(-length // _WORD))
        letters = np.ascontiguousarray(words.view(np.uint8).reshape(size, -1)[:, :length])
        offsets = np.arange(size + 1, dtype=np.int32) * np.int32(length)
        valid = np.packbits(~absent, bitorder="little")
        return pa.Array.from_buffers(
            pa.string(), size, [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(letters)]
        )


def scramble(words: Words, bits: int) -> Words:
    """A random-looking bijection of the integers below ``2**bits``."""
    if not bits:
        return words
    mask, half = np.uint64(2**bits - 1), np.uint64((bits + 1) // 2)
    words = words.copy()
    with np.errstate(over="ignore"):
        for odd in _ODD:
            words *= odd
            words &= mask
            words ^= words >> half
    return words


def _spread(words: Words) -> Words:
    """The eight low nibbles, one to a byte."""
    words = (words | (words << np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    words = (words | (words << np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    return (words | (words << np.uint64(4))) & _NIBBLES
