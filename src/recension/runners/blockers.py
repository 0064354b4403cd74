"""Who an answer waits for: the input whose CTI holds back that of a step, followed down to its source.

    board ── join ── trades   cti 90
               └──── calib    no cti yet        board waits for calib

At a step of several inputs that is the one whose CTI is least; at a merge of replicas, which goes by the
furthest, that one; at a step that takes its CTIs from another stream, that stream. A table that follows the
streams it is joined with waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from recension.core.ticks import BEGINNING, FOREVER
from recension.core.time_kind import AWARE, TimeKind, describe_time
from recension.lowering import PhysicalPlan
from recension.operators.lmerge.merge import LogicalMerge
from recension.plan.consistency import AdvanceTime, ByClock
from recension.plan.node import Node
from recension.plan.source import Source, Table


@dataclass(frozen=True, slots=True)
class Blocker:
    """An input that an answer waits for."""

    source: str
    partition: str | None
    """Of an input with partitions: the one that the others wait for, or how many have yet to speak."""
    cti: int
    """Where it stands: what is later can still change."""
    since: int | None
    """When it got there, by the clock of the session; None where that is not known."""
    remedy: str
    """What would free the answer."""

    @property
    def name(self) -> str:
        """The input, and its partition."""
        if self.partition is None:
            return self.source
        is_number = self.partition.endswith(WAITS_TO_SPEAK)
        return f"{self.source}, {self.partition if is_number else f'partition {self.partition}'}"

    def describe(self, kind: TimeKind) -> str:
        """All of it in one line."""
        stands = "no cti yet" if self.cti == BEGINNING else f"cti {describe_time(self.cti, kind)}"
        since = "" if self.since is None else f", since {describe_time(self.since, AWARE)}"
        return f"waits for {self.name}: {stands}{since}; {self.remedy}"


WAITS_TO_SPEAK: Final = " more to speak"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a source is, or a step that makes CTIs for its partitions."""

    cti: int
    since: int | None = None
    partition: str | None = None
    follows: Sequence[int] = ()
    """Of a table that may be read again: the vertices whose least CTI it follows."""


class StandingSince:
    """When the CTI of each source got where it is, by the clock, which is read only if one has moved."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def note(self, source: str, cti: int, moment: Callable[[], int | None]) -> None:
        """A source stands there now."""
        known = self._known.get(source)
        if known is None or known[0] != cti:
            self._known[source] = (cti, moment())

    def since(self, source: str, cti: int) -> int | None:
        """When a source got there; None if it was not seen, as after a restore."""
        known = self._known.get(source)
        return known[1] if known is not None and known[0] == cti else None


class BlockerFinder:
    """Finds them in one plan, as it stands; ``progress`` is of sources and of steps that go by partitions."""

    def __init__(self, plan: PhysicalPlan, progress: Mapping[int, Progress]) -> None:
        self._plan, self._progress = plan, progress
        self._nodes = {number: node for node, number in plan.numbers.items()}
        self._names = {number: name for name, number in plan.source_vertices.items()}

    def find(self, vertex: int) -> list[Blocker]:
        """Those that hold back a vertex: several, if their CTIs are equal; none, if nothing more can come."""
        return [] if self._cti(vertex) == FOREVER else list(dict.fromkeys(self._below(vertex, frozenset())))

    def _cti(self, vertex: int) -> int:
        if vertex in self._progress:
            return self._progress[vertex].cti
        operator = self._plan.vertices[vertex].operator
        return BEGINNING if operator is None else operator.out_cti

    def _below(self, vertex: int, seen: frozenset[int]) -> list[Blocker]:
        if vertex in seen:
            return []
        seen |= {vertex}
        if vertex in self._names:
            return self._blocking_source(vertex, seen)
        found = [one for i in self._held_by(vertex) for one in self._below(i, seen)]
        node = self._nodes.get(vertex)
        return [self._above(one, vertex) for one in found] if isinstance(node, AdvanceTime) else found

    def _held_by(self, vertex: int) -> list[int]:
        """The inputs of a step that hold back its CTI."""
        one, node = self._plan.vertices[vertex], self._nodes.get(vertex)
        inputs = [i for i in one.inputs if i >= 0]
        if isinstance(node, ByClock):
            return [inputs[node.ports.index("clock")]]
        choose: Callable[[list[int]], int] = min
        if isinstance(one.operator, LogicalMerge):
            states = one.operator.states()
            joined = [i for i, state in zip(one.inputs, states, strict=False) if state == "joined"]
            inputs, choose = joined or inputs, max
        if not inputs:
            return []
        held = choose([self._cti(i) for i in inputs])
        return [i for i in inputs if self._cti(i) == held]

    def _blocking_source(self, vertex: int, seen: frozenset[int]) -> list[Blocker]:
        progress, name = self._progress[vertex], self._names[vertex]
        if progress.cti == FOREVER:
            return []
        if progress.follows:
            least = min(self._cti(i) for i in progress.follows)
            behind = [i for i in progress.follows if self._cti(i) == least]
            return [one for i in behind for one in self._below(i, seen)]
        remedy = describe_remedy(self._plan.sources[name], progress.partition)
        return [Blocker(name, progress.partition, progress.cti, progress.since, remedy)]

    def _above(self, blocker: Blocker, vertex: int) -> Blocker:
        """The same above a step that makes CTIs of rows: how far it has got, and that rows move it."""
        reached = max(blocker.cti, self._cti(vertex))
        progress = self._progress.get(vertex)
        partition = blocker.partition if progress is None else progress.partition
        since = blocker.since if reached == blocker.cti or progress is None else progress.since
        remedy = f"later rows move it, or session.advance({blocker.source!r}, t)"
        return replace(blocker, cti=reached, partition=partition, since=since, remedy=remedy)


def describe_remedy(source: Node, partition: str | None) -> str:
    """What would free an answer that waits for a source."""
    assert isinstance(source, Source)
    name = repr(source.name)
    if isinstance(source, Table):
        return f"give the table: session.push({name}, rows)"
    if partition is None:
        return f"advance it: session.advance({name}, t), send ctis, or put .advance_time(...) on it"
    if partition.endswith(WAITS_TO_SPEAK):
        return f"session.advance({name}, t) counts for all partitions, or declare idle="
    return f"advance it: session.advance({name}, t, partition=...), or declare idle="
