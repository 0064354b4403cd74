"""What all logical merges have in common: inputs that come and go, and one output that neither repeats nor
omits.

Source      Physically Independent Stream Merging, §III-B, §V-B and §V-D; rulings 39–47.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, concat, take_rows
from recension.core.errors import StreamError
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.time_kind import kind_in_messages
from recension.operators.base import Chunks, Operator, Orphans, Output, changes
from recension.operators.lmerge.inputs import Inputs, State
from recension.operators.state.net_changes import net_changes

OUT: Final = -1
"""The output, where ports are named."""
NONE: Final = BEGINNING
"""The end of an event that is not there."""


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
        self.anomalies = 0

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
        """Let inputs join whose time has come, and put out what their stables allow."""

    def on_attach(self, port: int) -> None:
        """Make room for one more input."""

    def on_detach(self, port: int) -> Output:
        """Forget what an input has sent."""
        return Output(self._nothing, None)

    def orphans(self, port: int) -> Orphans:
        return "take"

    def holdings(self) -> Holdings:
        """What a stronger case must know to go on from here: every input's and the output's open events."""
        yield from ()

    def seed(self, holding: Holding) -> None:
        """Take over what a weaker case knew; asked only of R4, the case that merges fall back to."""
        raise NotImplementedError

    def states(self) -> list[State]:
        """Whether each input is joining, has joined, is leaving or has left."""
        return self.inputs.states()

    @property
    def is_halted(self) -> bool:
        """Has every input that could move the output left, while others wait for it to move? (ruling 45)"""
        return not self.inputs.joined() and bool(self.inputs.live())

    def lagging(self) -> list[int]:
        """The inputs that are behind the output: feedback is for them."""
        return [port for port in self.inputs.live() if self.inputs[port].stable < self.out_cti]

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """What a reader does not want is not wanted of any input either."""
        return [t] * len(self.inputs)

    def snapshot_state(self) -> Chunks:
        return {"inputs": self.inputs.snapshot(), "anomalies": pa.table({"count": [self.anomalies]})}

    def restore_state(self, chunks: Chunks) -> None:
        self.inputs.restore(chunks["inputs"])
        self.anomalies = chunks["anomalies"]["count"][0].as_py()


class IndexedMerge(LogicalMerge):
    """A merge with an index of what may still change, over which the leading input's stables pass."""

    @property
    def reached(self) -> int:
        """How far the leading input has come, by what has passed over the index."""
        return self.out_cti

    @abstractmethod
    def pass_over(self, leader: int, t: int) -> list[EventBatch]:
        """What must be shown before a stable of the leading input; `reached` is ``t`` afterwards."""

    def on_cti(self, port: int, t: int) -> Output:
        self.inputs.note(port, t)
        return self.advance()

    def advance(self) -> Output:
        """A stable may let others join, whose stables may be further (ruling 41)."""
        shown: list[EventBatch] = []
        before, passes = self.out_cti, 0
        while True:
            self.inputs.join(self.out_cti)
            furthest = self.inputs.furthest()
            if furthest is None or furthest[1] <= self.reached:
                break
            shown += self.pass_over(*furthest)
            passes += 1
        if self.out_cti > before:
            self.inputs.bid_farewell()
        shown = [batch for batch in shown if len(batch)]
        cti = self.out_cti if self.out_cti > before else None
        whole = concat(shown) if shown else self._nothing
        # A key is adjusted once for a stable (ruling 38), however many inputs it let in.
        return Output(_net(whole) if passes > 1 else whole, cti)


def _net(batch: EventBatch) -> EventBatch:
    """What the batch does to each event in the end."""
    net = net_changes(batch)
    net = net.take(net.old != net.new)
    return changes(net.vs, net.old, net.new, take_rows(batch.payload, net.row))


def is_frozen(ve: Ticks, t: int) -> Mask:
    """Which ends are before a stable for good: all of them after the last one (ruling 1)."""
    return ve < t if t < FOREVER else np.ones(len(ve), np.bool_)


def rows_of(payload: pa.RecordBatch, rows: Index) -> pa.RecordBatch:
    """Payload rows in ascending order, without copying where they are neighbours."""
    if payload.num_columns and len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        return payload.slice(int(rows[0]), len(rows))
    return take_rows(payload, rows)


def mismatch(batch: EventBatch, row: int, case: str, reason: str) -> CaseMismatchError:
    """The error that names an element."""
    element = batch.slice(row, row + 1).to_elements(kind_in_messages())[0]
    advice = "give the merge a stronger case, or on_mismatch='fallback'"
    return CaseMismatchError(f"merge {case}: {reason}: {element}; {advice}")
