"""Three servers that tell of the same leases, each in its own manner.

A lease is granted for a term, renewed, or given back early; some offers are never taken up. What a server
says first is mostly wrong, and put right later. In the end all have said the same.

    what happened    |-----------|
    north            |---|---|---|     grants for half an hour and renews; prompt
    south            |------------->   grants until closing time; late, and in disorder
    west             |-------|         guesses; is heard from ten o'clock on, and falls silent for two hours
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from recension.core.batch import EventBatch, from_elements
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.demo.leases import CLOSES, HOUR, HOURS, MINUTE, OPENS, SCHEMA

_TERM: Final = 30 * MINUTE
_FIRST_DOUBTS: Final = 5 * MINUTE
_PUNCTUATION: Final = 15 * MINUTE
_IDLE_OFFERS: Final = 0.05

# What a server says of one lease: when it says it, and the end it then gives. An end at the start: no lease.
Words: TypeAlias = list[tuple[int, int]]
Manner: TypeAlias = Callable[[Event, Random], Words]
Change: TypeAlias = Insert | Retract


@dataclass(frozen=True)
class Feed:
    """One server: how it tells of a lease, how late, and when it cannot be heard."""

    name: str
    manner: Manner
    delay: int
    silence: tuple[int, int] = (0, 0)
    since: int = BEGINNING
    """It knows the leases that end then or later, and is heard from then on."""

    def parts(self, events: Sequence[Event], seed: int) -> list[EventBatch]:
        """What it says, hour by hour; the last part has what comes after closing time as well."""
        said = list(self._said(events, Random(f"{seed} {self.name}")))
        said.sort(key=lambda word: word[0])
        parts: list[list[Element]] = [[] for _ in range(HOURS)]
        for arrival, element in _punctuated(said):
            parts[min((arrival - OPENS) // HOUR, HOURS - 1)].append(element)
        return [from_elements(part, SCHEMA) for part in parts]

    def _said(self, events: Sequence[Event], rng: Random) -> Iterator[tuple[int, Change]]:
        for event in [*events, *_idle_offers(events, rng)]:
            if event.ve >= self.since:
                yield from self._told(event, rng)

    def _told(self, event: Event, rng: Random) -> Iterator[tuple[int, Change]]:
        arrival, end = BEGINNING, event.vs
        for spoken, said in self.manner(event, rng):
            if said != end:
                # Words on one lease keep their order; those on different ones overtake each other.
                arrival = max(arrival, self._arrival(spoken + rng.randrange(self.delay)))
                yield arrival, _change(event, end, said)
                end = said

    def _arrival(self, spoken: int) -> int:
        falls_silent, is_back = self.silence
        return max(is_back if falls_silent <= spoken < is_back else spoken, self.since)


def _change(event: Event, before: int, after: int) -> Change:
    if before == event.vs:
        return Insert(event.payload, event.vs, after)
    return Retract(event.payload, event.vs, before, after)


def _idle_offers(events: Sequence[Event], rng: Random) -> Iterator[Event]:
    """Offers that nobody took up: leases that end where they begin. Each server makes its own."""
    for number in range(round(len(events) * _IDLE_OFFERS)):
        like = rng.choice(events)
        yield Event({**like.payload, "device": f"offer {number:05}"}, like.vs, like.vs)


def _punctuated(said: Sequence[tuple[int, Change]]) -> Iterator[tuple[int, Element]]:
    """With a promise every quarter of an hour: nothing still to be said changes what was before it."""
    ahead = [FOREVER] * (len(said) + 1)
    for at in range(len(said) - 1, -1, -1):
        ahead[at] = min(ahead[at + 1], _sync(said[at][1]))
    promised = due = OPENS
    for (arrival, element), bound in zip(said, ahead[:-1], strict=True):
        if arrival >= due:
            due = arrival - (arrival - OPENS) % _PUNCTUATION + _PUNCTUATION
            if (t := min(bound, arrival)) > promised:
                yield arrival, Cti(t)
                promised = t
        yield arrival, element
    yield FOREVER, Cti(FOREVER)


def _sync(change: Change) -> int:
    return min(change.ve, change.new_ve) if isinstance(change, Retract) else change.vs


def renews(lease: Event, rng: Random) -> Words:
    """A term, and another one whenever half of the last is over."""
    words, end = [(lease.vs, lease.vs + _TERM)], lease.vs + _TERM
    while end < lease.ve:
        words.append((end - _TERM // 2, end + _TERM))
        end += _TERM
    return [*words, _last_word(lease)]


def grants_the_day(lease: Event, rng: Random) -> Words:
    """Until closing time, unless it is given back."""
    return [(lease.vs, CLOSES), _last_word(lease)]


def guesses(lease: Event, rng: Random) -> Words:
    """A guess, and another one when it turns out too short; in the end the truth."""
    spoken, end, words = lease.vs, lease.vs, []
    while end <= lease.ve:
        spoken, end = end, end + rng.randrange(20, 80) * MINUTE
        words.append((spoken, end))
    return [*words, _last_word(lease)]


def _last_word(lease: Event) -> tuple[int, int]:
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
