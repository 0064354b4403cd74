"""When something is to be done about each of many things; a thing has one deadline, which may change."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from recension.core.ticks import FOREVER

_SLACK = 64


class Deadlines:
    """Things are known by number. A deadline that was changed or given up stays in the heap until it comes
    up, or until such are the majority."""

    def __init__(self) -> None:
        self._of: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def set(self, thing: int, time: int) -> None:
        """The deadline of a thing."""
        if self._of.get(thing) == time:
            return
        self._of[thing] = time
        heappush(self._heap, (time, thing))
        if len(self._heap) > 2 * len(self._of) + _SLACK:
            self._heap = [(time, thing) for thing, time in self._of.items()]
            heapify(self._heap)

    def discard(self, thing: int) -> None:
        """A thing has no deadline any more."""
        self._of.pop(thing, None)

    def first(self) -> int:
        """The earliest deadline, FOREVER if there is none."""
        while self._heap and self._of.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else FOREVER

    def pop_before(self, t: int) -> list[int]:
        """Take out the things whose deadlines are before ``t``, in their order."""
        due = []
        while self._heap and self._heap[0][0] < t:
            time, thing = heappop(self._heap)
            if self._of.get(thing) == time:
                del self._of[thing]
                due.append(thing)
        return due
