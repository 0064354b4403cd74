"""A day of leases, and three servers that report them, each in its own way.

A lease says which device held an address at which site, from when to when. It is granted for a term, renewed,
or given back early; some offers are never taken up. What a server reports first is mostly wrong, and
corrected later. In the end all have reported the same.

    what happened    |-----------|
    north            |---|---|---|     grants for half an hour and renews; prompt
    south            |------------->   grants until closing time; late, and in disorder
    west             |-------|         guesses; sends from ten o'clock on, and is silent for two hours
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

import pyarrow as pa

from recension.core.batch import EventBatch, from_elements
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.history import History
from recension.core.ticks import BEGINNING, FOREVER, duration, instant

SCHEMA: Final = pa.schema([("device", pa.string()), ("site", pa.string()), ("mbits", pa.int64())])
SITES: Final = ("archive", "canteen", "clinic", "hall", "lab", "library", "office", "workshop")
MINUTE: Final = duration("1m")
HOUR: Final = duration("1h")
HOURS: Final = 10
OPENS: Final = int(instant("2026-03-02T08:00:00Z"))
CLOSES: Final = OPENS + HOURS * HOUR
_USUAL: Final = 45 * MINUTE
_LONGEST: Final = 4 * HOUR
_TERM: Final = 30 * MINUTE
_FIRST_DOUBTS: Final = 5 * MINUTE
_PUNCTUATION: Final = 15 * MINUTE
_IDLE_OFFERS: Final = 0.05

# What a server reports of one lease: at which time, and the end it then gives. An end at the start: no lease.
Reports: TypeAlias = list[tuple[int, int]]
Reporting: TypeAlias = Callable[[Event, Random], Reports]
Change: TypeAlias = Insert | Retract


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


@dataclass(frozen=True)
class Feed:
    """One server: how it reports a lease, how late, and when it is silent."""

    name: str
    reporting: Reporting
    delay: int
    silence: tuple[int, int] = (0, 0)
    since: int = BEGINNING
    """It knows the leases that end then or later, and sends from then on."""

    def parts(self, events: Sequence[Event], seed: int) -> list[EventBatch]:
        """What it sends, hour by hour; the last part has what comes after closing time as well."""
        changes = list(self._changes(events, Random(f"{seed} {self.name}")))
        changes.sort(key=lambda change: change[0])
        parts: list[list[Element]] = [[] for _ in range(HOURS)]
        for arrival, element in _add_ctis(changes):
            parts[min((arrival - OPENS) // HOUR, HOURS - 1)].append(element)
        return [from_elements(part, SCHEMA) for part in parts]

    def _changes(self, events: Sequence[Event], rng: Random) -> Iterator[tuple[int, Change]]:
        for event in [*events, *_idle_offers(events, rng)]:
            if event.ve >= self.since:
                yield from self._changes_of(event, rng)

    def _changes_of(self, event: Event, rng: Random) -> Iterator[tuple[int, Change]]:
        arrival, end = BEGINNING, event.vs
        for reported, new_end in self.reporting(event, rng):
            if new_end != end:
                # Reports on one lease keep their order; those on different ones overtake each other.
                arrival = max(arrival, self._arrival(reported + rng.randrange(self.delay)))
                yield arrival, _change(event, end, new_end)
                end = new_end

    def _arrival(self, reported: int) -> int:
        falls_silent, is_back = self.silence
        return max(is_back if falls_silent <= reported < is_back else reported, self.since)


def _change(event: Event, before: int, after: int) -> Change:
    if before == event.vs:
        return Insert(event.payload, event.vs, after)
    return Retract(event.payload, event.vs, before, after)


def _idle_offers(events: Sequence[Event], rng: Random) -> Iterator[Event]:
    """Offers that nobody took up: leases that end where they begin. Each server makes its own."""
    for number in range(round(len(events) * _IDLE_OFFERS)):
        like = rng.choice(events)
        yield Event({**like.payload, "device": f"offer {number:05}"}, like.vs, like.vs)


def _add_ctis(changes: Sequence[tuple[int, Change]]) -> Iterator[tuple[int, Element]]:
    """With a CTI every quarter of an hour: no change still to come is before it."""
    ahead = [FOREVER] * (len(changes) + 1)
    for at in range(len(changes) - 1, -1, -1):
        ahead[at] = min(ahead[at + 1], _sync_time(changes[at][1]))
    last = due = OPENS
    for (arrival, element), bound in zip(changes, ahead[:-1], strict=True):
        if arrival >= due:
            due = arrival - (arrival - OPENS) % _PUNCTUATION + _PUNCTUATION
            if (t := min(bound, arrival)) > last:
                yield arrival, Cti(t)
                last = t
        yield arrival, element
    yield FOREVER, Cti(FOREVER)


def _sync_time(change: Change) -> int:
    return min(change.ve, change.new_ve) if isinstance(change, Retract) else change.vs


def renews(lease: Event, rng: Random) -> Reports:
    """A term, and another one whenever half of the last is over."""
    reports, end = [(lease.vs, lease.vs + _TERM)], lease.vs + _TERM
    while end < lease.ve:
        reports.append((end - _TERM // 2, end + _TERM))
        end += _TERM
    return [*reports, _last_report(lease)]


def grants_the_day(lease: Event, rng: Random) -> Reports:
    """Until closing time, unless it is given back."""
    return [(lease.vs, CLOSES), _last_report(lease)]


def guesses(lease: Event, rng: Random) -> Reports:
    """A guess, and another one when it turns out too short; in the end the truth."""
    reported, end, reports = lease.vs, lease.vs, []
    while end <= lease.ve:
        reported, end = end, end + rng.randrange(20, 80) * MINUTE
        reports.append((reported, end))
    return [*reports, _last_report(lease)]


def _last_report(lease: Event) -> tuple[int, int]:
    return max(lease.ve, lease.vs + _FIRST_DOUBTS), lease.ve


NORTH: Final = Feed("north", renews, delay=3 * MINUTE)
SOUTH: Final = Feed("south", grants_the_day, delay=75 * MINUTE)
WEST: Final = Feed(
    "west",
    guesses,
    delay=15 * MINUTE,
    silence=(OPENS + 5 * HOUR, OPENS + 7 * HOUR),
    since=OPENS + 2 * HOUR,
)
