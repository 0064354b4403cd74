"""Lineage: what an answer rests on, asked of each operator beside what it means.

An answer rests on events that are there and on events that are not. So a step is asked two questions:

- *presence*: which events of its inputs must stay for an event of its output to stay;
- *absence*: what must stay, or stay away, for nothing new to appear in a region of its output.

The answers are events to keep, and regions of the inputs in which nothing new may appear. The contract: an
input that has at least the kept events, and in the regions no others than it has now, gives an output that
still has the event, or that has nothing new in the region. So the answers compose from step to step down to
the sources. There nothing appears when events are removed, and the events kept are those that are named.

Equal events cannot be told apart: to keep one is to keep all its copies.

A third question bounds the work. *Reach*: where an input has to be known for the output to be known in a
region. Events that stick out of a region may be cut off there, unless the step `is_whole`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeAlias

from recension.core.events import Event
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.intervals import Interval, plus
from recension.denote.order import History, Key, key_of, value_order

Columns: TypeAlias = Mapping[str, str]
"""Columns of the output, each with the column of an input that holds its value."""


class Words(Protocol):
    """How a step's events are named to people."""

    def names(self, events: History) -> str:
        """Some events in a few words, such as ``ann, bob``."""

    def count(self, port: int, events: History, what: str = "event") -> str:
        """How many events of an input, such as ``3 leases``."""

    def lifetime(self, event: Event) -> str:
        """When an event lives, such as ``[9, 10)``."""


@dataclass(frozen=True)
class Region:
    """The events that overlap or meet a lifetime, and have these values in these columns."""

    start: int = BEGINNING
    end: int = FOREVER
    where: tuple[tuple[str, Any], ...] = ()

    def touches(self, event: Event) -> bool:
        """Is the event in it?

        >>> Region(3, 5, (("k", 1),)).touches(Event({"k": 1}, 5, 9))
        True
        """
        is_near = event.vs <= self.end and event.ve >= self.start
        return is_near and all(value_order(event.payload[name]) == value_order(v) for name, v in self.where)

    def covers(self, other: Region) -> bool:
        """Is everything in the other in this one, too?"""
        is_within = self.start <= other.start and other.end <= self.end
        return is_within and self._conditions() <= other._conditions()

    def hull(self, other: Region | None) -> Region:
        """The least region that covers both."""
        if other is None:
            return self
        common = self._conditions() & other._conditions()
        where = tuple((name, v) for name, v in self.where if (name, value_order(v)) in common)
        return Region(min(self.start, other.start), max(self.end, other.end), where)

    def around(self, events: Sequence[Event]) -> Region:
        """The same for the time of these events as well."""
        start = min((event.vs for event in events), default=self.start)
        end = max((event.ve for event in events), default=self.end)
        return replace(self, start=min(self.start, start), end=max(self.end, end))

    def below(self, columns: Columns) -> Region:
        """The region of an input that has these columns; what is said of others is not known there."""
        return replace(self, where=tuple((columns[name], v) for name, v in self.where if name in columns))

    def stretch(self, before: int, after: int) -> Region:
        """The same, longer at both ends."""
        return replace(self, start=plus(self.start, -before), end=plus(self.end, after))

    def since_ever(self) -> Region:
        """The same, without a start."""
        return replace(self, start=BEGINNING)

    def for_ever(self) -> Region:
        """The same, at all times."""
        return replace(self, start=BEGINNING, end=FOREVER)

    def _conditions(self) -> set[tuple[str, Key]]:
        return {(name, value_order(v)) for name, v in self.where}


def region_of(event: Event) -> Region:
    """Where an event is."""
    return Region(event.vs, event.ve, tuple(event.payload.items()))


def identity(event: Event) -> Key:
    """Equal for events that cannot be told apart, in whatever order their columns are written."""
    names = sorted(event.payload)
    return (event.vs, event.ve, tuple(names), key_of(event.payload, names))


class Seen(Protocol):
    """A history of which parts can be looked at."""

    def touching(self, region: Region) -> History:
        """The events in a region."""

    def find(self, region: Region) -> History:
        """The same as far as is known: enough to find what an event was made of by a step that is whole."""


@dataclass
class Basis:
    """What something rests on in one input: events that must stay, regions where nothing may appear."""

    kept: History = field(default_factory=list)
    absent: list[Region] = field(default_factory=list)


Bases: TypeAlias = list[Basis]
"""One for each input."""


class Lineage:
    """What the answers of one step rest on.

    ``columns``: of each input, those on which events that differ do not affect each other. As it stands, all
    events within reach are named: right for every step of which `reach` is right.
    """

    is_whole: ClassVar[bool] = False
    """Is an event of the output known if those of the inputs are that it touches, wherever it ends?"""

    def __init__(self, columns: Sequence[Columns]) -> None:
        self.columns = list(columns)

    def reach(self, region: Region) -> list[Region]:
        """Of each input, where it must be known for the output to be known in the region."""
        return [region.below(columns) for columns in self.columns]

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        """What must stay, or stay away, for the event to stay in the output."""
        return self.everything(region_of(event), inputs)

    def absence(self, region: Region, inputs: Sequence[Seen], output: Seen) -> Bases:
        """What must stay, or stay away, for nothing new to appear in the region of the output."""
        return self.everything(self.around(region, output), inputs)

    def around(self, region: Region, output: Seen) -> Region:
        """The region and all that is there now, of which something else may become what the region is about.

        Only the columns that tell events of the inputs apart also tell apart what can become of them: a sum
        may be another with fewer events.
        """
        names = {name for columns in self.columns for name in columns}
        wide = replace(region, where=tuple((name, v) for name, v in region.where if name in names))
        return wide.around(output.touching(wide))

    def everything(self, region: Region, inputs: Sequence[Seen]) -> Bases:
        """All that is within reach."""
        return [
            Basis(seen.touching(there), [there])
            for seen, there in zip(inputs, self.reach(region), strict=True)
        ]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        """What the step did, in its own words."""
        return "made of " + list_inputs(bases, words)


def list_inputs(bases: Bases, words: Words) -> str:
    """The events of all inputs."""
    named = [
        f"{words.count(port, basis.kept)}: {words.names(basis.kept)}"
        for port, basis in enumerate(bases)
        if basis.kept
    ]
    return "; ".join(named) or "no events"


class EachEvent(Lineage):
    """A step that makes of each event one other or none, whatever else there is.

    ``image`` gives for each event what becomes of it. ``back`` says where events are that come to lie between
    two times.
    """

    is_whole = True

    def __init__(
        self,
        columns: Columns,
        image: Callable[[History], Sequence[Event | None]],
        back: Callable[[int, int], Interval] = lambda start, end: (start, end),
    ) -> None:
        super().__init__([columns])
        self._image, self._back = image, back

    def reach(self, region: Region) -> list[Region]:
        start, end = self._back(region.start, region.end)
        return [replace(region.below(self.columns[0]), start=start, end=end)]

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        """The events that become it."""
        there = inputs[0].find(self.reach(region_of(event))[0])
        wanted = identity(event)
        made = self._image(there)
        return [
            Basis([e for e, o in zip(there, made, strict=True) if o is not None and identity(o) == wanted])
        ]

    def absence(self, region: Region, inputs: Sequence[Seen], output: Seen) -> Bases:
        """Nothing new comes of nothing new."""
        return [Basis(absent=self.reach(region))]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        made = bases[0].kept
        times = words.lifetime(made[0]) if made else ""
        return f"made of {times} {words.names(made)}"


class EqualEvents(Lineage):
    """A step whose output has the events of its inputs as they are: a union, a merge, a wait for order."""

    is_whole = True

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        wanted, reach = identity(event), self.reach(region_of(event))
        return [
            Basis([e for e in seen.find(there) if identity(e) == wanted])
            for seen, there in zip(inputs, reach, strict=True)
        ]

    def absence(self, region: Region, inputs: Sequence[Seen], output: Seen) -> Bases:
        return [Basis(absent=[there]) for there in self.reach(region)]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        return "passed on as it is"
