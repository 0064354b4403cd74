"""Who comes, dies and goes, hour by hour.

told up to   09    10    11    12    13    14    15    16    17    18
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
from typing import Final

from recension.api.stream import Stream
from recension.core.batch import EventBatch
from recension.core.errors import RecensionError
from recension.core.events import Event
from recension.core.ticks import BEGINNING
from recension.demo.feeds import NORTH, SOUTH, WEST
from recension.demo.leases import HOUR, HOURS, OPENS, clock, leases
from recension.demo.plans import complete_from, first_plan, other_plan
from recension.demo.stage import Stage

CUT_OVER: Final = "south-2"


@dataclass(frozen=True)
class World:
    """One day, and what is told of it."""

    size: int
    seed: int

    @cached_property
    def leases(self) -> list[Event]:
        """What really happened."""
        return leases(self.size, self.seed)

    @cached_property
    def feeds(self) -> Mapping[str, Sequence[EventBatch]]:
        """What each server says, hour by hour."""
        return {feed.name: feed.parts(self.leases, self.seed) for feed in (NORTH, SOUTH, WEST)}


def play(world: World, stage: Stage, see: Callable[[], None]) -> None:
    """The whole day. ``see`` is called whenever something has happened."""
    player = _Player(world, stage)
    stage.trace.begin()
    for hour in range(HOURS):
        stage.trace.hours.append(stage.trace.now())
        player.tell(hour)
        player.act(hour)
        see()
        stage.settle()
        see()


class _Player:
    def __init__(self, world: World, stage: Stage) -> None:
        self._world, self._stage, self._feeds = world, stage, world.feeds
        self._dead_feeds: set[str] = set()

    def tell(self, hour: int) -> None:
        """What the servers say in this hour; one that is silent says nothing at all."""
        for name, parts in self._feeds.items():
            if name not in self._dead_feeds and len(parts[hour]):
                self._stage.tell(name, parts[hour])
                told = self._stage.trace.told
                told[name] = told.get(name, 0) + len(parts[hour])

    def act(self, hour: int) -> None:
        """What happens to the replicas in this hour, just after the servers have spoken."""
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
                self._stage.trace.mark("west", "its feed falls silent")
            case 6:
                self._start(CUT_OVER, other_plan(), "south")
            case 7:
                self._stage.trace.mark("west", "its feed is back")
                self._cut_over("south", CUT_OVER)

    def _start(self, name: str, plan: Stream, feed: str, from_time: int = BEGINNING) -> None:
        since = "" if from_time == BEGINNING else f", complete from {clock(from_time)} on"
        self._stage.trace.mark(name, f"joins{since}")
        self._stage.start(name, plan, feed, from_time)

    def _kill(self, name: str) -> None:
        self._stage.kill(name)
        self._dead_feeds.add(name)
        self._stage.trace.mark(name, "killed", is_end=True)

    def _cut_over(self, old: str, new: str) -> None:
        if (state := self._stage.state_of(new)) != "joined":
            raise RecensionError(f"{new} cannot take over from {old}: it is {state}")
        self._stage.leave(old)
        self._stage.kill(old)
        self._stage.trace.mark(old, f"leaves: {new} takes over", is_end=True)


def now(hour: int) -> str:
    """The time of the day at the end of an hour."""
    return clock(OPENS + (hour + 1) * HOUR)
