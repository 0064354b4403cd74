"""Are two histories equal, and if not, how do they differ? Everything that judges histories asks here.

Nulls equal nulls, NaN equals NaN, and floating-point values may differ by 1e-9 relative, at any depth: the
same sum taken in another order is the same answer. All other values are equal only if they are exactly equal,
whatever their types: a decimal of any scale, a timestamp of any unit (`core.comparable` says what is compared
with what). Times of two kinds, ticks and timestamps, or with a zone and without one, cannot be compared: that
is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.close_rows import match_close_rows
from recension.core.comparable import Comparable, compare_tables
from recension.core.errors import SchemaError, TimeError
from recension.core.history import History
from recension.core.netting import cancel, distinct, maybe_in, number_rows
from recension.core.rowhash import Hashes, combine_all
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.time_kind import TimeKind, describe_kind, merge_kinds

RELATIVE_TOLERANCE = 1e-9
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Difference:
    """Events of one history that the other does not have."""

    missing: History
    unexpected: History

    def __bool__(self) -> bool:
        return bool(len(self.missing) or len(self.unexpected))

    def __str__(self) -> str:
        if not self:
            return "equivalent"
        lines = [f"{len(self.missing)} missing, {len(self.unexpected)} unexpected"]
        for sign, side in (("-", self.missing), ("+", self.unexpected)):
            lines += [f"  {sign} {event}" for event in _first_events(side).to_events()]
            if len(side) > _SHOWN:
                lines.append(f"  {sign} … and {len(side) - _SHOWN} more")
        return "\n".join(lines)


def _first_events(history: History) -> History:
    keep = np.zeros(len(history), np.bool_)
    keep[np.lexsort((history.ve, history.vs))[:_SHOWN]] = True
    return history.filter(keep)


def equivalent(left: History, right: History) -> bool:
    """Do both hold the same bag of events?"""
    return not difference(right, left)


def difference(actual: History, expected: History, *, tolerance: float = RELATIVE_TOLERANCE) -> Difference:
    """What ``actual`` lacks of ``expected``, and what it holds beyond it."""
    _refuse_other_times(actual, expected)
    names, others = expected.schema.names, actual.schema.names
    if set(names) != set(others):
        raise SchemaError(f"payload columns differ: {', '.join(names)} against {', '.join(others)}")
    actual = replace(actual, payload=actual.payload.select(names)) if names else actual
    rows = compare_tables(expected.payload, actual.payload)
    rows.words += [np.concatenate(times) for times in ((expected.vs, actual.vs), (expected.ve, actual.ve))]
    missing, unexpected = _left_over(rows, len(expected), tolerance)
    return Difference(expected.filter(missing), actual.filter(unexpected))


def _refuse_other_times(actual: History, expected: History) -> None:
    kinds = [_kind_of(history) for history in (expected, actual)]
    try:
        merge_kinds(*kinds)
    except TimeError:
        wanted, got = (describe_kind(kind) for kind in kinds if kind is not None)
        raise TimeError(f"the times are {wanted} on one side and {got} on the other") from None


def _kind_of(history: History) -> TimeKind:
    """The kind of its times; none if they are all ends of time, which go with every kind."""
    has_others = any(
        bool(((times != FOREVER) & (times != BEGINNING)).any()) for times in (history.vs, history.ve)
    )
    return history.time_type if has_others else None


def _left_over(rows: Comparable, size: int, tolerance: float) -> tuple[Mask, Mask]:
    """Which of the first rows, and which of the others, have no partner on the other side."""
    words = rows.exact_words()
    keep = np.ones(len(words[0]), np.bool_)
    for pair in _equal_pairs(words, size):
        keep[pair] = False
    if (rows.floats or rows.lists) and keep[:size].any() and keep[size:].any():
        groups = _hash(rows.words)
        near = np.flatnonzero(maybe_in(groups, distinct(groups[keep])))
        side = (near >= size).astype(np.int64)
        some = rows.take(near)
        matched = match_close_rows(some, side, number_rows(some.words), ~keep[near], tolerance)
        keep[near] = ~matched
    return keep[:size], keep[size:]


def _hash(words: list[Index]) -> Hashes:
    return combine_all([word.view(np.uint64) for word in words], len(words[0]))


def _equal_pairs(words: list[Index], size: int) -> tuple[Index, Index]:
    """Pairs of a row of the first and one of the others with the same words, not only the same hash."""
    hashes = _hash(words)
    _, one, other = cancel(hashes[:size], hashes[size:])
    if not all(np.array_equal(word[one], word[other + size]) for word in words):
        numbers = number_rows(words).view(np.uint64)
        _, one, other = cancel(numbers[:size], numbers[size:])
    return one, other + size
