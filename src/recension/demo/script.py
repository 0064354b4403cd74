"""Which replicas start, die and leave, hour by hour.

fed up to    09    10    11    12    13    14    15    16    17    18
north        |=======================† killed at work
south        |=========================================| cut over: leaves
west                     |=============   silent      |=============
south-2                                          |==================   the other plan
merged       |======================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from recension.api.stream import Stream
from recension.core.batch import EventBatch
from recension.core.errors import RecensionError
from recension.core.events import Event
from recension.core.history import History
from recension.core.ticks import BEGINNING
from recension.demo.leases import HOUR, HOURS, NORTH, OPENS, SOUTH, WEST, clock, leases
from recension.demo.plans import complete_from, first_plan, other_plan
from recension.demo.trace import Trace

CUT_OVER: Final = "south-2"


class ReplicaStage(Protocol):
    """Where it is played: replicas that read feeds, and a merge that reads the replicas."""

    engine: str
    trace: Trace

    def push(self, feed: str, part: EventBatch) -> None:
        """A feed sends something more."""

    def start(self, name: str, plan: Stream, feed: str, from_time: int) -> None:
        """A replica begins to read a feed, from its beginning, and the merge to read the replica."""

    def kill(self, name: str) -> None:
        """A replica is dead at once, whatever it was doing."""

    def detach(self, name: str) -> None:
        """The merge lets a replica go."""

    def input_state(self, name: str) -> str:
        """Does the merge take a replica as joining, joined, leaving or left?"""

    def wait(self) -> None:
        """Until all that run have answered what they were fed, and the merge has read it."""

    def history(self) -> History:
        """The answers that the merge has left."""

    def batch_answer(self, question: Stream, leases: History) -> History:
        """The same question, asked once everything is known."""


@dataclass(frozen=True)
class World:
    """One day, and what the servers report of it."""

    size: int
    seed: int

    @cached_property
    def leases(self) -> list[Event]:
        """What really happened."""
        return leases(self.size, self.seed)

    @cached_property
    def feeds(self) -> Mapping[str, Sequence[EventBatch]]:
        """What each server sends, hour by hour."""
        return {feed.name: feed.parts(self.leases, self.seed) for feed in (NORTH, SOUTH, WEST)}


def play(world: World, stage: ReplicaStage, on_change: Callable[[], None]) -> None:
    """The whole day. ``on_change`` is called whenever something has happened."""
    player = _Player(world, stage)
    stage.trace.begin()
    for hour in range(HOURS):
        stage.trace.hours.append(stage.trace.now())
        player.feed(hour)
        player.act(hour)
        on_change()
        stage.wait()
        on_change()


class _Player:
    def __init__(self, world: World, stage: ReplicaStage) -> None:
        self._world, self._stage, self._feeds = world, stage, world.feeds
        self._dead_feeds: set[str] = set()

    def feed(self, hour: int) -> None:
        """What the servers send in this hour; one that is silent sends nothing at all."""
        for name, parts in self._feeds.items():
            if name not in self._dead_feeds and len(parts[hour]):
                self._stage.push(name, parts[hour])
                fed = self._stage.trace.elements_fed
                fed[name] = fed.get(name, 0) + len(parts[hour])

    def act(self, hour: int) -> None:
        """What happens to the replicas in this hour, just after the servers have sent."""
        match hour:
            case 0:
                self._start("north", first_plan(), "north")
                self._start("south", first_plan(), "south")
            case 2:
                from_time = complete_from(self._world.leases, WEST.since)
                self._start("west", first_plan(), "west", from_time)
            case 4:
                self._kill("north")
            case 5:
                self._stage.trace.add_milestone("west", "its feed falls silent")
            case 6:
                self._start(CUT_OVER, other_plan(), "south")
            case 7:
                self._stage.trace.add_milestone("west", "its feed is back")
                self._cut_over("south", CUT_OVER)

    def _start(self, name: str, plan: Stream, feed: str, from_time: int = BEGINNING) -> None:
        since = "" if from_time == BEGINNING else f", complete from {clock(from_time)} on"
        self._stage.trace.add_milestone(name, f"joins{since}")
        self._stage.start(name, plan, feed, from_time)

    def _kill(self, name: str) -> None:
        self._stage.kill(name)
        self._dead_feeds.add(name)
        self._stage.trace.add_milestone(name, "killed", is_end=True)

    def _cut_over(self, old: str, new: str) -> None:
        if (state := self._stage.input_state(new)) != "joined":
            raise RecensionError(f"{new} cannot take over from {old}: it is {state}")
        self._stage.detach(old)
        self._stage.kill(old)
        self._stage.trace.add_milestone(old, f"leaves: {new} takes over", is_end=True)


def now(hour: int) -> str:
    """The time of the day at the end of an hour."""
    return clock(OPENS + (hour + 1) * HOUR)
