"""Instants, each in a group, for asking which one of a group comes next; and the events that start then."""

from __future__ import annotations

from typing import Final

import numpy as np

from recension.core.batch import Index
from recension.core.netting import distinct, expand
from recension.core.rowhash import Hashes, combine
from recension.core.ticks import Ticks
from recension.operators.state.event_store import EventStore
from recension.operators.state.interval_index import IntervalIndex

_FIRST_LOOK: Final = 4


class StartSearch(IntervalIndex):
    """An index of instants: of intervals of one tick, whose runs are therefore sorted by (group, instant)."""

    def find_first(self, group: Hashes, since: Ticks, before: Ticks) -> Ticks:
        """The first instant of the group in ``[since, before)``; ``before`` if none is.

        Cost: a search, then as many steps as dead or foreign instants lie in the way.
        """
        if not self._runs or not len(since):
            return before.copy()
        search = self._search()
        first, last = search.ranges(group, since, before, search.order(group, since))
        question, nearest = np.repeat(np.arange(len(since)), first.shape[1]), before.copy()
        todo, first, last, width = np.arange(first.size), first.ravel(), last.ravel(), _FIRST_LOOK
        while len(todo):
            stop = np.minimum(first + width, last)
            owner, at = expand(first, stop)
            asked = question[todo[owner]]
            vs = self._arena["vs"][at]
            hit = (vs >= since[asked]) & (vs < before[asked]) & (self._arena["group"][at] == group[asked])
            hit &= self._arena["ve"][at] > self._expired_until
            np.minimum.at(nearest, asked[hit], vs[hit])
            # Instants that share a key are in no order: what was found stands when the key has changed.
            go_on = self._find_undecided(owner[hit], at[hit], stop, last)
            todo, first, last, width = todo[go_on], stop[go_on], last[go_on], 2 * width
        return nearest

    def _find_undecided(self, owner: Index, at: Index, stop: Index, last: Index) -> Index:
        """Which ranges have more to look at: those without a hit, or with one of the same key as the next."""
        keys = self._arena["key"]
        found = np.full(len(stop), -1)
        found[owner[::-1]] = at[::-1]
        more = np.flatnonzero(stop < last)
        decided = (found[more] >= 0) & (keys[found[more]] != keys[stop[more]])
        rest: Index = more[~decided]
        return rest


class StartIndex(StartSearch):
    """A bag of instants."""

    def insert(self, group: Hashes, at: Ticks) -> None:
        """Add instants."""
        self.add(group, at, at + 1, combine(group, at))

    def remove_at(self, group: Hashes, at: Ticks) -> None:
        """Remove instants, one for each that is named and there."""
        found = self.find(combine(group, at))
        self.remove(found[found >= 0])

    def find_next(self, group: Hashes, after: Ticks, before: Ticks) -> Ticks:
        """The first instant of the group strictly between ``after`` and ``before``; ``before`` if none is."""
        return self.find_first(group, after + 1, before)


class StartStore(EventStore, StartSearch):
    """Events with their payloads, by their starts: whatever their ends, each is kept for one tick."""

    def find_any(self, group: Hashes, lo: Ticks, hi: Ticks, most: int | None = None) -> Index:
        """All events that are an answer to some question, each once."""
        return distinct(self.find_overlaps(group, lo, hi, most)[1])
