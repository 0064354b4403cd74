"""What the small ticks of random streams stand for: themselves, far numbers, or moments around a zone change.

>>> paris = Clock(tz="Europe/Paris", since="2024-03-30", step="5h")
>>> print(Event({}, paris.at(0), paris.at(5)))
[2024-03-30 01:00:00+01:00, 2024-03-31 03:00:00+02:00) {}
>>> paris.goes_forward, paris.goes_back, paris.is_far
(True, False, False)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa

from recension.core.events import Cti, Element, Event, Retract
from recension.core.ticks import duration, instant
from recension.core.time_kind import of_kind
from recension.testing.physical import HORIZON

LAST_OF_THE_TABLES: Final = 2037
"""Files of zones list each change until then; afterwards a rule says when clocks change."""


@dataclass(frozen=True)
class Clock:
    """Tick ``n`` is ``n`` steps after ``since``, in a zone; without a zone it is ``n + base``."""

    base: int = 0
    tz: str | None = None
    since: str = ""
    step: str = ""

    def at(self, tick: int) -> int:
        """The time that a tick stands for; the ends of time stay what they are."""
        if abs(tick) >= 2**62:
            return tick
        if self.tz is None:
            return self.base + tick
        start = int(instant(f"{self.since}T00:00Z"))
        return of_kind(start + tick * duration(self.step), pa.timestamp("us", self.tz))

    def element(self, element: Element) -> Any:
        """An element at the times that its ticks stand for."""
        if isinstance(element, Cti):
            return Cti(self.at(element.t))
        names = ("vs", "ve", "new_ve") if isinstance(element, Retract) else ("vs", "ve")
        times: Any = {name: self.at(getattr(element, name)) for name in names}
        return replace(element, **times)

    def event(self, event: Event) -> Event:
        """An event at the times that its ticks stand for."""
        return Event(event.payload, self.at(event.vs), self.at(event.ve))

    @property
    def goes_forward(self) -> bool:
        """Is an hour left out within the ticks of a stream?"""
        return any(after > before for before, after in self._offsets)

    @property
    def goes_back(self) -> bool:
        """Does an hour come twice?"""
        return any(after < before for before, after in self._offsets)

    @property
    def is_far(self) -> bool:
        """After the last change that a file of zones lists?"""
        return self.tz is not None and int(self.since[:4]) > LAST_OF_THE_TABLES

    @cached_property
    def _offsets(self) -> list[tuple[timedelta, timedelta]]:
        """What the zone is ahead by, at each tick and at the next."""
        if self.tz is None:
            return []
        epoch, zone = datetime(1970, 1, 1, tzinfo=UTC), ZoneInfo(self.tz)
        moments = [epoch + timedelta(microseconds=int(self.at(tick))) for tick in range(HORIZON + 1)]
        ahead = [moment.astimezone(zone).utcoffset() or timedelta() for moment in moments]
        return list(pairwise(ahead))


TICKS: Final = Clock()
FAR: Final = Clock(base=2**53 + 1)
"""A float holds only every other of these numbers."""
EARLY: Final = Clock(base=-(10**6))
