"""Rows in groups, in NumPy, all groups at once: where they begin, how they compare, the largest so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from recension.core.batch import Index, Mask

_SMALL: Final = 1 << 16


def stable_order(numbers: Index, count: int) -> Index:
    """As a stable `argsort` of numbers below ``count``."""
    if len(numbers) == 0 or bool((numbers[1:] >= numbers[:-1]).all()):
        return np.arange(len(numbers))
    small = numbers.astype(np.uint16) if count <= _SMALL else numbers
    order: Index = np.argsort(small, kind="stable")
    return order


def group_starts(sorted_numbers: Index) -> Index:
    """Where each run of equal numbers begins."""
    if not len(sorted_numbers):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.append(True, sorted_numbers[1:] != sorted_numbers[:-1]))


def is_greater(left: Sequence[Index], right: Sequence[Index]) -> Mask:
    """Where the one is greater than the other; the first of several columns that differ decides."""
    greater = np.zeros(len(left[0]), np.bool_)
    for one, other in zip(reversed(left), reversed(right), strict=True):
        greater = (one > other) | ((one == other) & greater)
    return greater


def are_sorted(columns: Sequence[Index], first: Index) -> bool:
    """Do rows never fall within a group?"""
    falls = is_greater([column[:-1] for column in columns], [column[1:] for column in columns])
    falls[first[1:] - 1] = False
    return not bool(falls.any())


def rank_rows(columns: tuple[Index, ...], floors: tuple[Index, ...], has_floor: Mask) -> tuple[Index, Index]:
    """Numbers from 0 by which rows and floors compare as their columns do; -1 for a floor that is none."""
    if len(columns) == 1:
        values, order = np.unique(np.concatenate([columns[0], floors[0]]), return_inverse=True)
        del values
    else:
        both = [np.concatenate([column, floor]) for column, floor in zip(columns, floors, strict=True)]
        sort = np.lexsort(tuple(reversed(both)))
        is_new = np.zeros(len(sort), np.bool_)
        for column in both:
            is_new[1:] |= column[sort][1:] != column[sort][:-1]
        order = np.empty(len(sort), np.int64)
        order[sort] = np.cumsum(is_new)
    size = len(columns[0])
    return order[:size], np.where(has_floor, order[size:], -1)


def running_max(values: Index, first: Index) -> Index:
    """The largest value so far in each group; ``first`` is where the groups begin."""
    if len(first) <= 1:
        return np.maximum.accumulate(values) if len(values) else values
    low, high = int(values.min()), int(values.max())
    sizes = np.diff(np.append(first, len(values)))
    if (high - low + 1) * len(first) >= 1 << 62:
        distinct, rank = np.unique(values, return_inverse=True)
        found: Index = distinct[running_max(rank, first)]
        return found
    # One running maximum serves all groups: each is lifted above all that the groups before it reached.
    lift = np.repeat(np.arange(len(first)) * (high - low + 1), sizes)
    top: Index = np.maximum.accumulate(values - low + lift) - lift + low
    return top


def values_at(values: Index, numbers: Index, default: int) -> Index:
    """The values at the given numbers, or the default where they do not go so far."""
    more = int(numbers.max(initial=-1)) + 1 - len(values)
    found: Index = (np.append(values, np.full(more, default)) if more > 0 else values)[numbers]
    return found
