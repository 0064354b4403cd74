"""Where a stream had got to when: turns a wall-clock duration into a moment of application time.

clock              10        12           17
latest time seen    40        55           90
5 ago, at clock 16:           ^ 12 is not yet 5 ago: the stream had reached 40
"""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from recension.core.ticks import BEGINNING


class Passage:
    """Remembers for ``length`` microseconds when the latest time seen grew. A clock set back stands still."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._now = BEGINNING
        self._reached = BEGINNING
        self._steps: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._steps)

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
        if self._steps and self._steps[-1][0] == self._now:
            self._steps.pop()
        self._steps.append((self._now, latest))

    def trace(self) -> tuple[int, ...]:
        """All that it remembers."""
        return self._reached, *(moment for step in self._steps for moment in step)

    def to_arrow(self) -> pa.Table:
        """The state; the first row is the clock's last reading, with what was reached in time."""
        rows = [(self._now, self._reached), *self._steps]
        at, latest = (pa.array(column, pa.int64()) for column in zip(*rows, strict=True))
        return pa.table({"at": at, "latest": latest})

    def load(self, table: pa.Table) -> None:
        """Become what `to_arrow` gave."""
        rows = zip(table["at"].to_pylist(), table["latest"].to_pylist(), strict=True)
        (self._now, self._reached), *steps = rows
        self._steps = deque(steps)
