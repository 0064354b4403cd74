"""The step *validity*: is it a valid stream? What is not is an error, or the policy of the source decides."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from recension.core.batch import EventBatch, Mask, concat, cti
from recension.core.placement import PlacedRows, Placement
from recension.core.rows import Rows
from recension.core.validity import CheckedBatch, Checker
from recension.gate.step import Arrival, CountByPartition, Step, Verdict
from recension.plan.source import Source


class Validity(Step):
    """Checks the elements of a source, each by the CTI before it, in its own partition if there are any.

    Of a source with partitions it gives one CTI: that of the source.
    """

    def __init__(
        self, source: Source, *, orphans: bool, lateness: bool, count: CountByPartition | None
    ) -> None:
        super().__init__()
        self._checker = Checker(source.on_violation, orphans=orphans, lateness=lateness)
        self._count = count
        self.counts, self.dropped = self._checker.counts, self._checker.dropped
        self.passed: tuple[EventBatch, Placement] | None = None
        """Of a source with partitions, what it let pass last, and of which partition each row is."""

    @property
    def cti(self) -> int:
        """The last CTI."""
        return self._checker.frontier

    @property
    def is_closed(self) -> bool:
        """Has a CTI come to the end of time?"""
        return self._checker.is_closed

    @property
    def admitted(self) -> Mask | None:
        """Which of the rows that were taken in last go on; None if all do."""
        return self._checker.admitted

    def advance(self, t: int) -> None:
        """The CTI of the source is ``t``."""
        self._checker.advance(t)

    def judge(self, rows: Rows, arrival: Arrival) -> Verdict:
        """The same rows: which of them stay, and how, is known when they are taken in."""
        checked = self._checker.judge(rows.batch, origin=rows.origin, kind=rows.kind, placed=rows.placed)
        if rows.placed is None:
            return rows, partial(self._take_over, checked)
        return rows, partial(self._take_over_placed, checked, rows.placed)

    def _take_over(self, checked: CheckedBatch, batch: EventBatch) -> EventBatch:
        return self._checker.admit(checked)

    def _take_over_placed(self, checked: CheckedBatch, placed: PlacedRows, batch: EventBatch) -> EventBatch:
        valid = self._checker.admit(checked)
        for reason, counts in self._checker.take_by_partition():
            if self._count is not None:
                self._count(reason, counts)
        kept = self._checker.kept
        self.passed = self._checker.checked.filter(kept), Placement(placed.names, placed.partition[kept])
        if placed.cti > self._checker.frontier:
            self._checker.advance(placed.cti)
            valid = concat([valid, cti(placed.cti, valid.schema)])
        return valid

    def forget_before(self, t: int) -> None:
        """Changes to events that ended before ``t`` pass unchecked."""
        self._checker.forget_before(t)

    def state_rows(self) -> int:
        """How many events are remembered."""
        return self._checker.state_rows()

    def state_bytes(self) -> int:
        """How much memory they take."""
        return self._checker.state_bytes()

    def snapshot(self) -> dict[str, pa.Table]:
        """What the checks remember."""
        return self._checker.snapshot()

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Become what `snapshot` gave."""
        self._checker.restore(chunks)
