"""Temporal left join: the join, and every left event with nulls while no right event matches it.

Assumes     each input is a valid physical stream; in a step port 0 comes before port 1.
Guarantees  after every batch the output history equals the oracle's; an output CTI is the least of the
            input CTIs. The output lengthens where unmatched parts grow together.
State, Cost, Source   see `join` and `coverage_join`.
"""

from __future__ import annotations

import pyarrow as pa

from recension.core.batch import EventBatch
from recension.operators.changes import NetChanges
from recension.operators.coverage_join import CoverageJoin
from recension.operators.matching import Meeting, pair_changes
from recension.operators.state.event_store import EventStore


class LeftJoin(CoverageJoin):
    """Pairs, and the uncovered parts of left events with nulls in the columns of the right side."""

    _covered, _shows_pairs = False, True

    def _output_payload(self, left: pa.RecordBatch, size: int) -> pa.RecordBatch:
        return self._joined.without_right(left, size)

    def _pair_changes(self, change: NetChanges, meeting: Meeting, other: EventStore) -> list[EventBatch]:
        return [pair_changes(change, meeting, other)]
