"""AlterLifetime: each event gets a lifetime computed from its own; an empty one drops it.

Source: [TR] Definition 6 and the operators defined from it; rulings A7 (saturation), D2 (empty
lifetimes), D6 (hopping), D7 (deletes); the guide (``extend``, ``clip``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from recension.core.events import Event, Payload
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.intervals import Interval, floor, plus, saturate
from recension.denote.join import keys_match
from recension.denote.lineage import Bases, Basis, Lineage, Region, Seen, Words, identity, region_of
from recension.denote.order import Columns, History

Moment: TypeAlias = Callable[[int, int], int]
Time: TypeAlias = Callable[[Event], int | None]


def alter_lifetime(history: History, start: Moment, end: Moment) -> History:
    """Every event on ``[start(vs, ve), end(vs, ve))``.

    >>> print(*alter_lifetime([Event({"x": 1}, 3, 5)], lambda vs, ve: ve, lambda vs, ve: ve + 10))
    [5, 15) {'x': 1}
    """
    altered = (
        Event(event.payload, saturate(start(event.vs, event.ve)), saturate(end(event.vs, event.ve)))
        for event in history
    )
    return [event for event in altered if event.vs < event.ve]


def with_lifetime(history: History, start: Time, end: Time) -> History:
    """Every event from one time to another, both found from the whole event.

    Without a start it is not there; without an end it is for ever (ruling D11).

    >>> h = [Event({"x": 1}, 3, 5), Event({"x": 2}, 4)]
    >>> print(*with_lifetime(h, lambda e: e.ve if e.ve < FOREVER else None, lambda e: None))
    [5, ∞) {'x': 1}
    """
    found = []
    for event in history:
        vs, ve = start(event), end(event)
        if vs is not None and vs < (until := FOREVER if ve is None else ve):
            found.append(Event(event.payload, vs, until))
    return found


def shift(history: History, delta: int) -> History:
    """Both ends moved by ``delta``."""
    return alter_lifetime(history, lambda vs, ve: plus(vs, delta), lambda vs, ve: plus(ve, delta))


def set_duration(history: History, duration: int) -> History:
    """The moving window: every event lives for ``duration`` from its start."""
    return alter_lifetime(history, lambda vs, ve: vs, lambda vs, ve: plus(vs, duration))


def extend(history: History, delta: int) -> History:
    """The end moved by ``delta``, which may be negative."""
    return alter_lifetime(history, lambda vs, ve: vs, lambda vs, ve: plus(ve, delta))


def hop_lifetime(history: History, size: int, hop: int) -> History:
    """The start moved back to a multiple of ``hop``, then a life of ``size`` (ruling D6)."""
    return alter_lifetime(history, lambda vs, ve: floor(vs, hop), lambda vs, ve: plus(floor(vs, hop), size))


def to_points(history: History) -> History:
    """Every event for the one tick at its start."""
    return set_duration(history, 1)


def inserts(history: History) -> History:
    """Every event from its start, for ever."""
    return alter_lifetime(history, lambda vs, ve: vs, lambda vs, ve: FOREVER)


def deletes(history: History) -> History:
    """Every event from its end, for ever; what never ends gives nothing (ruling D7)."""
    return alter_lifetime(history, lambda vs, ve: ve, lambda vs, ve: FOREVER)


def clip(history: History, by: History, on: Columns = ()) -> History:
    """Every event until the first matching ``by`` event starts after it, if that is before its end.

    A ``by`` event that starts together with it does not clip it: no event ends where it starts.

    >>> print(*clip([Event({"k": 1}, 0, 10)], [Event({"k": 1}, 0), Event({"k": 1}, 4, 5)], on="k"))
    [0, 4) {'k': 1}
    """

    def end(event: Event) -> int:
        starts = (other.vs for other in by if keys_match(event.payload, other.payload, on))
        return min((vs for vs in starts if event.vs < vs < event.ve), default=event.ve)

    return [Event(event.payload, event.vs, end(event)) for event in history]


Back: TypeAlias = Callable[[int, int], Interval]
"""Between which times events touch that come to lie between two times."""


def shift_back(delta: int) -> Back:
    """Where events were that `shift` has moved."""
    return lambda start, end: (plus(start, -delta), plus(end, -delta))


def set_duration_back(duration: int) -> Back:
    """Where events start that live for so long."""
    return lambda start, end: (plus(start, -duration), end)


def extend_back(delta: int) -> Back:
    """Where events were before their ends were moved."""
    return lambda start, end: (min(plus(start, -delta), end), end)


def hop_lifetime_back(size: int, hop: int) -> Back:
    """Where events start that were put on a grid."""
    return lambda start, end: (plus(start, -size), plus(end, hop))


def start_back() -> Back:
    """Where events start that live from there, whenever they end; or from their end."""
    return lambda start, end: (BEGINNING, end)


def anywhere() -> Back:
    """Nothing is known of where events were."""
    return lambda start, end: (BEGINNING, FOREVER)


class ClipLineage(Lineage):
    """What an event that another stream clips rests on."""

    def __init__(
        self, columns: Sequence[Mapping[str, str]], match: Callable[[Payload, Payload], bool]
    ) -> None:
        """``match``: is an event clipped by another?"""
        super().__init__(columns)
        self._match = match

    def reach(self, region: Region) -> list[Region]:
        """What clips an event does so at any time since it began."""
        clipped, by = super().reach(region)
        return [clipped, by.since_ever()]

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        """The event, and what begins where it ends; nothing that begins before."""
        clipped, by = (region_of(event).below(columns) for columns in self.columns)
        near = inputs[1].touching(by)
        kept, ends = Basis(), Basis(absent=[by])
        for one in inputs[0].touching(clipped):
            if identity(Event(one.payload, one.vs, event.ve)) == identity(event) and event.ve <= one.ve:
                found = self._first_clips(one, near)
                if (found[0].vs if found else one.ve) == event.ve:
                    kept.kept.append(one)
                    ends.kept += found
        return [kept, ends]

    def absence(self, region: Region, inputs: Sequence[Seen], output: Seen) -> Bases:
        """Whatever clips an event there goes on to do so."""
        around = self.around(region, output)
        by = self.reach(around)[1]
        others = inputs[1].touching(by)
        ends = Basis(absent=[replace(by, start=region.start)])
        for one in inputs[0].touching(region.below(self.columns[0])):
            ends.kept += self._first_clips(one, others)
        return [Basis(absent=[region.below(self.columns[0])]), ends]

    def _first_clips(self, event: Event, by: History) -> History:
        """What clips the event, all of it."""
        inside = [e for e in by if event.vs < e.vs < event.ve and self._match(event.payload, e.payload)]
        first = min((e.vs for e in inside), default=None)
        return [e for e in inside if e.vs == first]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        ended = f", ended by {words.names(bases[1].kept)}" if bases[1].kept else ", which nothing clipped"
        return f"{words.names(bases[0].kept)}{ended}"
