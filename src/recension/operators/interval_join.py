"""The pairs of an interval join: events meet if their keys are equal and their starts lie a distance apart.

Assumes     each input is a valid physical stream; in a step port 0 comes before port 1.
Guarantees  after every batch the output history is the interval join of the input histories; an output CTI is
            the least of the input CTIs: a pair starts where the later of its events does.
State       the events of each side until no start of the other side can come within their range, or go.
Cost        O((n + m) log s) for n inputs, m pairs and s events in state.
Source      DESIGN §12.

An end that moves changes no pair. `start_matches` has the kinds of join that keep whole events.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recension.core.batch import EventBatch
from recension.operators.base import Output
from recension.operators.changes import changes
from recension.operators.matching import (
    LEFT,
    RIGHT,
    JoinedColumn,
    JoinedPayload,
    JoinSide,
    Matching,
    Meeting,
    Predicate,
    SideChanges,
    SidedOperator,
)
from recension.operators.starts import StartRange, move_cti, with_duration
from recension.operators.state.start_index import StartStore


class PairsByStart(SidedOperator):
    """The pairs, each for the one tick of its later start."""

    def __init__(
        self,
        left: JoinSide,
        right: JoinSide,
        columns: Sequence[JoinedColumn],
        where: Predicate | None,
        starts: StartRange,
    ) -> None:
        joined = JoinedPayload(left.schema, right.schema, columns)
        self._starts = starts
        self._live = [StartStore(joined.sources(side)) for side in (LEFT, RIGHT)]
        super().__init__(joined.schema, (left, right), left=self._live[LEFT], right=self._live[RIGHT])
        self._matching = Matching(self._live, joined, where, pairs=True)

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return self._nothing
        side = self._sides[port]
        arriving = with_duration(side.net_changes_of(batch.filter(side.has_keys(batch))), 1)
        within = self._starts.opposite(port, arriving.change.vs)
        meeting = self._matching.meet(port, arriving.group, *within, arriving.payload)
        output = pair_changes(arriving, meeting, self._live[1 - port])
        self._live[port].apply(arriving.change, arriving.group, arriving.payload)
        return output

    def on_cti(self, port: int, t: int) -> Output:
        delta = self._starts.low if port == LEFT else -self._starts.high
        self._live[1 - port].expire(move_cti(t, delta))
        return self.emit(self.note_cti(port, t))


def pair_changes(arriving: SideChanges, meeting: Meeting, other: StartStore) -> EventBatch:
    """Pairs come with the events that come, and go with those that go."""
    change = arriving.change
    start = np.maximum(change.vs.take(meeting.at), other.column("vs", meeting.x))
    if change.is_insert_only:
        return changes(start, start, start + 1, meeting.joined)
    is_gone = (change.old > change.vs).take(meeting.at)
    return changes(start, start + is_gone, start + ~is_gone, meeting.joined)
