"""A grid of windows: window ``i`` is ``[offset + i·hop, offset + i·hop + size)``.

An event belongs to every window it overlaps (ruling G1). Those are consecutive, so that on the axis of
window numbers an event is again an interval, and an aggregate over windows is one over snapshots there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recension.core.batch import Index
from recension.core.errors import RecensionError
from recension.core.ticks import BEGINNING, FOREVER, Ticks, add


@dataclass(frozen=True, slots=True)
class Grid:
    """``until`` leaves only windows that start before it."""

    size: int
    hop: int
    offset: int = 0
    until: int | None = None

    def first(self, vs: Ticks) -> Index:
        """The first window that an event starting at ``vs`` overlaps."""
        if bool((vs == BEGINNING).any()):
            raise RecensionError("an event that starts at the beginning of time is in windows without number")
        return self._cut((add(vs, -self.size) - self.offset) // self.hop + 1)

    def stop(self, ve: Ticks) -> Index:
        """The first window that starts at or after ``ve``; FOREVER for an event that never ends."""
        finite = np.where(ve == FOREVER, 0, ve)
        return self._cut(np.where(ve == FOREVER, np.int64(FOREVER), -((self.offset - finite) // self.hop)))

    def _cut(self, window: Index) -> Index:
        if self.until is None:
            return window
        return np.minimum(window, -((self.offset - self.until) // self.hop))

    def start(self, window: Index) -> Ticks:
        """Where each window starts."""
        return self.offset + window * self.hop

    def settled(self, t: int) -> int:
        """The first window that ends after ``t``: earlier ones hear nothing of what happens from ``t`` on."""
        if t in (BEGINNING, FOREVER):
            return t
        return int((t - self.size - self.offset) // self.hop + 1)

    def begun(self, t: int) -> int:
        """The first window that starts after ``t``."""
        return t if t in (BEGINNING, FOREVER) else int((t - self.offset) // self.hop + 1)
