"""Consistency methods: when answers are shown, and how long the past may still change."""

from __future__ import annotations

from typing import Self

from recension.api.base import StreamBase
from recension.core.ticks import FOREVER, DurationLike, duration
from recension.plan.consistency import Align, Cleanse


class ConsistencyMethods(StreamBase):
    """The consistency spectrum: waiting for order against speculation, memory against loss."""

    __slots__ = ()

    def cleanse(self) -> Self:
        """Only what is final: no retraction ever, ordered by start and then by payload.

        An event comes out once neither it nor any event before it can change; a long one holds back all
        that start after it.

        >>> import recension as rc
        >>> s = rc.source("s", {"x": "int64"})
        >>> late = [rc.Insert({"x": 1}, 5, 9), rc.Insert({"x": 2}, 2, 9), rc.Retract({"x": 2}, 2, 9, 4)]
        >>> for element in rc.run(s.cleanse(), {"s": [*late, rc.Cti(8)]}).elements():
        ...     print(element)
        insert [2, 4) {'x': 2}
        cti 5
        """
        return self._then(Cleanse(self.plan))

    def align(self, block: DurationLike | None = None) -> Self:
        """The same events, with changes held back for ``block`` of application time to come in order.

        Changes that undo each other while they wait are never shown. ``0`` holds back nothing; ``None``, or
        FOREVER, everything until a CTI has passed it, which makes the output ordered.

        >>> import recension as rc
        >>> s = rc.source("s", {"x": "int64"})
        >>> late = [rc.Insert({"x": 1}, 5, 9), rc.Insert({"x": 2}, 2, 9), rc.Retract({"x": 2}, 2, 9, 4)]
        >>> for element in rc.run(s.align(), {"s": [*late, rc.Cti(8)]}).elements():
        ...     print(element)
        insert [2, 4) {'x': 2}
        insert [5, 9) {'x': 1}
        cti 8
        """
        return self._then(Align(self.plan, ticks_of(block)))


def ticks_of(length: DurationLike | None) -> int:
    """Ticks in a length of time, where ``None`` has no end."""
    return FOREVER if length is None else duration(length)
