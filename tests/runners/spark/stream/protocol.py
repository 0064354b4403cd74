"""The writes of a checkpoint as steps of a small model, and all that may happen between them.

What stores and loads state is the product's own code; what Spark does around it is the model:

    offsets/n      before a micro-batch runs; one that is there is taken again
    n+1.changelog  what the tasks of micro-batch n put into the state and removed from it; written at the end
                   of a task under its final name, where a later attempt's replaces an earlier one's
    n+1.zip        all of the state, uploaded by whoever has it, at any time later or never
    history n      the manifest of the history table after micro-batch n; one that is there stays
    part n         the rows of micro-batch n in the changelog, which count once the mark says so
    mark n         the changelog has come so far
    commits/n      after all tables; the next start goes on behind it

A driver may be killed between any two of these. Its executors may live on for a while: they finish their
task and upload what they have. A new driver reads the state from disk: the newest snapshot, and the
changelogs after it, whoever wrote them.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from tests.runners.spark.stream.rehearsal import Memory

from recension.core.errors import RecensionError
from recension.runners.spark.stream.codec import Store

STARTS: Final = 3
WRITES: Final = ("offsets", "state", "history", "part", "mark", "commits")

Run = Callable[[Store, int, int], str]
"""Runs a micro-batch over a state: (state, number, attempt) -> what it answers."""


class Process(NamedTuple):
    """A driver with its executors, or executors whose driver has died."""

    attempt: int
    has_driver: bool
    batch: int
    did: int = 0
    """How many of its `WRITES` it has done for this micro-batch."""
    state: int = -1
    """The state that its executor has, by number; -1 is none: it reads that of the disk."""
    captured: tuple[int, int] | None = None
    """The version and the state that it may still upload."""
    answer: str = ""
    """What its executor has computed for this micro-batch."""


class World(NamedTuple):
    """All that is on disk, and who is at work."""

    offsets: int = -1
    commits: int = -1
    changelogs: tuple[tuple[int, int], ...] = ()
    snapshots: tuple[tuple[int, int], ...] = ()
    history: tuple[str, ...] = ()
    """What each micro-batch has answered, as a table has it."""
    parts: tuple[str, ...] = ()
    marked: int = 0
    """How many parts count."""
    processes: tuple[Process, ...] = ()
    started: int = 0


class Fault(NamedTuple):
    """What is wrong in a world, and how it came to that."""

    reason: str
    steps: tuple[str, ...]


class _Noting(Memory):
    """A store that notes which names were put or removed."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.touched: set[str] = set()

    def put(self, name: str, value: bytes) -> None:
        self.touched.add(name)
        super().put(name, value)

    def remove(self, name: str) -> None:
        self.touched.add(name)
        super().remove(name)


class Protocol:
    """Explores what may become of ``last`` micro-batches."""

    def __init__(self, run: Run, last: int, *, replaces: bool = True) -> None:
        self._run, self._last, self._replaces = run, last, replaces
        self._values: dict[str, bytes] = {}
        self._states: list[Mapping[str, str]] = []
        self._number_of: dict[frozenset[tuple[str, str]], int] = {}
        self._changes: list[tuple[Mapping[str, str], frozenset[str]]] = []
        self._number_of_change: dict[tuple[frozenset[tuple[str, str]], frozenset[str]], int] = {}
        self._runs: dict[tuple[int, int, int], tuple[int, int, str]] = {}
        self._nothing = self._intern({})
        self.expected = self._straight_run()
        self.visited = 0

    @property
    def states(self) -> int:
        """How many states there were, that before the first micro-batch included."""
        return len(self._states)

    def explore(self) -> Fault | None:
        """Look at every world that can be reached; gives the first fault found, nearest to the beginning."""
        first = World()
        came_by: dict[World, tuple[World, str] | None] = {first: None}
        waiting = deque([first])
        while waiting:
            world = waiting.popleft()
            try:
                for step, after in self._steps(world):
                    if after not in came_by:
                        came_by[after] = world, step
                        waiting.append(after)
            except (AssertionError, RecensionError) as why:
                return Fault(f"stuck: {why}", _way_to(world, came_by))
            if any(table != self.expected[: len(table)] for table in (world.history, world.parts)):
                return Fault("wrong answers", _way_to(world, came_by))
        self.visited = len(came_by)
        return None

    def _straight_run(self) -> tuple[str, ...]:
        answers, state = [], self._nothing
        for batch in range(self._last):
            state, _, answer = self._compute(state, batch, 0)
            answers.append(answer)
        return tuple(answers)

    def _steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Each step that may come next, and the world after it."""
        if world.started < STARTS and not any(process.has_driver for process in world.processes):
            fresh = Process(world.started, True, world.commits + 1)
            if fresh.batch < self._last:
                yield "start", world._replace(processes=(*world.processes, fresh), started=world.started + 1)
        for place, process in enumerate(world.processes):
            others = world.processes[:place] + world.processes[place + 1 :]
            for step, after, next_one in self._steps_of(world, process):
                processes = others if next_one is None else (*others, next_one)
                yield f"{step} ({process.attempt})", after._replace(processes=tuple(sorted(processes)))

    def _steps_of(self, world: World, mine: Process) -> Iterator[tuple[str, World, Process | None]]:
        yield "all of it is killed", world, None
        if mine.captured is not None:
            version, state = mine.captured
            snapshots = _put(world.snapshots, version, state, self._replaces)
            yield f"{version}.zip", world._replace(snapshots=snapshots), mine._replace(captured=None)
        if mine.did == WRITES.index("state"):
            yield self._write_state(world, mine)
        if mine.has_driver:
            yield "the driver is killed", world, mine._replace(has_driver=False)
            if mine.batch < self._last and mine.did != WRITES.index("state"):
                yield self._write(WRITES[mine.did], world, mine)

    def _write(self, what: str, world: World, mine: Process) -> tuple[str, World, Process]:
        """What the driver writes: what is there already stays as it is."""
        number, now = mine.batch, mine._replace(did=mine.did + 1)
        match what:
            case "offsets":
                world = world._replace(offsets=max(world.offsets, number))
            case "history" if len(world.history) == number:
                world = world._replace(history=(*world.history, mine.answer))
            case "part" if len(world.parts) == number:
                world = world._replace(parts=(*world.parts, mine.answer))
            case "mark":
                world = world._replace(marked=max(world.marked, number + 1))
            case "commits":
                world, now = world._replace(commits=number), mine._replace(batch=number + 1, did=0)
        return f"{what} {number}", world, now

    def _write_state(self, world: World, mine: Process) -> tuple[str, World, Process]:
        before = mine.state if mine.state >= 0 else self._read_state(world, mine.batch)
        state, change, answer = self._compute(before, mine.batch, mine.attempt)
        version = mine.batch + 1
        changelogs = _put(world.changelogs, version, change, self._replaces)
        now = mine._replace(did=mine.did + 1, state=state, captured=(version, state), answer=answer)
        return f"{version}.changelog", world._replace(changelogs=changelogs), now

    def _read_state(self, world: World, version: int) -> int:
        """What a new process finds on disk."""
        snapshots, changelogs = dict(world.snapshots), dict(world.changelogs)
        newest = max((v for v in snapshots if v <= version), default=0)
        found = dict(self._states[snapshots[newest]]) if newest else {}
        for each in range(newest + 1, version + 1):
            puts, removed = self._changes[changelogs[each]]
            found = {name: value for name, value in found.items() if name not in removed} | dict(puts)
        return self._intern(found)

    def _compute(self, before: int, batch: int, attempt: int) -> tuple[int, int, str]:
        """The state after a micro-batch, what it put and removed, and what it answered."""
        key = before, batch, attempt
        if key not in self._runs:
            store = _Noting({name: self._values[value] for name, value in self._states[before].items()})
            answer = self._run(store, batch, attempt)
            state = {name: self._digest(value) for name, value in store.items()}
            # What is written again as it is counts: another attempt's file may lack it.
            puts = {name: state[name] for name in store.touched if name in state}
            change = self._intern_change(puts, frozenset(store.touched - state.keys()))
            self._runs[key] = self._intern(state), change, answer
        return self._runs[key]

    def _digest(self, value: bytes) -> str:
        name = hashlib.blake2b(value, digest_size=12).hexdigest()
        self._values[name] = value
        return name

    def _intern(self, state: Mapping[str, str]) -> int:
        key = frozenset(state.items())
        if key not in self._number_of:
            self._number_of[key] = len(self._states)
            self._states.append(dict(state))
        return self._number_of[key]

    def _intern_change(self, puts: Mapping[str, str], removed: frozenset[str]) -> int:
        key = frozenset(puts.items()), removed
        if key not in self._number_of_change:
            self._number_of_change[key] = len(self._changes)
            self._changes.append((dict(puts), removed))
        return self._number_of_change[key]


def _put(
    files: tuple[tuple[int, int], ...], version: int, content: int, replaces: bool
) -> tuple[tuple[int, int], ...]:
    there = dict(files)
    if replaces or version not in there:
        there[version] = content
    return tuple(sorted(there.items()))


def _way_to(world: World, came_by: Mapping[World, tuple[World, str] | None]) -> tuple[str, ...]:
    steps: list[str] = []
    while (before := came_by[world]) is not None:
        world, step = before
        steps.append(step)
    return tuple(reversed(steps))
