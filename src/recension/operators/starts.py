"""Events that meet by their starts: how far apart those may lie, and changes without the ends they move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np

from recension.core.batch import Index, take_rows
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.changes import NetChanges
from recension.operators.matching import LEFT, SideChanges
from recension.operators.state.interval_search import TooManyCandidatesError

T = TypeVar("T")

# So many candidates are found at once, or those of one event.
_MOST_CANDIDATES: Final = 1 << 21


@dataclass(frozen=True, slots=True)
class StartRange:
    """A right event meets a left one if it starts ``low`` to ``high`` ticks after it, both included."""

    low: int
    high: int

    def opposite(self, side: int, vs: Ticks) -> tuple[Ticks, Ticks]:
        """Where those start that meet events of a side which start at these times: from, and before."""
        if side == LEFT:
            return move(vs, self.low), move(vs, self.high + 1)
        return move(vs, -self.high), move(vs, 1 - self.low)


def move(times: Ticks, delta: int) -> Ticks:
    """Times moved; what would lie beyond an end of time is there."""
    if delta >= 0:
        is_beyond, end = times > FOREVER - delta, FOREVER
    else:
        is_beyond, end = times < BEGINNING - delta, BEGINNING
    if not bool(is_beyond.any()):
        return times + delta
    return np.where(is_beyond, end, times + np.where(is_beyond, 0, delta))


def move_cti(t: int, delta: int) -> int:
    """A CTI as one on what starts so much later; after the last nothing comes."""
    return t if t == FOREVER else max(BEGINNING, min(t + delta, FOREVER))


def with_duration(arriving: SideChanges, duration: int) -> SideChanges:
    """What the changes are to events that all live so long: those of ends are none."""
    change = arriving.change
    end = move(change.vs, duration)
    if change.is_insert_only:
        fixed = NetChanges(change.row, change.vs, change.vs, end, change.hash)
        return replace(arriving, change=fixed)
    old, new = (np.where(each > change.vs, end, change.vs) for each in (change.old, change.new))
    fixed = NetChanges(change.row, change.vs, old, new, change.hash)
    return take_changes(replace(arriving, change=fixed), np.flatnonzero(old != new))


def take_changes(arriving: SideChanges, at: Index) -> SideChanges:
    """Some of the changes."""
    change = replace(arriving.change.take(at), row=np.arange(len(at)))
    return SideChanges(change, arriving.group[at], take_rows(arriving.payload, at))


def in_pieces(size: int, ask: Callable[[Index, int | None], T]) -> Iterator[tuple[Index, T]]:
    """Answers for all rows, as many at once as do not have too many candidates; for one row all it has."""
    waiting = [np.arange(size)] if size else []
    while waiting:
        rows = waiting.pop()
        try:
            answer = ask(rows, _MOST_CANDIDATES if len(rows) > 1 else None)
        except TooManyCandidatesError:
            half = len(rows) // 2
            waiting += [rows[half:], rows[:half]]
            continue
        yield rows, answer
