"""A day of leases: which device held an address at which site, from when to when."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import pyarrow as pa

from recension.core.events import Event
from recension.core.history import History
from recension.core.ticks import duration, instant

SCHEMA: Final = pa.schema([("device", pa.string()), ("site", pa.string()), ("mbits", pa.int64())])
SITES: Final = ("archive", "canteen", "clinic", "hall", "lab", "library", "office", "workshop")
MINUTE: Final = duration("1m")
HOUR: Final = duration("1h")
HOURS: Final = 10
OPENS: Final = int(instant("2026-03-02T08:00:00Z"))
CLOSES: Final = OPENS + HOURS * HOUR
_USUAL: Final = 45 * MINUTE
_LONGEST: Final = 4 * HOUR


def leases(count: int, seed: int) -> list[Event]:
    """What really happened, in order of time."""
    rng = Random(seed)
    return sorted((_lease(number, rng) for number in range(count)), key=lambda lease: lease.vs)


def _lease(number: int, rng: Random) -> Event:
    payload = {
        "device": f"device {number:05}",
        "site": rng.choice(SITES),
        "mbits": rng.choice((1, 2, 5, 10)),
    }
    vs = OPENS + rng.randrange(HOURS * HOUR - _USUAL)
    lasts = MINUTE + round(rng.expovariate(1 / _USUAL))
    return Event(payload, vs, min(vs + min(lasts, _LONGEST), CLOSES))


def as_history(events: Sequence[Event]) -> History:
    """The leases as a table."""
    return History.from_events(events, SCHEMA)


def clock(t: int) -> str:
    """The time of the day.

    >>> clock(OPENS + 90 * MINUTE)
    '09:30'
    """
    minutes = (t - OPENS) // MINUTE + 8 * 60
    return f"{minutes // 60:02}:{minutes % 60:02}"
