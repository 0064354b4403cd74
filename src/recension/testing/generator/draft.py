"""Elements whose payload is still only a number, and payloads as a function of that number.

The generator passes numbers around and makes the payload of a row only when the row is written. Revisions
and replicas get equal payloads for the same number without carrying texts from batch to batch. Two numbers
below 16**string_size never share a text, so that ``(vs, payload)`` can be a key by construction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import CTI, INSERT, RETRACT, EventBatch, Index, Kinds, Mask, sync_times
from recension.core.ticks import FOREVER, Ticks
from recension.testing.generator.settings import SCHEMA

VALUES: Final = 401

_ROWS = 1 << 15
_TEXT_BYTES = 1 << 22
_WORD = 8
_ODD: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(0x9E3779B97F4A7C15))
_NIBBLES: Final = np.uint64(0x0F0F0F0F0F0F0F0F)
_LETTERS: Final = np.uint64(0x6161616161616161)
_LOW: Final = np.uint64(0xFFFFFFFF)

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """Elements in arrival order, payloads by number (see `GeneratedPayloads`)."""

    kind: Kinds
    vs: Ticks
    ve: Ticks
    new_ve: Ticks
    number: Index

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, rows: Index | slice) -> Draft:
        """The given rows, in the given order."""
        return Draft(*(getattr(self, f.name)[rows] for f in fields(self)))

    def sync(self) -> Ticks:
        """The earliest time each element changes."""
        return sync_times(self.kind, self.vs, self.ve, self.new_ve)

    def batches(self, payloads: GeneratedPayloads, rows: int) -> Iterator[EventBatch]:
        """The elements with their payloads, at most ``rows`` at a time."""
        for at in range(0, len(self), rows):
            part = self.take(slice(at, at + rows))
            payload = payloads.of(part.number, part.kind == CTI)
            yield EventBatch(part.kind, part.vs, part.ve, part.new_ve, np.zeros(len(part), np.int64), payload)


def insert_drafts(vs: Ticks, ve: Ticks, number: Index) -> Draft:
    """Inserts."""
    return Draft(np.full(len(vs), INSERT, np.uint8), vs, ve, np.full(len(vs), FOREVER), number)


def retract_drafts(vs: Ticks, ve: Ticks, new_ve: Ticks, number: Index) -> Draft:
    """Retractions."""
    return Draft(np.full(len(vs), RETRACT, np.uint8), vs, ve, new_ve, number)


def cti_drafts(times: Ticks) -> Draft:
    """CTIs."""
    forever = np.full(len(times), FOREVER)
    return Draft(np.full(len(times), CTI, np.uint8), times, forever, forever, np.zeros(len(times), np.int64))


def concat_drafts(parts: Sequence[Draft]) -> Draft:
    """One draft from several."""
    return Draft(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Draft)))


def empty_draft() -> Draft:
    """No elements."""
    return cti_drafts(np.zeros(0, np.int64))


def rows_at_once(string_size: int) -> int:
    """How many rows the generator makes in one go: enough to be fast, few enough to bound memory."""
    return max(64, min(_ROWS, _TEXT_BYTES // max(1, string_size)))


class GeneratedPayloads:
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
