"""What `due` shows after every step: of the events that there are, those whose time has come.

    stream      |--- A ---)  |--- B ---)
    time                 ^               A is shown, B is not yet there for anybody

A step brings elements of the stream and perhaps of the stream that tells the time, then the CTIs of both,
and perhaps the time of the clock. What is shown follows from the history and the time as they are after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.order import History

By: TypeAlias = Literal["cti", "other", "clock"]


@dataclass
class DueStep:
    """What comes in one step."""

    stream: Sequence[Element] = ()
    other: Sequence[Element] = ()
    """Of the stream that tells the time."""
    clock: int | None = None


def due(history: History, until: int) -> History:
    """The events that start before ``until``.

    >>> [str(event) for event in due([Event({}, 3, 9), Event({}, 5, 9)], 5)]
    ['[3, 9) {}']
    """
    return [event for event in history if event.vs < until]


def shown_after(steps: Iterable[DueStep], by: By, ahead: int | None = None) -> Iterator[History]:
    """The history that is shown after each step."""
    history, time = History(), _Time(ahead)
    own = told = clock = BEGINNING
    for step in steps:
        history = _changed(history, step.stream)
        own = max([own, *_ctis(step.stream)])
        time.take(step.other)
        told = max(told, time.until)
        clock = clock if step.clock is None else max(clock, step.clock + 1)
        until = {"cti": own, "other": told, "clock": clock}[by]
        yield due(history, FOREVER if own == FOREVER else until)


@dataclass
class _Time:
    """How far a stream has got, by its starts and CTIs."""

    ahead: int | None
    until: int = BEGINNING
    """What starts before is due."""
    waiting: list[int] = field(default_factory=list)
    """Starts far ahead of all others."""

    def take(self, elements: Sequence[Element]) -> None:
        """Rows first, then CTIs."""
        starts = [e.vs for e in elements if isinstance(e, Insert)]
        if self.ahead is None:
            self._reach(starts)
        else:
            gone = [e.vs for e in elements if isinstance(e, Retract) and e.new_ve == e.vs]
            self._take_near(starts, gone, self.ahead)
        self._reach(_ctis(elements))
        self.waiting = [start for start in self.waiting if start >= self.until]

    def _reach(self, times: Iterable[int]) -> None:
        for time in times:
            self.until = max(self.until, time + 1 if time < FOREVER else FOREVER)

    def _take_near(self, starts: list[int], gone: list[int], ahead: int) -> None:
        """Rows that come move time if they are near it, or near another row that is not gone."""
        there, fresh = [*self.waiting, *starts], list(starts)
        for start in gone:
            for rows in (there, fresh):
                if start in rows:
                    rows.remove(start)
        near = [start for start in fresh if self.until > BEGINNING and start <= self.until - 1 + ahead]
        for at, start in enumerate(there):
            others = there[:at] + there[at + 1 :]
            if any(abs(start - other) <= ahead for other in others):
                near.append(start)
        self._reach(near)
        self.waiting = there


def _ctis(elements: Sequence[Element]) -> list[int]:
    return [element.t for element in elements if isinstance(element, Cti)]


def _changed(history: History, elements: Sequence[Element]) -> History:
    """The history with inserts and retractions applied."""
    there = list(history)
    for element in elements:
        if isinstance(element, Retract):
            there.remove(Event(element.payload, element.vs, element.ve))
            if element.new_ve > element.vs:
                there.append(Event(element.payload, element.vs, element.new_ve))
        elif isinstance(element, Insert):
            there.append(Event(element.payload, element.vs, element.ve))
    return there
