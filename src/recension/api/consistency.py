"""Consistency methods: when answers are shown, and how long the past may still change."""

from __future__ import annotations

from typing import Self

from recension.api.base import StreamBase
from recension.plan.consistency import Cleanse


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
