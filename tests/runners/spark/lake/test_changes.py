"""What a micro-batch does to the rows that are there, without Spark."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from recension.runners.spark.lake.changes import Found, fit_ordinals
from recension.runners.spark.lake.roaring import to_portable


def test_ordinals_of_what_is_removed_and_added() -> None:
    """Of equal events the last goes first; what comes is numbered after what is there."""
    event, ordinal = np.array([0, 0, 2, 3]), np.array([1, 0, 5, 0])
    found = Found(event, ordinal, np.array(list("abcd"), object), np.arange(4))
    fitted = fit_ordinals(np.array([-1, 2, 1, -1, -1]), found)
    assert fitted.removed.tolist() == [0, 3]
    assert fitted.added.tolist() == [1, 1, 2]
    assert fitted.ordinals.tolist() == [0, 1, 6]
    assert fitted.missing.tolist() == [4]


@pytest.mark.parametrize("rows", [[], [7], [3, 3, 70_000], list(range(0, 200_000, 3)), [2**32 - 1]])
def test_a_bitmap_of_row_numbers(rows: list[int]) -> None:
    assert unpacked(to_portable(np.array(rows, np.int64))) == sorted(set(rows))


def unpacked(data: bytes) -> list[int]:
    """The numbers in a bitmap, read by the words of the specification."""
    magic, bitmaps, key, cookie, containers = struct.unpack_from("<iqiii", data)
    assert (magic, bitmaps, key, cookie) == (1681511377, 1, 0, 12346)
    heads = np.frombuffer(data, "<u2", 2 * containers, 24).reshape(-1, 2).astype(np.int64)
    begins = np.frombuffer(data, "<u4", containers, 24 + 4 * containers)
    found: list[int] = []
    for (high, less_one), begin in zip(heads.tolist(), begins.tolist(), strict=True):
        # Offsets count from the cookie.
        at, number = begin + 16, less_one + 1
        if number <= 4096:
            low = np.frombuffer(data, "<u2", number, at)
        else:
            low = np.flatnonzero(np.unpackbits(np.frombuffer(data, np.uint8, 8192, at), bitorder="little"))
        found += [(high << 16) + int(value) for value in low]
    return found


def test_row_numbers_have_32_bits() -> None:
    with pytest.raises(ValueError, match="32-bit"):
        to_portable(np.array([1 << 32]))
