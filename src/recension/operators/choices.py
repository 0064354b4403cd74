"""Choices of one event of each of some parts, of one key, whose starts are different and lie close together.

Nothing is remembered but the events of each part. For events that change, all choices that they are in are
found anew, part by part, each by a search in the store of that part:

    parts       a           b           c                    the b at t changes
    search      (t-w, t)    t           (t, a+w)             first the a before it, then the c after it

So a change costs the choices that it takes part in, and those of the parts that are looked for first.

With an absent stream a sequence ends no later than its next event after the first start. That bounds the
search for the parts after the first, so choices that it rules out are not made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recension.core.batch import Index
from recension.core.records import record
from recension.core.rowhash import Hashes
from recension.core.ticks import Ticks
from recension.operators.starts import in_pieces, move
from recension.operators.state.start_index import StartSearch, StartStore


@record
class Choices:
    """Choices so far; each is for one row of a question.

    ``chosen`` are the positions of events by part, but for the part that was asked about. Starts are by part.
    """

    at: Index
    chosen: Mapping[int, Index]
    starts: Mapping[int, Ticks]
    first: Ticks
    last: Ticks

    def __len__(self) -> int:
        return len(self.at)

    def take(self, rows: Index) -> Choices:
        """Some of them."""
        chosen = {part: x[rows] for part, x in self.chosen.items()}
        starts = {part: vs[rows] for part, vs in self.starts.items()}
        return Choices(self.at[rows], chosen, starts, self.first[rows], self.last[rows])

    def add(self, part: int, row: Index, x: Index, start: Ticks) -> Choices:
        """These choices, each with an event of one more part."""
        some = self.take(row)
        first, last = np.minimum(some.first, start), np.maximum(some.last, start)
        return Choices(some.at, {**some.chosen, part: x}, {**some.starts, part: start}, first, last)


def choose(part: int, vs: Ticks, x: Index | None = None) -> Choices:
    """Choices of a part alone, by the starts of its events, and their positions if they are stored."""
    return Choices(np.arange(len(vs)), {} if x is None else {part: x}, {part: vs}, vs, vs)


@dataclass(frozen=True)
class ChoiceSearch:
    """Finds choices of ``size`` of the parts; in order of the parts, or in any."""

    stores: Sequence[StartStore]
    absent: StartSearch | None
    within: int
    size: int
    in_order: bool

    def find(self, part: int, group: Hashes, vs: Ticks) -> Iterator[tuple[Index, list[Choices]]]:
        """The choices that events of a part are in, some rows after the other, of each row all at once."""

        def ask(rows: Index, most: int | None) -> list[Choices]:
            alone, own = choose(part, vs[rows]), group[rows]
            if self.in_order:
                return [self._in_order(part, own, alone, most)]
            others = [other for other in range(len(self.stores)) if other != part]
            return list(self._in_any_order(own, alone, others, self.size - 1, most))

        return in_pieces(len(vs), ask)

    def _in_order(self, part: int, group: Hashes, found: Choices, most: int | None) -> Choices:
        """The parts before it, the nearest first; then those after it."""
        for other in range(part - 1, -1, -1):
            since = move(found.last, 1 - self.within)
            found = self._extend(found, other, group, since, found.starts[other + 1], most)
        before = move(found.first, self.within)
        if self.absent is not None:
            ends = self.absent.find_first(group[found.at], found.first + 1, before)
            goes_on = np.flatnonzero(found.last <= ends)
            found, before = found.take(goes_on), np.minimum(before, ends + 1)[goes_on]
        return self.extend_after(found, part, group, before, most)

    def extend_after(
        self,
        found: Choices,
        part: int,
        group: Hashes,
        before: Ticks,
        most: int | None,
        since: Ticks | None = None,
    ) -> Choices:
        """With the parts after one, all before a time of each choice, the last not before ``since``."""
        for other in range(part + 1, len(self.stores)):
            after = found.starts[other - 1] + 1
            if since is not None and other == len(self.stores) - 1:
                after = np.maximum(after, since)
            rows, x, start = self._look(other, group[found.at], after, before, most)
            found, before = found.add(other, rows, x, start), before[rows]
            since = None if since is None else since[rows]
        return found

    def _in_any_order(
        self, group: Hashes, found: Choices, others: Sequence[int], missing: int, most: int | None
    ) -> Iterator[Choices]:
        if not missing:
            yield found
            return
        for place, other in enumerate(others[: len(others) - missing + 1]):
            since, before = move(found.last, 1 - self.within), move(found.first, self.within)
            more = self._extend(found, other, group, since, before, most)
            is_different = np.ones(len(more), np.bool_)
            for part, start in more.starts.items():
                is_different &= (part == other) | (start != more.starts[other])
            more = more.take(np.flatnonzero(is_different))
            if len(more):
                yield from self._in_any_order(group, more, others[place + 1 :], missing - 1, most)

    def _extend(
        self, found: Choices, part: int, group: Hashes, since: Ticks, before: Ticks, most: int | None
    ) -> Choices:
        return found.add(part, *self._look(part, group[found.at], since, before, most))

    def _look(
        self, part: int, group: Hashes, since: Ticks, before: Ticks, most: int | None
    ) -> tuple[Index, Index, Ticks]:
        """The events of a part that start from one time and before another: question, position, start."""
        rows, x = self.stores[part].find_overlaps(group, since, before, most)
        return rows, x, self.stores[part].column("vs", x)
