"""Where a stream had got to when: turns a wall-clock duration into a moment of application time.

clock              10        12           17
latest time seen    40        55           90
5 ago, at clock 16:           ^ 12 is not yet 5 ago: the stream had reached 40
"""

from __future__ import annotations

from collections import deque
from typing import Final

import pyarrow as pa

from recension.core.ticks import BEGINNING

# How many steps are told apart within the length: more would cost memory for every push.
_GRAINS: Final = 1 << 12
# A tuple of two integers.
_BYTES: Final = 128


class Passage:
    """Remembers for ``length`` microseconds when the latest time seen grew. A clock set back stands still.

    Steps in the same 4096th part of the length are one, the last of them: what the stream had reached may be
    told that much later, never sooner.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._grain = max(1, length // _GRAINS)
        self._now = BEGINNING
        self._reached = BEGINNING
        self._steps: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._steps)

    def nbytes(self) -> int:
        """Memory taken."""
        return _BYTES * len(self._steps)

    @property
    def reached(self) -> int:
        """Where the stream had got to ``length`` before the clock's last reading."""
        return self._reached

    def tick(self, now: int) -> int:
        """The clock shows ``now``; where the stream had got to ``length`` before."""
        self._now = max(self._now, now)
        while self._steps and self._steps[0][0] + self._length <= self._now:
            self._reached = self._steps.popleft()[1]
        return self._reached

    def note(self, latest: int) -> None:
        """The stream has got to ``latest`` by the clock's last reading."""
        if latest <= (self._steps[-1][1] if self._steps else self._reached):
            return
        if self._steps and self._steps[-1][0] // self._grain == self._now // self._grain:
            self._steps.pop()
        self._steps.append((self._now, latest))

    def trace(self) -> tuple[int, ...]:
        """All that it remembers."""
        return self._reached, *(moment for step in self._steps for moment in step)

    def snapshot(self) -> pa.Table:
        """The state; the first row is the clock's last reading, with what was reached in time."""
        rows = [(self._now, self._reached), *self._steps]
        at, latest = (pa.array(column, pa.int64()) for column in zip(*rows, strict=True))
        return pa.table({"at": at, "latest": latest})

    def restore(self, table: pa.Table) -> None:
        """Become what `snapshot` gave."""
        rows = zip(table["at"].to_pylist(), table["latest"].to_pylist(), strict=True)
        (self._now, self._reached), *steps = rows
        self._steps = deque(steps)
