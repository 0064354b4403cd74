"""One 64-bit number that sorts intervals by (length class, group, start), losing only precision.

    | 4 bits: length class | 24 bits: group hash | 36 bits: start, from an origin, in steps of 2**shift |

Class, hash and start each come in by a function that never reverses an order: an interval that an exact
search would find lies in the range of keys searched, and what else lies there is filtered out afterwards.
Starts before the origin or beyond the last step share the first or last code.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from recension.core.batch import Index
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING, FOREVER, Ticks

_GROUP_BITS: Final = 24
_TIME_BITS: Final = 36
_LAST_CODE: Final = np.uint64(2**_TIME_BITS - 1)
_SIGN: Final = np.uint64(2**63)
_ENDLESS: Final = 15
_OF_ONE: Final = 1023 >> 2
_FEW: Final = 4
LEVELS: Final = np.arange(_ENDLESS + 1)


@dataclass(frozen=True, slots=True)
class SortKey:
    """How starts are coded: ``origin`` counts from the beginning of time."""

    origin: int = 0
    shift: int = 0

    @staticmethod
    def for_starts(vs: Ticks) -> SortKey:
        """Codes that tell these starts apart, with room for as many before them and more after them."""
        low, high = _span(vs)
        shift = max(0, (high - low).bit_length() + 2 - _TIME_BITS)
        return SortKey(max(0, low - (2 ** (_TIME_BITS - 2) << shift)), shift)

    def fits(self, vs: Ticks) -> bool:
        """Do all these starts have codes of their own?"""
        low, high = _span(vs)
        return low >= self.origin and (high - self.origin) >> self.shift < 2**_TIME_BITS

    def is_exact_before(self, hi: Ticks) -> bool:
        """Do the codes of starts that `fits` allows tell which are before each of these times?"""
        return self.shift == 0 and int(offset(hi).min()) > self.origin

    def pack(self, group: Hashes, vs: Ticks, ve: Ticks) -> Hashes:
        """The keys of events."""
        return level_bits(_levels(vs, ve)) | group_bits(group) | self.code(offset(vs))

    def code(self, offsets: Hashes) -> Hashes:
        """The last 36 bits, for times counted from the beginning."""
        origin = np.uint64(self.origin)
        codes: Hashes = np.maximum(offsets, origin) - origin >> np.uint64(self.shift)
        return np.minimum(codes, _LAST_CODE)


def _span(vs: Ticks) -> tuple[int, int]:
    """First and last start, as offsets; one at the beginning of time is an outlier and does not count."""
    low = int(vs.min())
    if low == BEGINNING:
        low = int(vs.min(where=vs > BEGINNING, initial=FOREVER))
    return low - BEGINNING, max(int(vs.max()), low) - BEGINNING


def offset(times: Ticks) -> Hashes:
    """Ticks since the beginning of time, which differ and compare without overflow."""
    return times.view(np.uint64) ^ _SIGN


def _levels(vs: Ticks, ve: Ticks) -> Index:
    """The length class: lengths of one class differ by a factor of 16 at most; what never ends is apart.

    The exponent of the length as a floating-point number, divided by 4. A class with few members is united
    with the next longer one: the candidates that adds are few, and every class costs a search.
    """
    length = (ve.view(np.uint64) - vs.view(np.uint64)).astype(np.float64)
    levels: Index = np.minimum((length.view(np.int64) >> 54) - _OF_ONE, _ENDLESS - 1)
    levels[ve == FOREVER] = _ENDLESS
    united = _unite(np.bincount(levels, minlength=_ENDLESS + 1))
    if united is not None:
        levels = united.take(levels)
    return levels


def _unite(members: Index) -> Index | None:
    """What becomes of each class that has so many members; None if nothing is to be united."""
    members, united = members.copy(), np.arange(len(members))
    present = np.flatnonzero(members[:_ENDLESS])
    is_alone = True
    for shorter, longer in pairwise(present.tolist()):
        if _FEW * members[shorter] <= members[longer]:
            united[united == shorter] = longer
            members[longer] += members[shorter]
            is_alone = False
    return None if is_alone else united


def may_unite(levels: Index) -> bool:
    """Has one of these classes so few members that it is better united with another?"""
    return _unite(np.bincount(levels, minlength=_ENDLESS + 1)) is not None


def levels_of(keys: Hashes) -> Index:
    """The length classes in keys."""
    return (keys >> np.uint64(_GROUP_BITS + _TIME_BITS)).view(np.int64)


def level_bits(levels: Index) -> Hashes:
    """The first 4 bits."""
    return levels.astype(np.uint64) << np.uint64(_GROUP_BITS + _TIME_BITS)


def group_bits(group: Hashes) -> Hashes:
    """The 24 bits in the middle."""
    return group >> np.uint64(64 - _GROUP_BITS) << np.uint64(_TIME_BITS)
