"""The gate of a source: whatever comes in, by whatever door, becomes valid elements here or is refused.

    data ── decode ──> rows ── place ── repeats ── open and close ── declared ── validity ── pace ──> elements

`judge` lets every step look at the rows, and changes nothing; `admit` takes in what was judged last. A step
is a file of its own (see step.py), and knows what came before it only by the rows it gets. They carry their
origins, so that each fault is raised where it is found, with file and row. Of several faults the one of the
earliest row counts, whichever step finds it.

    admission = gate.judge(data)     # an error, if the source refuses something in it
    batch = gate.admit(admission)    # the elements that go on
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, EventBatch, Index, concat, cti
from recension.core.errors import StreamError
from recension.core.records import record
from recension.core.rows import Rows
from recension.core.ticks import BEGINNING
from recension.core.time_kind import OneKind, TimeKind
from recension.core.validity import counts_from_table, counts_to_table
from recension.gate.declared import Declared
from recension.gate.decode import Data, Decode
from recension.gate.open_close import OpenedAndClosed
from recension.gate.pace import Paced
from recension.gate.partition_state import PartitionProgress
from recension.gate.place import Place
from recension.gate.readings import Reading, Readings
from recension.gate.repeats import Repeats
from recension.gate.step import Arrival, Step, TakeOver
from recension.gate.valid import Validity
from recension.operators.base import Chunks
from recension.plan.source import Source

NO_PARTITION = Arrival()


@record
class Admission:
    """Data that was judged and can be taken in; nothing has changed yet."""

    given: Rows
    """What was decoded."""
    rows: Rows
    """What of it the steps let pass, as far as that is known before it is taken in."""
    take_overs: Sequence[TakeOver]
    kind: TimeKind
    """The kind of times to write in messages."""
    reading: Reading | None = None
    has_promise: bool = False

    @property
    def batch(self) -> EventBatch:
        """The elements, without opens and closes."""
        return self.rows.batch

    @property
    def cti(self) -> int:
        """The last CTI that it brings to the source."""
        if self.rows.placed is not None:
            return self.rows.placed.cti
        if self.batch.last_kind < CTI:
            return BEGINNING
        return int(self.batch.vs[self.batch.kind == CTI].max(initial=BEGINNING))

    @property
    def stream(self) -> EventBatch:
        """The elements, with the one CTI of the source in the place of those of its partitions."""
        if self.rows.placed is None:
            return self.batch
        return concat([self.batch.filter(self.batch.kind != CTI), cti(self.cti, self.batch.schema)])

    @property
    def is_only_ctis(self) -> bool:
        """Are there CTIs and nothing else?"""
        if not len(self.batch):
            return self.has_promise
        return self.batch.last_kind >= CTI and bool((self.batch.kind == CTI).all())


class Gate:
    """Turns the data of one source into valid elements, all of a push or nothing of it."""

    def __init__(
        self,
        source: Source,
        *,
        check_orphans: bool = True,
        check_lateness: bool = True,
        times: OneKind | None = None,
        in_units: bool = False,
    ) -> None:
        """``in_units``: the query measures time in units; then its times must be what they look like."""
        self._source, self._times = source, times or OneKind()
        self._decode = Decode(source, self._times)
        self._readings = Readings(source.name, is_needed=check_orphans)
        self._place = Place(source) if source.partition else None
        count = None if self._place is None else self._place.partitions.count
        declared = Declared(source, in_units=in_units)
        # A source declared free of retractions needs no memory of what could be retracted.
        orphans = check_orphans and declared.takes_retractions
        lateness = check_lateness and not source.are_rows
        self._validity = Validity(source, orphans=orphans, lateness=lateness, count=count)
        self._pace = Paced(source, self._validity)
        self._steps: list[Step] = [
            self._place or Repeats(),
            OpenedAndClosed(source, count),
            declared,
            self._validity,
            self._pace,
        ]
        self.rows = 0
        self.is_table = False
        self._counted_before: Counter[str] = Counter()

    def judge(self, data: Data, arrival: Arrival = NO_PARTITION) -> Admission:
        """Look at the whole of the next data; what cannot be taken in is an error. Nothing changes."""
        reading = getattr(data, "reading", None)
        if not isinstance(reading, Reading):
            return self._judge(self._decode.read(data, arrival, self.rows + 1), arrival)
        self._readings.require_earlier(reading)
        admission = self._judge(self._decode.read(data, arrival, self.rows + 1), arrival)
        return replace(admission, reading=reading)

    def advance(self, t: int, arrival: Arrival = NO_PARTITION) -> Admission:
        """Judge a CTI, as if it had been pushed; without a partition it is for all."""
        return self._judge(*self._decode.advance(t, arrival))

    def _judge(self, rows: Rows, arrival: Arrival) -> Admission:
        try:
            admission = self._pass(rows, arrival)
        except StreamError as why:
            if why.position is not None:
                self._refuse_earlier(rows, why.position, arrival)
            raise
        if rows.fault is not None:
            raise rows.fault
        return admission

    def _refuse_earlier(self, rows: Rows, position: int, arrival: Arrival) -> None:
        """The steps after the one that found a fault have not looked: an earlier row's fault comes first.

        What is said of a fault does not depend on rows that come after it.
        """
        if position > 0:
            self._judge(rows.before(position), arrival)
        if rows.size > position + 1:
            self._judge(rows.before(position + 1), arrival)

    def _pass(self, given: Rows, arrival: Arrival) -> Admission:
        """Let every step look at the rows that those before it let pass."""
        kind = self._times.kind if given.kind is None else given.kind
        rows = given if given.kind is kind else replace(given, kind=kind)
        take_overs = []
        for step in self._steps:
            rows, take_over = step.judge(rows, arrival)
            if take_over is not None:
                take_overs.append(take_over)
        return Admission(given, rows, take_overs, kind, has_promise=arrival.promise is not None)

    def admit(self, admission: Admission) -> EventBatch:
        """The valid elements of what was judged last, which is taken in."""
        batch, given = admission.batch, admission.given
        for take_over in admission.take_overs:
            batch = take_over(batch)
        if given.dropped:
            self._decode.admit(given)
        self._times.note(given.kind, self._source.name)
        if not admission.is_only_ctis:
            self.is_table = given.is_table
        self.rows += given.size
        self._readings.note(admission.reading, given.size)
        return batch

    def arrivals(self, admission: Admission, size: int) -> Index | None:
        """When each of the ``size`` elements that were admitted last arrived, if a column says it."""
        came, admitted = admission.rows.origin.arrivals(len(admission.batch)), self._validity.admitted
        if came is None:
            return None
        came = came if admitted is None else came[admitted]
        # The CTI of a source with partitions comes after its rows, and from nobody.
        return np.append(came, np.full(max(size - len(came), 0), BEGINNING))[:size]

    @property
    def source(self) -> Source:
        """The source whose gate it is."""
        return self._source

    @property
    def takes_all(self) -> bool:
        """Is a push taken in as it is, or else refused?"""
        return self._source.on_violation == "raise"

    @property
    def is_closed(self) -> bool:
        """Is nothing to come any more?"""
        return self._validity.is_closed

    @property
    def cti(self) -> int:
        """The last CTI that came."""
        return self._validity.cti

    @property
    def paced(self) -> Paced:
        """The `advance_time` of queries directly on a source with partitions."""
        return self._pace

    @property
    def counts(self) -> Counter[str]:
        """Elements left out, moved or ignored so far, by reason."""
        own = self._counted_before + self._decode.counts
        for step in self._steps:
            own += step.counts
        return own

    @property
    def dropped(self) -> list[tuple[str, EventBatch]]:
        """The elements left out since they were taken last, with the reason."""
        return list(chain.from_iterable(step.dropped for step in self._steps))

    @property
    def unreadable(self) -> list[tuple[str, pa.RecordBatch]]:
        """The rows left out since then because no element could be made of them, with the reason."""
        return self._decode.unreadable

    def take_dropped(self) -> list[tuple[str, EventBatch]]:
        """The elements left out since the last time of asking, with the reason; forgets them."""
        self._decode.unreadable.clear()  # rows of which no element could be made: counted only
        return list(chain.from_iterable(step.take_dropped() for step in self._steps if step.dropped))

    def forget_before(self, t: int) -> None:
        """Changes to events that ended before ``t`` come to nothing: they need not be checked."""
        for step in self._steps:
            step.forget_before(t)

    def state_rows(self) -> int:
        """How many events the checks remember."""
        return sum(step.state_rows() for step in self._steps)

    def state_bytes(self) -> int:
        """How much memory they take."""
        return sum(step.state_bytes() for step in self._steps)

    def expect_partitions(self, number: int) -> None:
        """How many partitions there are, where the source does not say it."""
        if self._place is not None:
            self._place.partitions.expect(number)
        self._pace.expect(number)

    @property
    def is_clocked(self) -> bool:
        """Can time alone move its CTI?"""
        return self._place is not None and self._place.partitions.is_clocked

    def tick(self, now: int) -> EventBatch | None:
        """The CTI of the source by the clock, if it has advanced: who is idle holds nobody back."""
        self._pace.tick(now)
        if self._place is None or (t := self._place.partitions.tick(now)) <= self.cti:
            return None
        self._validity.advance(t)
        return cti(t, self._source.columns)

    def progress(self) -> list[PartitionProgress]:
        """How far each partition is."""
        return [] if self._place is None else self._place.partitions.progress()

    def held_back_by(self) -> str | None:
        """The partition that the others wait for."""
        return None if self._place is None else self._place.partitions.held_back_by()

    def snapshot(self) -> dict[str, pa.Table]:
        """What the steps remember, and what they have counted."""
        own = {"progress": pa.table({"rows": [self.rows]}), "dropped": counts_to_table(self.counts)}
        for step in self._steps:
            own |= step.snapshot()
        return own

    def restore(self, chunks: Chunks) -> None:
        """Remember what the snapshot remembers."""
        self.rows = chunks["progress"]["rows"][0].as_py()
        self._counted_before = counts_from_table(chunks["dropped"])
        for step in self._steps:
            step.restore(chunks)
            step.counts.clear()
        self._decode.counts.clear()
        self.take_dropped()
        self._readings.forget()
