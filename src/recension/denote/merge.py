"""Merge: one history out of several that must be the same (LMerge §III-B: all inputs are equivalent)."""

from __future__ import annotations

from collections import Counter

from recension.core.errors import RecensionError
from recension.denote.order import History


def merge(*histories: History) -> History:
    """The one history that all inputs stand for; those that differ cannot be merged as histories.

    >>> from recension.core.events import Event
    >>> one = [Event({"a": 1}, 0, 5), Event({"a": 2}, 3, 4)]
    >>> merge(one, one[::-1]) == one
    True
    """
    first = histories[0]
    for other in histories[1:]:
        if _bag(other) != _bag(first):
            raise RecensionError("merge: the inputs stand for different histories")
    return list(first)


def _bag(history: History) -> Counter[str]:
    return Counter(f"{e.vs} {e.ve} {sorted(e.payload.items())}" for e in history)
