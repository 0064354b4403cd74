"""Events shown otherwise than their stream tells them, found by the identity it knows them by.

Kept as a few sorted runs, each at least twice as long as the next (see core/bag.py). Of equal identities
the one that came last is taken away first; it is also the one that ends last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.state.ranges import expand

# So few are looked through at every CTI.
_FEW: Final = 64
NOT_SHOWN: Final = FOREVER
"""The start of an event that is not shown at all."""


@dataclass(frozen=True, slots=True)
class Altered:
    """Identities by which events are known, and the lifetimes they are shown with, in order of arrival."""

    key: Hashes
    start: Ticks
    end: Ticks

    def __len__(self) -> int:
        return len(self.key)

    def take(self, at: Index | Mask) -> Altered:
        """Some of them."""
        return Altered(self.key[at], self.start[at], self.end[at])


class AlteredEvents:
    """What was altered and can still be corrected: it ends at or after the last CTI."""

    def __init__(self) -> None:
        self._runs: list[Altered] = []
        self._frontier = BEGINNING

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def nbytes(self) -> int:
        """Memory taken."""
        return 24 * len(self)

    def take_out(self, keys: Hashes) -> Altered:
        """All events of the given (sorted) identities, which are forgotten: what stays is put back."""
        found = []
        for run in self._runs:
            _, rows = expand(np.searchsorted(run.key, keys), np.searchsorted(run.key, keys, side="right"))
            if len(rows):
                found.append(run.take(rows))
                run.end[rows] = BEGINNING  # as if it had ended: the space is freed by later merges
        return self._live(_joined(found))

    def put(self, events: Altered) -> None:
        """Remember events; equal identities stand in order of arrival."""
        events = self._live(events)
        self._runs.append(events.take(np.argsort(events.key, kind="stable")))
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) >= len(self._runs[-2]):
            last, before = self._runs.pop(), self._runs.pop()
            both = self._live(_joined([before, last]))
            self._runs.append(both.take(np.argsort(both.key, kind="stable")))
        if not len(self._runs[-1]):
            self._runs.pop()

    def forget_before(self, t: int) -> None:
        """What ended before ``t`` is final, at the end of time everything; space is freed half by half."""
        self._frontier = t
        if t == FOREVER:
            self._runs = []
        elif self._runs and (len(self) <= _FEW or bool((self._runs[0].end < t).mean() > 0.5)):
            self._runs = [run for run in map(self._live, self._runs) if len(run)]

    def to_arrow(self) -> pa.Table:
        """All of them, in order of arrival."""
        events = self._live(_joined(self._runs))
        return pa.table({"key": events.key, "start": events.start, "end": events.end})

    def load(self, table: pa.Table, frontier: int) -> None:
        """Become what `to_arrow` gave."""
        self._runs, self._frontier = [], frontier
        self.put(Altered(*(table[name].to_numpy() for name in ("key", "start", "end"))))

    def _live(self, events: Altered) -> Altered:
        keep = events.end >= self._frontier
        return events if bool(keep.all()) else events.take(keep)


def _joined(runs: list[Altered]) -> Altered:
    none = np.zeros(0, np.int64)
    parts = [Altered(np.zeros(0, np.uint64), none, none), *runs]
    return Altered(
        np.concatenate([part.key for part in parts]),
        np.concatenate([part.start for part in parts]),
        np.concatenate([part.end for part in parts]),
    )
