"""Cancelling: which additions survive when every removal takes away one equal addition.

The one idea behind histories, differences and consolidated output: rows carry a 64-bit identity, each
removal cancels one addition of the same identity, and what is left is the answer. Below it are the few
functions on rows sorted by key that it, and others, are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from recension.core.batch import Index, Mask
from recension.core.rowhash import Hashes, combine_all

Number = TypeVar("Number", np.int64, np.uint64)

_MANY: Final = 1024
_FEW: Final = 1024
_MOST_BITS: Final = 62
_DIGIT: Final = 16  # bits of numbers that NumPy sorts without comparing


def cancel(added: Hashes, removed: Hashes) -> tuple[Mask, Index, Index]:
    """Which additions survive, and the (addition, removal) pairs that cancelled.

    A removal without an addition stays unpaired; the caller decides whether that is an error.
    Earlier additions are cancelled first. Cost: O(n), and a sort of what the removals may touch if that is
    little.
    """
    survives = np.ones(len(added), np.bool_)
    if not len(removed) or not len(added):
        return survives, np.zeros(0, np.int64), np.zeros(0, np.int64)
    additions, removals = _pair_in_slots(added, removed) if len(removed) >= _FEW else _pair(added, removed)
    survives[additions] = False
    return survives, additions, removals


def _pair_in_slots(added: Hashes, removed: Hashes) -> tuple[Index, Index]:
    """As `_pair`, without a sort: every removal claims a slot, and an addition looks into it.

    Those that found another's hash there, and further ones of equal hash, try again by other bits.
    """
    bits = (4 * len(removed)).bit_length()
    rest_added, rest = np.arange(len(added)), np.arange(len(removed))
    pairs = list[tuple[Index, Index]]()
    for shift in range(0, 64 - bits, bits):
        if len(rest) < _FEW or not len(rest_added):
            break
        one, other, is_open = _match_slots(added[rest_added], removed[rest], shift, bits)
        pairs.append((rest_added[one], rest[other]))
        is_open[one] = False
        rest_added, rest = rest_added[is_open], np.delete(rest, other)
    one, other = _pair(added[rest_added], removed[rest])
    pairs.append((rest_added[one], rest[other]))
    return np.concatenate([a for a, _ in pairs]), np.concatenate([r for _, r in pairs])


def _match_slots(added: Hashes, removed: Hashes, shift: int, bits: int) -> tuple[Index, Index, Mask]:
    """First additions with the first removals that equal them; which additions a removal may still equal."""

    def place(hashes: Hashes) -> Index:
        return ((hashes >> np.uint64(shift)) & np.uint64((1 << bits) - 1)).view(np.int64)

    slots = np.full(1 << bits, -1, np.int32)
    # Of those that share a slot the first is written last.
    slots[place(removed)[::-1]] = np.arange(len(removed), dtype=np.int32)[::-1]
    found = slots[place(added)]
    is_open = found >= 0
    one = np.flatnonzero(is_open)
    other = found[one].astype(np.int64)
    is_same = added[one] == removed[other]
    one, other = one[is_same], other[is_same]
    first = np.empty(len(removed), np.int64)
    first[other[::-1]] = one[::-1]
    is_first = first[other] == one
    return one[is_first], other[is_first], is_open


def maybe_in(hashes: Hashes, of: Hashes) -> Mask:
    """A one-probe Bloom filter: never false for a member, so that only a few rows need sorting."""
    slots = 1 << max(8, int(len(of) * 8 - 1).bit_length())
    table = np.zeros(slots, np.bool_)
    table[of & np.uint64(slots - 1)] = True
    found: Mask = table[hashes & np.uint64(slots - 1)]
    return found


def _pair(added: Hashes, removed: Hashes) -> tuple[Index, Index]:
    """Pair the k-th addition of an identity with its k-th removal."""
    candidates = np.flatnonzero(maybe_in(added, removed))
    added = added[candidates]
    hashes = np.concatenate([added, removed])
    order = order_of_hashes(hashes)
    group, size = group_sizes(hashes[order])
    is_addition = order < len(added)
    additions = np.bincount(group[is_addition], minlength=len(size))
    # Within a group the additions stand first: the sort is stable and they were concatenated first.
    rank = np.arange(len(order)) - np.repeat(np.cumsum(size) - size, size)
    rank = np.where(is_addition, rank, rank - additions[group])
    paired = rank < np.minimum(additions, size - additions)[group]
    return candidates[order[paired & is_addition]], order[paired & ~is_addition] - len(added)


def running_totals(
    sorted_keys: Hashes, deltas: Index, count: Callable[[Hashes], Index] | None = None
) -> Index:
    """For rows sorted by key: the total of the deltas of each key up to each row, from ``count(key)`` on."""
    group, size = group_sizes(sorted_keys)
    first = np.cumsum(size) - size
    total: Index = np.cumsum(deltas)
    before: Index = deltas[first] - total[first]
    if count is not None:
        before += count(sorted_keys[first])
    total += before[group]
    return total


def rank_in_group(sorted_keys: Hashes | Index) -> Index:
    """For sorted keys: the position of each row within its group, from 0."""
    _, size = group_sizes(sorted_keys)
    return np.arange(len(sorted_keys)) - np.repeat(np.cumsum(size) - size, size)


def number_rows(columns: Sequence[Index]) -> Index:
    """Rows of numbers: equal rows have equal numbers, from 1 on."""
    hashes = combine_all([column.view(np.uint64) for column in columns], len(columns[0]))
    order = order_of_hashes(hashes)
    is_new = _changes(hashes, order)
    changes = [_changes(column, order) for column in columns]
    if any(bool((change & ~is_new).any()) for change in changes):
        # Different rows of one hash.
        order = np.lexsort(columns)
        is_new = np.logical_or.reduce([_changes(column, order) for column in columns])
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(is_new)
    return found


def _changes(column: Hashes | Index, order: Index) -> Mask:
    """Where a value differs from the one before it in an order; the first does."""
    placed = column[order]
    found = np.ones(len(order), np.bool_)
    found[1:] = placed[1:] != placed[:-1]
    return found


def group_sizes(sorted_keys: Hashes | Index) -> tuple[Index, Index]:
    """For sorted keys: the group number of each row, and the size of each group."""
    if not len(sorted_keys):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts = np.concatenate([[True], sorted_keys[1:] != sorted_keys[:-1]])
    first = np.flatnonzero(starts)
    return np.cumsum(starts) - 1, np.diff(np.append(first, len(sorted_keys)))


def order_of(numbers: Index) -> Index:
    """As a stable `argsort`.

    Longer numbers are sorted with their positions in the lowest bits: NumPy sorts several times as fast as it
    finds an order. Where they leave no room for that, digit by digit, the last one first.
    """
    if len(numbers) < _MANY:
        return numbers.argsort(kind="stable")
    low = int(numbers.min())
    bits, own = (int(numbers.max()) - low).bit_length(), (len(numbers) - 1).bit_length()
    if bits > _MOST_BITS:
        return np.argsort(numbers, kind="stable")
    rest, width = numbers - low, 63 - own
    if bits <= _DIGIT:
        return rest.astype(np.uint16).argsort(kind="stable")
    order = _sort_with_places(rest & ((1 << width) - 1) if bits > width else rest, own)
    for shift in range(width, bits, width):
        order = order[_sort_with_places(rest[order] >> shift & ((1 << width) - 1), own)]
    return order


def _sort_with_places(digits: Index, own: int) -> Index:
    """The order of digits that leave so many bits for their positions; they are written over."""
    digits <<= own
    digits |= np.arange(len(digits))
    digits.sort()
    digits &= (1 << own) - 1
    return digits


def distinct(numbers: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Each number once, in order.

    `np.unique` hashes, which takes several times as long as a sort if most numbers are different.
    """
    found = np.sort(numbers)
    once: npt.NDArray[Number] = found[np.append(True, found[1:] != found[:-1])[: len(found)]]
    return once


def order_of_hashes(hashes: Hashes) -> Index:
    """The same of hashes, whose lowest bits give way to the positions: they seldom decide."""
    if len(hashes) < _MANY:
        return np.argsort(hashes, kind="stable")
    places = np.uint64((1 << (len(hashes) - 1).bit_length()) - 1)
    placed = (hashes & ~places) | np.arange(len(hashes), dtype=np.uint64)
    placed.sort()
    order: Index = (placed & places).view(np.int64)
    found = hashes[order]
    if bool((found[1:] < found[:-1]).any()):
        order = order[np.argsort(found, kind="stable")]
    return order


def first_of_equal(hashes: Hashes) -> Index:
    """For each hash the position of the first equal one."""
    rest, wanted = np.arange(len(hashes)), hashes
    first = rest
    bits = max(4, (2 * len(hashes)).bit_length())
    slots = np.empty(1 << bits, np.int32)
    for shift in range(0, 64 - bits, bits):
        # Of those that share a slot the first is written last. It stands for all that equal it.
        place = wanted >> np.uint64(shift)
        place &= np.uint64(len(slots) - 1)
        at_slot = place.view(np.int64)
        slots[at_slot[::-1]] = rest[::-1]
        found = slots.take(at_slot).astype(np.int64)
        if shift == 0:
            first = found
        else:
            first[rest] = found
        others = (hashes.take(found) != wanted).nonzero()[0]
        if not len(others):
            return first
        rest, wanted = rest.take(others), wanted.take(others)
    _, at, inverse = np.unique(hashes[rest], return_index=True, return_inverse=True)
    first[rest] = rest[at[inverse]]
    return first


def expand(first: Index, last: Index) -> tuple[Index, Index]:
    """Every position of every range ``[first, last)``, range by range, with the number of its range.

    >>> [column.tolist() for column in expand(np.array([5, 9, 2]), np.array([7, 9, 4]))]
    [[0, 0, 2, 2], [5, 6, 2, 3]]
    """
    if len(first) < _FEW:
        size = np.maximum(last - first, 0)
        end = size.cumsum()
        owner = np.arange(len(size)).repeat(size)
        return owner, np.arange(len(owner)) + (first - end + size).repeat(size)
    used = (last > first).nonzero()[0]
    return spread(used, first.take(used), last.take(used))


def spread(names: Index, first: Index, last: Index) -> tuple[Index, Index]:
    """The same of ranges none of which is empty, each with a name instead of its number.

    Both columns are running sums: of 0 and 1 within a range, and of how far it is from one to the next.
    """
    size = last - first
    end = size.cumsum()
    total = int(end[-1]) if len(end) else 0
    name, at = np.zeros(total, np.int64), np.ones(total, np.int64)
    name[:1], at[:1] = names[:1], first[:1]
    name[end[:-1]] = np.diff(names)
    at[end[:-1]] = first[1:] - last[:-1] + 1
    return name.cumsum(out=name), at.cumsum(out=at)
