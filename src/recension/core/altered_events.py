"""Events shown otherwise than their stream tells them, found by the identity it knows them by.

Of equal identities the one that came last is taken away first; it is also the one that ends last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.rowhash import Hashes
from recension.core.sorted_runs import SortedRuns
from recension.core.ticks import FOREVER, Ticks

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


class AlteredEvents(SortedRuns):
    """What was altered and can still be corrected: it ends at or after the last CTI."""

    def __init__(self) -> None:
        super().__init__({"key": np.uint64, "start": np.int64, "end": np.int64}, expiry="end")

    def count(self, keys: Hashes) -> Index:
        """How many events of each of the given identities can still be corrected."""
        found = self.matching(np.unique(keys))["key"]
        return np.searchsorted(found, keys, "right") - np.searchsorted(found, keys)

    def take_out(self, keys: Hashes) -> Altered:
        """All events of the given (sorted) identities, which are forgotten: what stays is put back."""
        found = Altered(**self.matching(keys))
        self.erase(keys)
        return found

    def put(self, events: Altered) -> None:
        """Remember events; equal identities stand in order of arrival."""
        events = events.take(np.argsort(events.key, kind="stable"))
        self.push(events.key, events.start, events.end, is_run=True)
