"""Sums and means of decimals, exact: digits are added as whole numbers of 32 bits each.

    unscaled value of 128 bits      | signed 32 | 32 | 32 | 32 |        each is summed by itself in int64

No number of events that fits in memory makes such a sum leave int64. Decimals of 18 digits or fewer have two
parts. The carries are worked out when an answer is made.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.operators.windowed.accumulators import Accumulator, BeyondDecimalError
from recension.operators.windowed.double_double import Pair
from recension.operators.windowed.steps import Contributions

_BITS = 32
_MASK = (1 << _BITS) - 1
_NARROW = 18
"""Decimals of so many digits fit in 64 bits."""


class SumDecimals(Accumulator):
    """The sum, or an error where it has more digits than the type of the result."""

    def __init__(self, kind: pa.DataType, result: pa.DataType) -> None:
        self._parts = 2 if kind.precision <= _NARROW else 4
        self._kind = result
        self.ints = 1 + self._parts

    def contributions(self, values: pa.Array | None, size: int) -> Contributions:
        assert values is not None
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        return Contributions([valid.astype(np.int64), *_split(values, valid, self._parts)], [])

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        is_negative, digits = _magnitude(ints[1:])
        return _to_decimals(is_negative, digits, ints[0] == 0, self._kind)


class MeanDecimals(SumDecimals):
    """The mean, with more digits than the values have; what is beyond them is rounded half up."""

    def __init__(self, kind: pa.DataType, result: pa.DataType) -> None:
        super().__init__(kind, result)
        self._factor = 10 ** (result.scale - kind.scale)

    def result(self, n: Index, ints: list[Index], pairs: list[Pair]) -> pa.Array:
        is_negative, digits = _magnitude(ints[1:])
        quotient = _divide(_multiply(digits, self._factor), np.maximum(ints[0], 1))
        return _to_decimals(is_negative, quotient, ints[0] == 0, self._kind)


def _split(values: pa.Array, valid: Mask, parts: int) -> list[Index]:
    """The unscaled values in parts of 32 bits, the lowest first; the highest has the sign."""
    wide = values.cast(pa.decimal128(38, values.type.scale))
    words = np.frombuffer(wide.buffers()[1], np.int64).reshape(-1, 2)
    words = np.where(valid[:, None], words[wide.offset : wide.offset + len(wide)], 0)
    low, high = words[:, 0], words[:, 1]
    found = [low & _MASK, low >> _BITS]
    return found if parts == 2 else [found[0], found[1] & _MASK, high & _MASK, high >> _BITS]


def _magnitude(parts: list[Index]) -> tuple[Mask, list[Index]]:
    """The signs of sums in parts, and their absolute values in parts from 0 to 2**32, the lowest first."""
    is_negative = _carry(parts)[-1] < 0
    return is_negative, _carry([np.where(is_negative, -part, part) for part in parts])


def _carry(parts: list[Index]) -> list[Index]:
    """The same number with all parts but the last from 0 to 2**32; that one has the sign, if there is any."""
    found, carry = list[Index](), np.zeros(len(parts[0]), np.int64)
    for part in parts:
        total = part + carry
        found.append(total & _MASK)
        carry = total >> _BITS
    return [*found, carry]


def _multiply(digits: list[Index], factor: int) -> list[Index]:
    return _carry([part * factor for part in digits])


def _divide(digits: list[Index], by: Index) -> list[Index]:
    """Quotients rounded half up, of fewer than 2**31 values."""
    found, rest = list[Index](), np.zeros(len(by), np.int64)
    for part in reversed(digits):
        total = (rest << _BITS) + part
        found.insert(0, total // by)
        rest = total % by
    found[0] = found[0] + (2 * rest >= by)
    return _carry(found)


def _to_decimals(is_negative: Mask, digits: list[Index], is_null: Mask, kind: pa.DataType) -> pa.Array:
    """Decimals of signs and absolute values; an error where the type has too few digits."""
    size = len(is_negative)
    digits = [*digits, *[np.zeros(size, np.int64)] * max(0, 4 - len(digits))]
    if bool((beyond := _is_beyond(digits, 10**kind.precision) & ~is_null).any()):
        raise BeyondDecimalError(int(np.argmax(beyond)), kind)
    low, high = digits[0] | digits[1] << _BITS, digits[2] | digits[3] << _BITS
    # The two's complement of 128 bits: a carry goes into the upper half where the lower one is 0.
    words = np.empty((size, 2), np.int64)
    words[:, 0] = np.where(is_negative, -low, low)
    words[:, 1] = np.where(is_negative, ~high + (low == 0), high)
    validity = pa.array(~is_null).buffers()[1]
    return pa.Array.from_buffers(kind, size, [validity, pa.py_buffer(words)])


def _is_beyond(digits: list[Index], bound: int) -> Mask:
    """Which numbers are not less than the bound, which has at most 128 bits?"""
    is_less, is_same = np.zeros(len(digits[0]), np.bool_), np.ones(len(digits[0]), np.bool_)
    for i, part in reversed(list(enumerate(digits))):
        own = bound >> _BITS * i & _MASK
        is_less |= is_same & (part < own)
        is_same &= part == own
    return ~is_less
