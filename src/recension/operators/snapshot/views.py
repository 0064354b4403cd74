"""The three variants of the snapshot operator: how much of what is known they show.

All three keep the same state; they differ in what they show of it, given the watermark ``m`` (the latest
CTI or start of an insert, never moved back and never moved by retractions: ruling B9).

    end points     |------ a ------|---- b ----|----- c -----|
                                        m
    perfect        [------ a ------)                              what has ended by m
    ordered        [------ a ------)[--- b -------------------->  … and the present, as if it never ended
    eager          [------ a ------)[--- b ----)[---- c -----)    everything

Source      Operator Algorithm Design for Speculative Stream Processing, §3.3–3.5; rulings B9, B10, B17.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from recension.core.batch import Mask
from recension.core.ticks import FOREVER, Ticks
from recension.operators.snapshot.working_set import Side

Variant: TypeAlias = Literal["perfect", "ordered", "eager"]


def shown(variant: Variant, m: int, time: Ticks, side: Side) -> tuple[Mask, Ticks]:
    """Which snapshots are shown, and the ends they are shown with."""
    is_there = side.is_point & (side.n > 0)
    if variant == "perfect":
        return is_there & (side.following <= m), side.following
    if variant == "ordered":
        return is_there & (time <= m), np.where(side.following <= m, side.following, np.int64(FOREVER))
    return is_there, side.following


def may_lengthen(variant: Variant) -> bool:
    """`perfect` keeps to shortening and holds its CTI instead (ruling B10, HOLD against LENGTHEN)."""
    return variant != "perfect"
