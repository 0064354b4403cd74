"""Temporal equijoin: pairs of events whose keys match, alive while both are.

Assumes     each input is a valid physical stream; in a step port 0 comes before port 1.
Guarantees  after every batch the output history is the join of the input histories; an output CTI is the
            least of the input CTIs; at most one change per pair of events and batch, in order of arrival.
State       both inputs' events, by (key, lifetime), until the other input's CTI has passed their end.
Cost        O((n + m) log s) for n inputs, m outputs and s events in state.
Source      Consistency Sensitive Streaming Operators in CEDR, §4.3; rulings C1–C7.
"""

from __future__ import annotations

from collections.abc import Sequence

from recension.core.batch import EventBatch, empty
from recension.core.ticks import FOREVER
from recension.operators.base import Output
from recension.operators.matching import (
    LEFT,
    RIGHT,
    JoinedColumn,
    JoinedPayload,
    JoinSide,
    KeySkew,
    Matching,
    Predicate,
    SidedOperator,
    pair_changes,
)
from recension.operators.state.event_store import EventStore


class Join(SidedOperator):
    """The symmetric join of two inputs on equal keys, overlap and a predicate over the joined payload."""

    def __init__(
        self, left: JoinSide, right: JoinSide, columns: Sequence[JoinedColumn], where: Predicate | None = None
    ) -> None:
        joined = JoinedPayload(left.schema, right.schema, columns)
        self._live = [EventStore(joined.sources(side)) for side in (LEFT, RIGHT)]
        super().__init__(joined.schema, (left, right), left=self._live[LEFT], right=self._live[RIGHT])
        self._matching = Matching(self._live, joined, where, pairs=True)
        self._skew = KeySkew(left.keys, right.keys)

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        side, own, other = self._sides[port], self._live[port], self._live[1 - port]
        arriving = side.net_changes_of(batch.filter(side.has_keys(batch)))
        self._skew.note(port, arriving.group, arriving.payload)
        meeting = self._matching.meet(port, arriving.group, *arriving.stretch(), arriving.payload)
        output = pair_changes(arriving.change, meeting, other)
        own.apply(arriving.change, arriving.group, arriving.payload)
        return output

    def on_cti(self, port: int, t: int) -> Output:
        self._live[1 - port].expire(t)
        return self.emit(self.note_cti(port, t))

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """A pair ends with the first of its events: one that ends before ``t`` makes only such pairs."""
        for live, is_bounded in zip(self._live, shrinks, strict=True):
            # An event that may be lengthened must be known: its pairs would be retracted without having been.
            if is_bounded and t < FOREVER:
                live.expire(max(t - 1, live.expired_until))
        return [t, t]

    def take_warnings(self) -> list[str]:
        return self._skew.take_warnings()
