"""Events with one start, in the order in which they come out: what stands before all others.

start   |=====)                 out
        |==========)            first: held back while its end may still move
        |===)                   waits behind it, by the order of payloads, though it has ended
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from recension.core.batch import Index
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING, Ticks
from recension.operators.state.events_by_start import is_open_at
from recension.operators.state.net_changes import NetChanges

_FIRST_LOOK = 64


@dataclass(slots=True, eq=False)
class Front:
    """By (payload, end). Those before ``at`` are out; one that was removed ends at the beginning of time."""

    start: int
    end: Ticks
    row: Index
    hash: Hashes
    at: int = 0
    _by_hash: tuple[Hashes, Index] | None = field(default=None)

    def __len__(self) -> int:
        return int(np.count_nonzero(self.end[self.at :] > BEGINNING))

    @property
    def first_end(self) -> int:
        """Until when the first holds back all others."""
        return int(self.end[self.at])

    def nbytes(self) -> int:
        """Memory taken."""
        return 24 * len(self.end) * (1 if self._by_hash is None else 2)

    def release(self, t: int) -> tuple[Ticks, Index]:
        """Take out those that are final at ``t``, up to the first that is not: their ends and rows."""
        start, width = self.at, _FIRST_LOOK
        while self.at < len(self.end):
            is_open = is_open_at(self.end[self.at : self.at + width], t)
            if bool(is_open.any()):
                self.at += int(np.argmax(is_open))
                break
            self.at, width = self.at + len(is_open), 2 * width
        out = start + np.flatnonzero(self.end[start : self.at] > BEGINNING)
        return self.end[out], self.row[out]

    def change(self, change: NetChanges) -> bool:
        """Move ends; False, and nothing has changed, where that is not enough.

        It is enough for events whose payload no other here has: their place does not depend on their end.
        """
        if not len(change):
            return True
        if self._by_hash is None:
            order = np.argsort(self.hash)
            self._by_hash = self.hash[order], order
        hashes, order = self._by_hash
        found = np.minimum(np.searchsorted(hashes, change.hash), len(hashes) - 1)
        is_alone = np.searchsorted(hashes, change.hash, "right") - found == 1
        place = order[found]
        if not bool((is_alone & (place >= self.at) & (self.end[place] == change.old)).all()):
            return False
        self.end[place] = np.where(change.new > change.vs, change.new, np.int64(BEGINNING))
        return True

    def left(self) -> dict[str, Ticks]:
        """What is not out, as rows of a table of events by start."""
        at = self.at + np.flatnonzero(self.end[self.at :] > BEGINNING)
        start = np.full(len(at), self.start)
        return {
            "group": start,
            "time": self.hash[at].view(np.int64),
            "end": self.end[at],
            "row": self.row[at],
        }
