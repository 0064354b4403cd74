"""Readings that coalesce and come late with given probabilities, to measure extents with.

Source: temporal coalescing §7.1; coalescing rulings 31 and section 9.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recension.core.batch import Index
from recension.core.ticks import Ticks


class Readings(NamedTuple):
    """In the order of arrival: when, of which group, and what."""

    times: Ticks
    groups: Index
    values: Index


def readings(size: int, cp: float, oop: float, groups: int = 1, block: int = 64, seed: int = 0) -> Readings:
    """Groups take turns; a reading is as the one before it in its group with probability ``cp``.

    Time goes in blocks of so many readings of each group. Late readings of a block come after all others of
    it, in any order; the last reading of each group in a block is never late, so that late ones are.
    """
    rnd, span = np.random.default_rng(seed), block * groups
    times = np.arange(size, dtype=np.int64)
    group = times % groups
    change = (rnd.random(size) >= cp).astype(np.int64)
    values = np.empty(size, np.int64)
    for each in range(groups):
        values[each::groups] = np.cumsum(change[each::groups])
    place = times % span
    late = (rnd.random(size) < oop) & (place < span - groups)
    arrival = times // span * (2 * span) + np.where(late, span + rnd.permutation(size) % span, place)
    order = np.argsort(arrival, kind="stable")
    return Readings(times[order], group[order], values[order])
