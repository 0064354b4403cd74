"""AlterLifetime: each event gets a lifetime computed from its own; an empty one drops it.

Source: [TR] Definition 6 and the operators defined from it; rulings A7 (saturation), D2 (empty
lifetimes), D6 (hopping), D7 (deletes); the guide (``extend``, ``clip``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from recension.core.events import Event
from recension.core.ticks import FOREVER
from recension.denote.intervals import floor, plus, saturate
from recension.denote.join import keys_match
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
