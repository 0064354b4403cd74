"""Beliefs: for each event of a series of histories, from which to which of them it is there."""

from __future__ import annotations

from collections.abc import Sequence

from recension.core.events import Event
from recension.denote.order import History, Key, event_order


def beliefs(versions: Sequence[tuple[int, History]]) -> list[tuple[Event, int, int | None]]:
    """Each event with the time of the history in which it appears, and of that in which it is gone.

    Of equal events, the one that came first goes first.

    >>> a = Event({"k": "a"}, 0, 5)
    >>> [(str(e), since, until) for e, since, until in beliefs([(10, [a]), (20, [a, a]), (30, [a])])]
    [("[0, 5) {'k': 'a'}", 10, 30), ("[0, 5) {'k': 'a'}", 20, None)]
    """
    held: dict[Key, list[tuple[Event, int]]] = {}
    found: list[tuple[Event, int, int | None]] = []
    for time, history in versions:
        there: dict[Key, list[Event]] = {}
        for event in history:
            there.setdefault(event_order(event), []).append(event)
        for key in {*held, *there}:
            before, now = held.get(key, []), there.get(key, [])
            gone = max(len(before) - len(now), 0)
            found += [(event, since, time) for event, since in before[:gone]]
            held[key] = before[gone:] + [(event, time) for event in now[len(before) :]]
    return [*found, *((event, since, None) for copies in held.values() for event, since in copies)]
