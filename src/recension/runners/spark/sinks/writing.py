"""Sinks for the output of a query: computed once, written as a changelog, a history table, or both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from os import fspath
from threading import Lock
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from recension.core.errors import RecensionError
from recension.core.formats.columns import BATCH, KIND, VS
from recension.core.ticks import BEGINNING, FOREVER, DurationLike, duration
from recension.runners.recorder import EdgeChoice
from recension.runners.recording_files import LIMIT
from recension.runners.spark.batch.times import to_ticks
from recension.runners.spark.failures import is_worker_missing, reason_of
from recension.runners.spark.lake.places import lake_table
from recension.runners.spark.lake.session import WritingSession, moved
from recension.runners.spark.lake.shape import SCD2, Shape
from recension.runners.spark.lake.sinks import LakeChangelog, LakeHistory, LakeSink
from recension.runners.spark.session import check, default_parallelism, is_connect
from recension.runners.spark.sinks.beginning import with_known_times
from recension.runners.spark.sinks.changelog import Changelog
from recension.runners.spark.sinks.checkpoint import (
    CheckpointFiles,
    InputLog,
    claim,
    clear_unfinished_plan,
    files_of,
    is_begun,
    listed_sources,
    note_tables,
    query_of,
    require_owner,
    source_numbers,
)
from recension.runners.spark.sinks.files import AnyPath, is_local, local_path, spark_address
from recension.runners.spark.sinks.history_table import HistoryTable
from recension.runners.spark.sinks.micro_batch import MicroBatch, check_columns, micro_batch
from recension.runners.spark.sinks.recording import MicroBatchRecorder, open_recorder
from recension.runners.spark.sinks.replay import replay
from recension.runners.spark.sinks.revision import TICKS_A_SECOND
from recension.runners.spark.sinks.tasks import TaskWriter, write_from_tasks
from recension.runners.spark.stream.taps import SETTING
from recension.runners.spark.stream.task import CHECKPOINT
from recension.runners.spark.stream.topology import OWNER
from recension.runners.spark.types import arrow_schema

KEEP: Final = "15m"
_QUERY_ID: Final = "sql.streaming.queryId"
_MOST_BUCKETS: Final = 64
_ATTEMPTS: Final = 4
# Up to so many rows the driver writes: for a few thousand, a shuffle and a task took three times as long.
FEW: Final = 1 << 16
# Of two queries of one session that start at once one would be told what is the other's.
_asking: Final = Lock()


class TableSink(Protocol):
    """Where the micro-batches of a query go."""

    def check_owner(self, query: str | None, is_begun: bool, schema: pa.Schema) -> None:
        """Refuse, before the query runs, a table of another query, of other columns, or with a gap."""

    def check(self, batch: MicroBatch) -> None:
        """Refuse what `apply` would refuse for its number or its query, and write nothing."""

    def apply(self, batch: MicroBatch) -> None:
        """Commit a micro-batch as a whole, unless that was done already."""

    def hold(self, batch: MicroBatch) -> AbstractContextManager[TaskWriter | None]:
        """What tasks write a micro-batch (here without rows) with, until `commit`; none if it is there."""

    def commit(self, batch: MicroBatch, written: Sequence[Any]) -> None:
        """Commit what the tasks say they have written, as a whole; `hold` must hold the table."""


def require_same_topics(sdf: DataFrame, files: CheckpointFiles) -> None:
    """Refuse Kafka topics that are no longer those of the checkpoint."""
    # Loaded late: what writes to Kafka needs this module.
    from recension.runners.spark.kafka import topics_read

    topics_read.require_same_topics(sdf, files)


def write(
    sdf: DataFrame,
    *,
    changelog: AnyPath | None = None,
    history: AnyPath | None = None,
    checkpoint: AnyPath,
    trigger: Mapping[str, Any] | None = None,
    query_name: str | None = None,
    keep: DurationLike = KEEP,
    scd2: bool = False,
    record: AnyPath | None = None,
    record_edges: EdgeChoice = "ends",
    record_limit: str | int = LIMIT,
) -> StreamingQuery:
    """Start a query that writes the stream to ``changelog``, its current history to ``history``, or both.

    ``sdf`` is the output of `rc.spark.stream`. Each of the two is a directory, or a table in a lake format:
    ``"delta:PATH"``, or ``"catalog.schema.table"`` in a catalog of the session. ``trigger`` is what Spark's
    own ``.trigger(...)`` takes, such as ``{"availableNow": True}``.

    Earlier versions of a history in a directory stay for ``keep``: so far back `read_history` can look, and
    whoever began to read one can finish. Lake formats keep versions by their own rules. With ``scd2`` a
    history in a lake format has the columns ``valid_from``, ``valid_to`` and ``is_current`` instead of
    ``_vs`` and ``_ve``.

    With ``record``, a directory that all executors see, the elements on the edges of the plan are kept with
    their micro-batch, for ``recension inspect``: those of sources and of the answer, or ``record_edges`` as
    `rc.record` takes them. The oldest go when there are more than ``record_limit`` bytes.
    """
    check_streaming(sdf)
    spark = sdf.sparkSession
    files = files_of(spark, checkpoint)
    sdf = with_known_times(sdf, files)
    owner = sdf.schema[BATCH].metadata.get(OWNER)
    if record is not None and is_connect(spark):
        raise RecensionError(
            "record needs a classic session, made by rc.spark.session(): on Spark Connect tasks do not know "
            "their micro-batch; or record the local engine over the same inputs (rc.record)"
        )
    sinks = _sinks(sdf, changelog, history, checkpoint, keep, scd2)
    if owner:
        require_owner(files, owner)
    _check_owner(sinks, sdf, files)
    require_same_topics(sdf, files)
    if owner:
        claim(files, owner)
        note_tables(files, {"changelog": changelog, "history": history, "record": record})
    clear_unfinished_plan(files)
    classic = None if is_connect(spark) else spark

    def start(how: Mapping[str, Any] | None, recorder: MicroBatchRecorder | None) -> StreamingQuery:
        commit = Commit(MicroBatchWriter(sinks, _buckets(spark)), checkpoint, classic, recorder)
        writer = sdf.writeStream.option("checkpointLocation", spark_address(checkpoint))
        # Connect sends functions only, and this one to its server, where it then stays.
        started = writer.foreachBatch(lambda frame, number: commit(frame, number))
        started = started.queryName(query_name) if query_name is not None else started
        with _tell_tasks(spark, spark_address(checkpoint), recorder):
            return _start(started.trigger(**how) if how is not None else started)

    replay(checkpoint, lambda: _run_one(start({"once": True}, None)))
    recorder = None if record is None else open_recorder(record, owner, record_edges, record_limit, files)
    return start(trigger, recorder)


def _run_one(query: StreamingQuery) -> None:
    """Wait for a micro-batch that is run again."""
    try:
        query.awaitTermination()
    except PySparkException as why:
        raise RecensionError(f"a micro-batch that is run again: {reason_of(why)}") from None


@contextmanager
def _tell_tasks(spark: SparkSession, checkpoint: str, recorder: MicroBatchRecorder | None) -> Iterator[None]:
    """Start a query whose tasks know its checkpoint, and may record: it keeps the settings of now."""
    told = {CHECKPOINT: checkpoint.removeprefix("file:")}
    if recorder is not None:
        told[SETTING] = recorder.request.to_json()
    # All wait for each other: one that starts meanwhile would keep the settings too.
    with _asking:
        for name, value in told.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name in told:
                spark.conf.unset(name)


def _start(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query. Connect's server first starts a Python process, which on a busy machine takes long."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            return writer.start()
        except PySparkException as why:
            if not attempts_left or not is_worker_missing(str(why)):
                raise
    raise AssertionError("the last attempt ends in one way or the other")


class Commit:
    """Commits the micro-batches of one query, and says what each was made of.

    ``spark`` is the classic session that started the query, and can be asked about it.
    """

    def __init__(
        self,
        writer: MicroBatchWriter,
        checkpoint: AnyPath,
        spark: SparkSession | None,
        recorder: MicroBatchRecorder | None = None,
    ) -> None:
        self._writer, self._checkpoint, self._spark = writer, checkpoint, spark
        self._recorder = recorder
        self._inputs: InputLog | None = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Commit a micro-batch."""
        if self._inputs is None:
            self._inputs = self._read_inputs(frame.sparkSession, number)
        content, before = self._inputs.contents(number)
        columns = arrow_schema(frame.schema).empty_table()
        offsets = tuple(self._inputs.offsets(number))
        at = self._inputs.planned_at(number)
        batch = micro_batch(self._inputs.query, number, columns, content, before, offsets, at)
        rows = self._writer.write(frame, batch)
        if self._recorder is not None:
            self._recorder.commit(batch, rows)

    def _read_inputs(self, running: SparkSession, number: int) -> InputLog:
        files = files_of(running, self._checkpoint)
        if self._spark is None:
            return InputLog(files, query_of(files) or "", listed_sources(files, number))
        query = str(running.sparkContext.getLocalProperty(_QUERY_ID))
        execution = self._spark._jsparkSession.streams().get(query).streamingQuery()
        return InputLog(files, query, source_numbers(execution))


class MicroBatchWriter:
    """Gives every micro-batch to all sinks: few rows by the driver, more by the tasks that computed them.

    How many there are is known only afterwards, so it goes by the micro-batch before. The first one, which
    may have to catch up, is written by tasks.
    """

    def __init__(self, sinks: Sequence[TableSink | LakeSink], buckets: int) -> None:
        self._sinks, self._buckets = sinks, buckets
        self._session = WritingSession()
        self._rows: int | None = None

    def write(self, frame: DataFrame, batch: MicroBatch) -> int:
        """Commit a micro-batch, here without its rows, to all tables that lack it; gives how many it has."""
        frame = _numbered(frame, batch.number)
        for sink in self._sinks:
            if isinstance(sink, LakeSink):
                sink.open(self._session.of(frame.sparkSession))
        # All of them first: what one refuses should not be in the other.
        for sink in self._sinks:
            sink.check(batch)
        if self._rows is not None and self._rows <= FEW:
            found = batch.with_rows(frame.toArrow())
            for sink in self._sinks:
                sink.apply(found)
            self._rows = len(found.rows)
        elif any(isinstance(sink, LakeSink) for sink in self._sinks):
            self._rows = self._write_kept(frame, batch)
        else:
            self._rows = self._write_from_tasks(frame, batch, self._sinks)
        return self._rows

    def _write_kept(self, frame: DataFrame, batch: MicroBatch) -> int:
        """To tables that read the rows several times, so that they are computed once."""
        frame = frame.persist()
        try:
            rows, cti = _count(frame)
            for sink in self._sinks:
                if isinstance(sink, LakeSink):
                    with moved(frame, self._session.of(frame.sparkSession)) as rows_there:
                        sink.apply_frame(batch, rows_there, cti)
                else:
                    self._write_from_tasks(frame, batch, [sink])
            return rows
        finally:
            frame.unpersist()

    def _write_from_tasks(
        self, frame: DataFrame, batch: MicroBatch, sinks: Sequence[TableSink | LakeSink]
    ) -> int:
        tables = [sink for sink in sinks if not isinstance(sink, LakeSink)]
        with ExitStack() as held:
            writers = [held.enter_context(sink.hold(batch)) for sink in tables]
            written = write_from_tasks(frame, batch, writers, self._buckets)
            for sink, writer, parts in zip(tables, writers, written.parts, strict=True):
                if writer is not None:
                    sink.commit(batch, parts)
        return written.rows


def _numbered(frame: DataFrame, number: int) -> DataFrame:
    """The rows with the number of their micro-batch, which on Connect tasks are not told (`batch_id`)."""
    if not is_connect(frame.sparkSession):
        return frame
    known = F.when(F.col(BATCH) >= 0, F.col(BATCH)).otherwise(F.lit(number).cast("bigint"))
    return frame.withColumn(BATCH, known)


def _count(frame: DataFrame) -> tuple[int, int]:
    """How many rows a micro-batch has, and its last CTI; one without a time is the end of time."""
    time = F.coalesce(to_ticks(F.col(VS), frame.schema[VS].dataType), F.lit(FOREVER))
    found = frame.agg(F.count("*").alias("n"), F.max(F.when(F.col(KIND) == "cti", time)).alias("cti")).first()
    assert found is not None
    return found["n"], BEGINNING if found["cti"] is None else found["cti"]


def _buckets(spark: SparkSession) -> int:
    """As many as there are cores when a table is made; at most so many files a micro-batch."""
    return min(default_parallelism(spark), _MOST_BUCKETS)


def _sinks(
    sdf: DataFrame,
    changelog: AnyPath | None,
    history: AnyPath | None,
    checkpoint: AnyPath,
    keep: DurationLike,
    scd2: bool,
) -> list[TableSink | LakeSink]:
    if changelog is None and history is None:
        raise RecensionError("nothing to write: name a changelog, a history, or both")
    spark, taken = sdf.sparkSession, {_directory(checkpoint): "the checkpoint"}
    sinks: list[TableSink | LakeSink] = []
    # The history first: it looks at every element, and what it refuses should not be in the changelog.
    for place, noun in ((history, "the history"), (changelog, "the changelog")):
        if place is None:
            continue
        table = lake_table(spark, place)
        where = _directory(table.path if table is not None and table.path else place)
        if where in taken:
            raise RecensionError(f"{place}: {noun} and {taken[where]} need a directory each")
        taken[where] = noun
        if table is None and place is history:
            if scd2:
                raise RecensionError(
                    "scd2 is for histories in lake formats, such as delta:PATH; rc.to_scd2 takes any history"
                )
            sinks.append(HistoryTable(local_path(place), duration(keep) / TICKS_A_SECOND, _buckets(spark)))
        elif table is None:
            sinks.append(Changelog(local_path(place)))
        elif place is history:
            sinks.append(LakeHistory(table, sdf.schema, SCD2 if scd2 else Shape(), _buckets(spark)))
        else:
            sinks.append(LakeChangelog(table, sdf.schema))
    for sink in sinks:
        if isinstance(sink, LakeSink):
            sink.open(spark)
    return sinks


def _directory(place: AnyPath) -> str:
    """The same for all ways to name a directory."""
    return str(local_path(place)) if is_local(place) else fspath(place).rstrip("/")


def _check_owner(sinks: list[TableSink | LakeSink], sdf: DataFrame, files: CheckpointFiles) -> None:
    """Refuse, before anything runs, tables that are there and are not this query's."""
    query, begun, schema = query_of(files), is_begun(files), arrow_schema(sdf.schema)
    for sink in sinks:
        sink.check_owner(query, begun, schema)


def write_changelog(
    sdf: DataFrame,
    path: AnyPath,
    *,
    checkpoint: AnyPath,
    trigger: Mapping[str, Any] | None = None,
    query_name: str | None = None,
) -> StreamingQuery:
    """Start a query that appends the stream to a directory, as Parquet files, or to a lake table."""
    return write(sdf, changelog=path, checkpoint=checkpoint, trigger=trigger, query_name=query_name)


def write_history(
    sdf: DataFrame,
    path: AnyPath,
    *,
    checkpoint: AnyPath,
    trigger: Mapping[str, Any] | None = None,
    query_name: str | None = None,
    keep: DurationLike = KEEP,
    scd2: bool = False,
) -> StreamingQuery:
    """Start a query that keeps the stream's current history as a table, consistent at any time."""
    return write(
        sdf,
        history=path,
        checkpoint=checkpoint,
        trigger=trigger,
        query_name=query_name,
        keep=keep,
        scd2=scd2,
    )


def check_streaming(sdf: DataFrame) -> None:
    """Refuse, before anything runs, what no sink can take."""
    check(sdf.sparkSession)
    if not sdf.isStreaming:
        raise RecensionError("a streaming DataFrame is needed; write a batch result with .write as usual")
    check_columns(arrow_schema(sdf.schema))
