"""What all logical merges have in common: inputs that come and go, and one output without repeats or gaps.

A stream that joins with a time ``t`` is complete for every event that ends at ``t`` or later. Its stables
have no effect on the output until the output's own stable has reached ``t`` (rulings 39–41).

Source      Physically Independent Stream Merging, §III-B, §V-B and §V-D; rulings 39–47.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, concat, new_end, take_rows
from recension.core.errors import RecensionError, StreamError
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.time_kind import kind_in_messages
from recension.operators.base import Chunks, Operator, Orphans, Output
from recension.operators.changes import changes, net_changes
from recension.operators.lmerge.contradictions import Contradictions, Doubts

OUT: Final = -1
"""The output, where ports are named."""
NONE: Final = BEGINNING
"""The end of an event that is not there."""

State: TypeAlias = Literal["joining", "joined", "leaving", "left"]


@dataclass(slots=True)
class MergeInput:
    """One input, past or present. Numbers are never used again (ruling 44)."""

    since: int = BEGINNING
    stable: int = BEGINNING
    state: State = "joined"

    @property
    def is_live(self) -> bool:
        """Has it not left?"""
        return self.state in ("joining", "joined")


class Inputs:
    """All inputs by port."""

    def __init__(self, ports: int) -> None:
        self._all = [MergeInput() for _ in range(ports)]

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, port: int) -> MergeInput:
        return self._all[port]

    def attach(self, since: int) -> int:
        """A new input that is complete from ``since`` on; its port."""
        self._all.append(MergeInput(since, state="joining"))
        return len(self._all) - 1

    def set_complete_from(self, port: int, since: int) -> None:
        """An input that is there from the beginning, but complete only from ``since`` on."""
        if since > BEGINNING:
            self._all[port] = MergeInput(since, state="joining")

    def detach(self, port: int) -> None:
        """An input leaves; what it sends from now on is ignored."""
        if not self._all[port].is_live:
            raise RecensionError("merge: this input has left already")
        self._all[port].state = "leaving"

    def mark_left(self) -> None:
        """The output's stable has advanced: what is shown no longer depends on inputs that are leaving."""
        for one in self._all:
            if one.state == "leaving":
                one.state = "left"

    def note(self, port: int, t: int) -> None:
        """A stable of an input: nothing before ``t`` changes there any more."""
        self._all[port].stable = max(self._all[port].stable, t)

    def join(self, reached: int) -> list[int]:
        """Let inputs join whose time the output has reached; their ports, in order."""
        due = [port for port, one in enumerate(self._all) if one.state == "joining" and one.since <= reached]
        for port in due:
            self._all[port].state = "joined"
        return due

    def live_ports(self) -> list[int]:
        """The ports of inputs that have not left."""
        return [port for port, one in enumerate(self._all) if one.is_live]

    def joined_ports(self) -> list[int]:
        """The ports of inputs that have joined."""
        return [port for port, one in enumerate(self._all) if one.state == "joined"]

    def find_leader(self) -> tuple[int, int] | None:
        """Of the joined inputs the one with the greatest stable, the first of equal ones, and that stable."""
        joined = self.joined_ports()
        if not joined:
            return None
        port = max(joined, key=lambda port: (self._all[port].stable, -port))
        return port, self._all[port].stable

    def states(self) -> list[State]:
        """The state of each input by port."""
        return [one.state for one in self._all]

    def snapshot(self) -> pa.Table:
        """All inputs."""
        kinds = [("since", pa.int64()), ("stable", pa.int64()), ("state", pa.string())]
        return pa.Table.from_pylist([asdict(one) for one in self._all], pa.schema(kinds))

    def restore(self, table: pa.Table) -> None:
        """Become the inputs that `snapshot` gave."""
        self._all = [MergeInput(**row) for row in table.to_pylist()]


class CaseMismatchError(StreamError):
    """An element that the case a merge relies on does not allow; nothing of its batch has been taken in."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Events that a port, or the output, has and that may still change."""

    port: int
    events: EventBatch


Holdings: TypeAlias = Iterator[Holding]


class LogicalMerge(Operator):
    """Ports can be added and taken away while it runs."""

    def __init__(self, schema: pa.Schema, ports: int) -> None:
        super().__init__(schema)
        self.inputs = Inputs(ports)
        self.contradictions = Contradictions()
        # Are inputs told what is final, so that they need not send it?
        self.sends_feedback = False
        self._heard = BEGINNING

    @property
    def anomalies(self) -> int:
        """How often an input contradicted what is final."""
        return self.contradictions.by_port.total()

    def take_warnings(self) -> list[str]:
        return self.contradictions.take_warnings()

    def least_end(self, port: int) -> int:
        """The least end of which a joined input has to tell."""
        return max(self.inputs[port].since, self.out_cti if self.sends_feedback else self._heard)

    def on_cti(self, port: int, t: int) -> Output:
        self.inputs.note(port, t)
        return self.advance()

    def attach(self, since: int) -> Output:
        """One more input, which is complete for every event that ends at ``since`` or later."""
        port = self.inputs.attach(since)
        self.on_attach(port)
        return self.advance()

    def detach(self, port: int) -> Output:
        """An input leaves: what it sends from now on is ignored, and what only it had is not settled."""
        self.inputs.detach(port)
        return self.on_detach(port)

    @abstractmethod
    def advance(self) -> Output:
        """Let inputs join whose time has come, and emit what their stables allow."""

    def ends_with(self, ports: Collection[int], inputs: int) -> bool:
        """The input that has come furthest decides."""
        return not set(ports).isdisjoint(self.inputs.joined_ports())

    def is_endless_after(self, ports: Collection[int]) -> bool:
        """What an input holds when it ends is what there is."""
        return any(map(self.holds_endless, set(ports).intersection(self.inputs.joined_ports())))

    def holds_endless(self, port: int) -> bool:
        """Does an input have an event that never ends, as far as is known?"""
        held = (one.events for one in self.open_events_by_port() if one.port == port)
        return any(bool((new_end(events) == FOREVER).any()) for events in held)

    def on_attach(self, port: int) -> None:
        """Make room for one more input."""

    def on_detach(self, port: int) -> Output:
        """Forget what an input has sent."""
        return Output(self._nothing, None)

    def orphans(self, port: int) -> Orphans:
        return "take"

    def open_events_by_port(self) -> Holdings:
        """What a more general case must know to go on from here: the open events of inputs and output."""
        yield from ()

    def seed(self, holding: Holding) -> None:
        """Take over what a less general case knew; asked only of R4, to which merges fall back."""
        raise NotImplementedError

    def states(self) -> list[State]:
        """Whether each input is joining, has joined, is leaving or has left."""
        return self.inputs.states()

    @property
    def is_halted(self) -> bool:
        """Has every input that could move the output left, while others wait for it to move? (ruling 45)"""
        return not self.inputs.joined_ports() and bool(self.inputs.live_ports())

    def lagging_ports(self) -> list[int]:
        """The inputs that are behind the output: feedback is for them."""
        return [port for port in self.inputs.live_ports() if self.inputs[port].stable < self.out_cti]

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """What a reader does not want is not wanted of any input either."""
        self._heard = max(self._heard, t)
        return [t] * len(self.inputs)

    def snapshot_state(self) -> Chunks:
        heard = pa.table({"t": pa.array([self._heard], pa.int64())})
        anomalies = self.contradictions.snapshot()
        return {"inputs": self.inputs.snapshot(), "anomalies": anomalies, "heard": heard}

    def restore_state(self, chunks: Chunks) -> None:
        self.inputs.restore(chunks["inputs"])
        self.contradictions.restore(chunks["anomalies"])
        # State of an earlier version has none.
        self._heard = chunks["heard"]["t"][0].as_py() if "heard" in chunks else BEGINNING


class IndexedMerge(LogicalMerge):
    """A merge with an index of what may still change, over which the leading input's stables pass."""

    @property
    def leader_stable(self) -> int:
        """How far the leading input has come, by what has passed over the index."""
        return self.out_cti

    @abstractmethod
    def pass_over(self, leader: int, t: int) -> list[EventBatch]:
        """What must be shown before a stable of the leading input; `leader_stable` is ``t`` afterwards."""

    def __init__(self, schema: pa.Schema, ports: int) -> None:
        super().__init__(schema, ports)
        self._doubts = Doubts()

    def advance(self) -> Output:
        """A stable may let others join, whose stables may be further (ruling 41)."""
        answer = self._advance()
        self._decide_doubts()
        return answer

    def _decide_doubts(self) -> None:
        """Of what inputs have that the output forgot, what their stables show that they mean."""
        if not len(self._doubts):
            return
        ports = range(len(self.inputs))
        joined = set(self.inputs.joined_ports())
        stables = [self.inputs[port].stable if port in joined else BEGINNING for port in ports]
        for doubt in self._doubts.pop_due(stables, [self.least_end(port) for port in ports]):
            self.contradictions.note(doubt.port, 1, doubt.describe)

    def on_detach(self, port: int) -> Output:
        self._doubts.drop(port)
        return super().on_detach(port)

    def snapshot_state(self) -> Chunks:
        return {**super().snapshot_state(), **self._doubts.snapshot(self.schema)}

    def restore_state(self, chunks: Chunks) -> None:
        super().restore_state(chunks)
        self._doubts.restore(chunks, self.schema)

    def _advance(self) -> Output:
        shown: list[EventBatch] = []
        before, passes = self.out_cti, 0
        while True:
            self.inputs.join(self.out_cti)
            furthest = self.inputs.find_leader()
            if furthest is None or furthest[1] <= self.leader_stable:
                break
            shown += self.pass_over(*furthest)
            passes += 1
        if self.out_cti > before:
            self.inputs.mark_left()
        shown = [batch for batch in shown if len(batch)]
        cti = self.out_cti if self.out_cti > before else None
        whole = concat(shown) if shown else self._nothing
        # A key is adjusted once for a stable (ruling 38), however many inputs it let in.
        return Output(_net_batch(whole) if passes > 1 else whole, cti)


def _net_batch(batch: EventBatch) -> EventBatch:
    """What the batch does to each event in the end."""
    net = net_changes(batch)
    net = net.take(net.old != net.new)
    return changes(net.vs, net.old, net.new, take_rows(batch.payload, net.row))


def port_column(port: int) -> str:
    """The column of an input, or of the output, in an index."""
    return "out" if port == OUT else f"in {port}"


def is_frozen(ve: Ticks, t: int) -> Mask:
    """Which ends are final after a stable: those before it; at the end of time all (ruling 1)."""
    return ve < t if t < FOREVER else np.ones(len(ve), np.bool_)


def take_ascending(payload: pa.RecordBatch, rows: Index) -> pa.RecordBatch:
    """Payload rows in ascending order, without copying where they are neighbours."""
    if payload.num_columns and len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        return payload.slice(int(rows[0]), len(rows))
    return take_rows(payload, rows)


def mismatch_error(batch: EventBatch, row: int, case: str, reason: str) -> CaseMismatchError:
    """The error that names an element."""
    element = batch.slice(row, row + 1).to_elements(kind_in_messages())[0]
    advice = "use a more general case (R4), or on_mismatch='fallback'"
    return CaseMismatchError(f"merge {case}: {reason}: {element}; {advice}")
