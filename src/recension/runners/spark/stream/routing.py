"""Which key Spark sends to which partition."""

from __future__ import annotations

from itertools import count
from typing import Final

_WORD: Final = 0xFFFFFFFF


def partition_keys(partitions: int) -> list[int]:
    """For each partition the least non-negative int whose rows Spark sends there.

    Spark puts a row with key ``k`` into partition ``murmur3(k, seed 42) mod n``. The numbers of the shards
    themselves would collide, and leave cores idle.

    >>> partition_keys(1)
    [0]
    """
    found: dict[int, int] = {}
    for key in count():
        found.setdefault(murmur3(key) % partitions, key)
        if len(found) == partitions:
            return [found[number] for number in range(partitions)]
    raise AssertionError


def murmur3(key: int, seed: int = 42) -> int:
    """Spark's hash of an int: MurmurHash3 (x86, 32 bits) of its four bytes, as a signed number."""
    mixed = (key * 0xCC9E2D51) & _WORD
    mixed = (_rotate(mixed, 15) * 0x1B873593) & _WORD
    hashed = (_rotate(seed ^ mixed, 13) * 5 + 0xE6546B64) & _WORD
    hashed ^= 4  # the number of bytes
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashed = ((hashed ^ (hashed >> shift)) * factor) & _WORD
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _rotate(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (32 - bits))) & _WORD
