"""Micro-batches into a table of a lake format: its stream as a changelog, or its current history.

Assumes     a query's micro-batches come in the order of their numbers, the last ones perhaps again.
Guarantees  a micro-batch is one commit, which says in its own metadata what it is of; one that is there is
            skipped if it is of the same query and input, and refused otherwise, as in tables of our own.
            A retraction whose event is not there fails, and nothing is committed.
State       what the last commits say. It only saves asking the table.
Cost        changelog: one append. History: few rows in Delta by a commit of the driver's own
            (`delta_commit`); otherwise one MERGE over the files in which the changed events may be. If equal
            events are about, that is tried once in vain, and a look at those files comes before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from recension.core.batch import Index
from recension.core.errors import RecensionError
from recension.core.formats.columns import KIND, VE, VS
from recension.core.formats.files import digest_of
from recension.core.ticks import BEGINNING, FOREVER, from_arrow
from recension.runners.spark.failures import reason_of
from recension.runners.spark.lake.changes import (
    EVENT,
    NET,
    Found,
    NetRows,
    event_columns,
    fit_ordinals,
    net_columns,
    net_frame,
    net_rows,
    with_ordinals,
)
from recension.runners.spark.lake.delta_commit import DeltaCommits, SmallChange
from recension.runners.spark.lake.merging import MISFIT, is_equal, may_be_in, merge_statement
from recension.runners.spark.lake.shape import ORDINAL, SHAPE, Shape, payload_of
from recension.runners.spark.lake.table import LakeTable, Note
from recension.runners.spark.sinks.micro_batch import (
    REMEMBERED,
    MicroBatch,
    Recent,
    is_next,
    remember,
    require_same_columns,
)
from recension.runners.spark.types import arrow_schema

KIND_OF_TABLE: Final = "recension.kind"
QUERY: Final = "recension.query"
# After a MERGE whose ordinals did not fit, so many micro-batches ask first.
_CAREFUL: Final = 16
_VIEW: Final = "recension_changes"
# What a failed job of a classic session is, if Spark has no Python class for its error.
_FAILURES: Final = (PySparkException, Py4JJavaError)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a table has come: its last micro-batch, what the last ones were made of, and its CTI."""

    last: int = -1
    recent: Recent = ()
    cti: int = BEGINNING


class LakeSink(ABC):
    """Writes one table. ``stream`` has the columns of the query's output."""

    noun: str

    def __init__(self, table: LakeTable, stream: StructType) -> None:
        self.table, self._stream = table, stream
        self._progress: Progress | None = None
        self._spark: SparkSession | None = None

    def __getstate__(self) -> dict[str, object]:
        # A Connect server gets a copy, and has a session of its own.
        return self.__dict__ | {"_spark": None, "_progress": None, "_commits": None}

    def open(self, spark: SparkSession) -> None:
        """Write with a session: that of the query."""
        self._spark = spark

    def check_owner(self, query: str | None, is_begun: bool, schema: pa.Schema) -> None:
        """Refuse, before anything runs, another query's table, other columns, or a gap."""
        self.table.require_session(self._session)
        self._read_progress(query or "", is_begun)

    def check(self, batch: MicroBatch) -> None:
        """Refuse what `apply` would refuse for its number or its query, and write nothing."""
        self._is_new(batch)

    def apply(self, batch: MicroBatch) -> None:
        """Commit a micro-batch whose rows are here, unless that was done already."""
        with self._next(batch) as before:
            if before is not None:
                self._write_rows(batch, before)

    def apply_frame(self, batch: MicroBatch, frame: DataFrame, cti: int) -> None:
        """Commit a micro-batch whose rows are with Spark; ``batch`` has none. ``cti`` is the last in it."""
        with self._next(batch) as before:
            if before is not None:
                self._write_frame(batch, frame, before, max(before.cti, cti))

    @abstractmethod
    def columns(self) -> StructType:
        """The columns of the table."""

    @abstractmethod
    def _write_rows(self, batch: MicroBatch, before: Progress) -> None: ...

    @abstractmethod
    def _write_frame(self, batch: MicroBatch, frame: DataFrame, before: Progress, cti: int) -> None: ...

    @property
    def _session(self) -> SparkSession:
        assert self._spark is not None, "open it first"
        return self._spark

    def _properties(self, query: str) -> dict[str, str]:
        return {KIND_OF_TABLE: self.noun, QUERY: query}

    def _is_new(self, batch: MicroBatch) -> bool:
        if self._progress is None:
            self._progress = self._read_progress(batch.query, is_begun=batch.number > 0)
        return is_next(self.table.name, batch, self._progress.last, self._progress.recent)

    @contextmanager
    def _next(self, batch: MicroBatch) -> Iterator[Progress | None]:
        """How far the table is that a micro-batch follows; none if it has it already."""
        is_new = self._is_new(batch)
        before, self._progress = self._progress, None
        assert before is not None
        if is_new and not before.recent:
            self._create(batch.query)
        # After a failure the table is asked again.
        yield before if is_new else None
        if not is_new:
            self._progress = before

    def _note(self, batch: MicroBatch, before: Progress, cti: int) -> Note:
        """The note of the commit that comes; what is known once that is there."""
        self._committed = Progress(batch.number, remember(before.recent, batch), cti)
        return Note(batch.query, batch.number, batch.content, cti, batch.offsets, batch.at)

    def _create(self, query: str) -> None:
        if self.table.columns(self._session) is None:
            self.table.create(self._session, self.columns(), self._properties(query))
        elif QUERY not in self.table.properties(self._session):
            self.table.claim(self._session, self._properties(query))

    def _read_progress(self, query: str, is_begun: bool) -> Progress:
        """What this query's table says, or the beginning where a table may begin."""
        spark, name = self._session, self.table.name
        found = self.table.columns(spark)
        if found is None:
            self._require_new(is_begun)
            return Progress()
        properties = self.table.properties(spark)
        if QUERY not in properties:
            require_same_columns(arrow_schema(found), arrow_schema(self.columns()))
            # The user has made it, to say how it is partitioned or clustered.
            if not self.table.read(spark).isEmpty():
                raise RecensionError(f"{name}: has rows that no query of ours wrote; give a new table")
            self._require_new(is_begun)
            return Progress()
        kind = properties.get(KIND_OF_TABLE)
        if kind != self.noun:
            raise RecensionError(f"{name}: a {kind}, not a {self.noun}; give each a table of its own")
        if properties[QUERY] != query:
            raise RecensionError(
                f"{name}: the {self.noun} of another query; use that query's checkpoint, or give a new table"
            )
        self._require_shape(properties)
        require_same_columns(arrow_schema(found), arrow_schema(self.columns()))
        notes = (commit.note for commit in self.table.commits(spark) if commit.note is not None)
        last = {note.batch: note for note in islice(notes, REMEMBERED)}
        if any(note.query != query for note in last.values()):
            raise RecensionError(f"{name}: has commits of another query; restore it, or give a new table")
        if not last:
            if is_begun:
                self._require_new(is_begun)
            return Progress()
        recent = tuple((number, last[number].content) for number in sorted(last))
        return Progress(max(last), recent, last[max(last)].cti)

    def _require_shape(self, properties: dict[str, str]) -> None:
        """Refuse a table that was made with other options."""

    def _require_new(self, is_begun: bool) -> None:
        if is_begun:
            raise RecensionError(
                f"{self.table.name}: this checkpoint has already written micro-batches elsewhere, or the "
                f"table has lost the records in its commits; a {self.noun} must have all micro-batches of "
                "its query: use a new checkpoint and a new table"
            )


class LakeChangelog(LakeSink):
    """Every element that the query puts out; rows are read in the order of ``_batch`` and ``_seq``."""

    noun = "changelog"

    def columns(self) -> StructType:
        return self._stream

    def _write_rows(self, batch: MicroBatch, before: Progress) -> None:
        rows = pa.Table.from_batches([batch.rows])
        frame = self._session.createDataFrame(rows, self._stream).coalesce(1)
        self._write_frame(batch, frame, before, max(before.cti, last_cti(batch.rows)))

    def _write_frame(self, batch: MicroBatch, frame: DataFrame, before: Progress, cti: int) -> None:
        self.table.append(frame, self._note(batch, before, cti))
        self._progress = self._committed


class LakeHistory(LakeSink):
    """What is true now: lifetimes, payload and an ordinal, a row for each event."""

    noun = "history"

    def __init__(self, table: LakeTable, stream: StructType, shape: Shape, buckets: int) -> None:
        super().__init__(table, stream)
        self._shape, self._buckets = shape, buckets
        self._payload = [field.name for field in payload_of(stream)]
        self._careful_until = 0
        self._commits: DeltaCommits | None = None

    def columns(self) -> StructType:
        return self._shape.columns(self._stream)

    def _properties(self, query: str) -> dict[str, str]:
        return super()._properties(query) | {SHAPE: self._shape.to_json()}

    def _require_shape(self, properties: dict[str, str]) -> None:
        if Shape.of(properties) != self._shape:
            raise RecensionError(
                f"{self.table.name}: was made with another scd2=; give it the same, or a new table"
            )

    def _write_rows(self, batch: MicroBatch, before: Progress) -> None:
        net = net_rows(batch, before.cti)
        note = self._note(batch, before, net.cti)
        if self._commit_small(net, note, before.cti):
            self._progress = self._committed
            return
        rows = self._session.createDataFrame(net.rows, net_columns(self._stream))
        self._change(rows, note, before.cti, net.starts)

    def _commit_small(self, net: NetRows, note: Note, cti: int) -> bool:
        """Commit what the driver has without MERGE, if the format can do that and there is something."""
        if self._commits is None:
            self._commits = self.table.small_commits(self._session, self._shape)
        if self._commits is None or not len(net.starts):
            return False
        events = net.events()
        frame = self._session.createDataFrame(events, event_columns(self._stream)).coalesce(1)
        fit = partial(self._fit, events, note)
        change = SmallChange(frame, net.starts, cti, is_equal(self._shape, self._payload), fit)
        return self._commits.commit(self._session, change, note)

    def _fit(self, events: pa.Table, note: Note, found: Found) -> tuple[Index, DataFrame | None]:
        """Which of the rows that are there go, and the rows that come."""
        fitted = fit_ordinals(events[NET].to_numpy(), found)
        if len(fitted.missing):
            event = events.slice(int(fitted.missing[0]), 1).drop_columns([NET, EVENT]).to_pylist()[0]
            raise RecensionError(self._failure(note) + str(event))
        if not len(fitted.added):
            return fitted.removed, None
        rows = events.take(fitted.added).drop_columns([NET, EVENT])
        names = {VS: self._shape.start, VE: self._shape.end}
        rows = rows.rename_columns([names.get(name, name) for name in rows.column_names])
        if self._shape.current:
            rows = rows.append_column(self._shape.current, pc.is_null(rows[self._shape.end]))
        rows = rows.append_column(ORDINAL, pa.array(fitted.ordinals, pa.int64()))
        return fitted.removed, self._session.createDataFrame(rows, self.columns()).coalesce(1)

    def _failure(self, note: Note) -> str:
        return (
            f"{self.table.name}: micro-batch {note.batch}: a retraction of an event that the table does not "
            "have; the stream is valid, so something else has changed the table: restore table and "
            "checkpoint from one backup, or write to a new table with a new checkpoint: "
        )

    def _write_frame(self, batch: MicroBatch, frame: DataFrame, before: Progress, cti: int) -> None:
        note = self._note(batch, before, cti)
        rows = net_frame(frame, batch, before.cti, self._buckets)
        self._change(rows, note, before.cti, None)

    def _change(self, rows: DataFrame, note: Note, cti: int, starts: Index | None) -> None:
        if starts is not None and not len(starts):
            # A commit that only says how far the stream has come.
            columns = self.columns()
            self.table.append(self._session.createDataFrame([], columns), note)
        else:
            where = may_be_in(self._shape, self._stream[VS].dataType, starts, cti)
            self._merge(rows, note, where, starts is not None)
        self._progress = self._committed

    def _merge(self, rows: DataFrame, note: Note, where: str | None, is_local: bool) -> None:
        """Try the ordinals of events that are there at most once; if they do not fit, ask for them."""
        if note.batch >= self._careful_until:
            try:
                self._run_merge(rows, note, where, is_local)
                return
            except _FAILURES as why:
                if MISFIT not in str(why):
                    raise
            self._careful_until = note.batch + _CAREFUL
        there = self.table.read(self._session).alias("t")
        failure = self._failure(note)
        exact = with_ordinals(
            rows, there.where(where) if where else there, is_equal(self._shape, self._payload), failure
        )
        try:
            self._run_merge(exact, note, where, is_local=False)
        except _FAILURES as why:
            if failure.strip() in str(why):
                raise RecensionError(reason_of(why)) from None
            raise

    def _run_merge(self, rows: DataFrame, note: Note, where: str | None, is_local: bool) -> None:
        view = f"{_VIEW}_{digest_of(self.table.sql)}"
        rows.createOrReplaceTempView(view)
        try:
            statement = merge_statement(self.table.sql, view, self._shape, self._payload, where)
            self.table.merge(rows, statement, note, is_local)
        finally:
            self._session.catalog.dropTempView(view)


def last_cti(rows: pa.RecordBatch) -> int:
    """The last CTI in rows of a stream, in ticks; a CTI without a time is the end of time."""
    times = rows.column(VS).filter(pc.equal(rows.column(KIND), "cti"))
    if times.null_count:
        return FOREVER
    return int(np.max(from_arrow(times, VS), initial=BEGINNING)) if len(times) else BEGINNING
