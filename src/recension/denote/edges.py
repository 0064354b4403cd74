"""Edges: each reading is valid until the next reading of its group; the last one for ever.

Source: temporal coalescing §2.3 and the guide. A reading is an event taken at its ``vs``; its own end
does not matter. Two readings of one group at one time are refused (coalescing ruling 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from recension.core.errors import StreamError
from recension.core.events import Event
from recension.core.ticks import FOREVER
from recension.denote.grouped import groups
from recension.denote.lineage import Bases, Basis, Lineage, Region, Seen, Words, region_of
from recension.denote.order import Columns, History, canonical, key_of, names


def edges(history: History, group_by: Columns = ()) -> History:
    """The readings as facts with lifetimes.

    >>> print(*edges([Event({"t": 20}, 1, 2), Event({"t": 21}, 4, 5)]), sep="; ")
    [1, 4) {'t': 20}; [4, ∞) {'t': 21}
    """
    result: History = []
    for readings in readings_by_group(history, group_by):
        ends = [reading.vs for reading in readings[1:]] + [FOREVER]
        result += [
            Event(reading.payload, reading.vs, end) for reading, end in zip(readings, ends, strict=True)
        ]
    return result


def readings_by_group(history: History, group_by: Columns) -> list[History]:
    """The readings of each group in the order of their times, which must differ."""
    split = [canonical(group) for group in groups(history, group_by)]
    for group in split:
        for one, other in pairwise(group):
            if one.vs == other.vs:
                raise StreamError(f"two readings of one group at {one.vs}: {one} and {other}")
    return split


class EdgesLineage(Lineage):
    """What a reading's lifetime rests on: the reading, the one that ended it, and that none came between."""

    def __init__(self, group_by: Columns) -> None:
        super().__init__([{name: name for name in names(group_by)}])
        self._group_by = names(group_by)

    def reach(self, region: Region) -> list[Region]:
        """A reading holds until the next, however long ago it was."""
        return [super().reach(region)[0].since_ever()]

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        there = region_of(event).below(self.columns[0])
        return [Basis([e for e in inputs[0].touching(there) if e.vs in (event.vs, event.ve)], [there])]

    def absence(self, region: Region, inputs: Sequence[Seen], output: Seen) -> Bases:
        """The readings that hold there, those that end them, and none between.

        Before the first reading of a group, any earlier one would hold until then.
        """
        there = self.around(region, output).below(self.columns[0])
        found = inputs[0].touching(there.since_ever())
        kept = [e for e in found if there.start <= e.vs <= there.end]
        asked = {name for name, _ in there.where}
        begun = {key_of(e.payload, self._group_by) for e in found if e.vs < region.start}
        groups = {key_of(e.payload, self._group_by) for e in kept}
        is_bounded = asked.issuperset(self._group_by) and bool(begun) and groups <= begun
        return [Basis(kept, [there if is_bounded else there.since_ever()])]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        first = [e for e in bases[0].kept if e.vs == event.vs]
        later = [e for e in bases[0].kept if e.vs != event.vs]
        until = f" until {words.names(later)}" if later else ", and none since"
        return f"{words.names(first)}{until}"
