"""A micro-batch that the driver has, into Delta as a commit that is put together here, without MERGE.

    files       those in which the changed events may be, by the times that the log has of each
    find        one join: the file, the row and the ordinal of each event that is there
    write       what is added into a file, what is removed into deletion vectors
    commit      both with the note, in an optimistic transaction of Delta's own

Assumes     a classic session, a version of Delta that this was tried with (`VERSIONS`), and a table with
            deletion vectors and nothing that a writer would have to know besides. Others get a MERGE.
Guarantees  what the MERGE does. If another commit comes in between, all of it is done again on top of that.
State       the files of the table. If others commit, they are read again.
Cost        two small jobs and a broadcast; a MERGE joins the table three times, and the log twice more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Final, TypeAlias

import numpy as np
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from recension.core.batch import Index
from recension.core.errors import RecensionError
from recension.runners.spark.lake.changes import EVENT, Found
from recension.runners.spark.lake.roaring import to_portable
from recension.runners.spark.lake.shape import ORDINAL, Shape
from recension.runners.spark.lake.table import Note, quoted, set_for_now

VERSIONS: Final = ("4.4.",)
USER_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
# Tasks that read the log after a commit; Delta has 50, whatever the size of the table.
LOG: Final = {"spark.databricks.delta.snapshotPartitions": "2"}
_SETTINGS: Final = LOG | {"spark.sql.adaptive.enabled": "false"}
_KNOWN: Final = {"deletionVectors", "appendOnly", "invariants", "clustering", "domainMetadata"}
_ATTEMPTS: Final = 8
_CONFLICT: Final = "Concurrent"
_FILE, _ROW = "_file", "_row"
# What is removed from a table's log, and what is added: a file as it was, and as it is.
FileActions: TypeAlias = tuple[Any, Any]
# Times in the log are cut to milliseconds.
_CUT: Final = 999


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the table: what the log says of it, its rows, and between which ticks their times are."""

    action: Any
    rows: int
    first: float
    last: float
    latest_end: float


@dataclass(frozen=True, slots=True)
class SmallChange:
    """Events to add and to remove: as rows with an id in `EVENT`, their starts, and how to find them.

    ``fit`` says, of the rows that are there, which of them go, and gives the rows that come.
    """

    events: DataFrame
    starts: Index
    cti: int
    is_equal: str
    fit: Callable[[Found], tuple[Index, DataFrame | None]]


@dataclass(slots=True)
class DeltaCommits:
    """Commits to one table. ``shape`` names its columns of times."""

    path: str
    shape: Shape
    version: int = -1
    files: dict[str, LogFile] = field(default_factory=dict)

    def commit(self, spark: SparkSession, change: SmallChange, note: Note) -> bool:
        """Commit a change; false if the table or its Delta is not one that is known here."""
        if not any(_delta_version(spark).startswith(known) for known in VERSIONS):
            return False
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                with set_for_now(spark, _SETTINGS | {USER_METADATA: note.to_json()}):
                    return _Attempt(spark, self).run(change, note)
            except (PySparkException, Py4JJavaError) as why:
                self.version = -1
                if not attempts_left or _CONFLICT not in str(why):
                    raise
        raise AssertionError("the last attempt ends in one way or the other")


class _Attempt:
    """One transaction."""

    def __init__(self, spark: SparkSession, table: DeltaCommits) -> None:
        self._spark, self._table, self._jvm = spark, table, spark._jvm
        self._delta: Any = spark._jvm.org.apache.spark.sql.delta
        self._log = self._delta.DeltaLog.forTable(spark._jsparkSession, table.path)
        self._transaction = self._log.startTransaction()
        self._snapshot = self._transaction.snapshot()

    def run(self, change: SmallChange, note: Note) -> bool:
        if not self._is_known():
            return False
        # Both of these read the whole log. If the last commit is this driver's, it knows what they say.
        if self._snapshot.version() != self._table.version:
            if self._transaction.txnVersion(note.query) >= note.batch:
                return True
            self._read_files()
        self._transaction.readWholeTable()
        found = self._find(change)
        removed, added = change.fit(found)
        changed = self._remove(found.take(removed))
        if added is not None:
            new = self._list(self._transaction.writeFiles(added._jdf))
            changed |= {_name(one.path()): (None, one) for one in new}
        self._commit(changed, note)
        return True

    def _is_known(self) -> bool:
        """Is there nothing in the table that a writer would have to know besides deletion vectors?"""
        protocol = json.loads(self._snapshot.protocol().json())["protocol"]
        metadata = json.loads(self._snapshot.metadata().json())["metaData"]
        return (
            set(protocol.get("writerFeatures", ["none"])) <= _KNOWN
            and not metadata["partitionColumns"]
            and metadata["configuration"].get("delta.enableDeletionVectors") == "true"
        )

    def _read_files(self) -> None:
        found = self._snapshot.allFiles().collectAsList()
        self._table.files = {_name(one.path()): self._described(one) for one in found}
        if len(self._table.files) != len(found):
            raise RecensionError(f"{self._table.path}: two files of one name")

    def _described(self, file: Any) -> LogFile:
        told = json.loads(file.stats() or "{}")
        shape, least, most = self._table.shape, told.get("minValues", {}), told.get("maxValues", {})
        has_nulls = told.get("nullCount", {}).get(shape.end, 1) > 0
        return LogFile(
            file,
            told.get("numRecords", -1),
            _ticks(least.get(shape.start), -np.inf),
            _ticks(most.get(shape.start), np.inf, _CUT),
            np.inf if has_nulls else _ticks(most.get(shape.end), np.inf, _CUT),
        )

    def _find(self, change: SmallChange) -> Found:
        """Where the events of a change are. The plan has no literals, so that Spark compiles it once."""
        starts = np.unique(change.starts)
        looked = [
            file.action
            for file in self._table.files.values()
            if file.latest_end >= change.cti
            and np.searchsorted(starts, file.first) < np.searchsorted(starts, file.last, "right")
        ]
        none = self._jvm.scala.Option.empty()
        frame = self._log.createDataFrame(self._snapshot, self._sequence(looked), False, none)
        there = DataFrame(frame, self._spark).select(
            "*", F.col("_metadata.file_path").alias(_FILE), F.col("_metadata.row_index").alias(_ROW)
        )
        met = F.broadcast(change.events.alias("s")).join(there.alias("t"), F.expr(change.is_equal))
        columns = [F.col(f"s.{EVENT}"), *(F.col(f"t.{quoted(name)}") for name in (ORDINAL, _FILE, _ROW))]
        return Found.of(met.select(*columns).toArrow())

    def _remove(self, found: Found) -> dict[str, FileActions]:
        """Deletion vectors for rows, as actions by the files' names."""
        vectors = _VectorFile(self._jvm, self._log)
        names = np.asarray([_name(file) for file in found.files])
        done: dict[str, FileActions] = {}
        for name in np.unique(names):
            file = self._table.files[name]
            done[name] = vectors.remove_rows(file, found.rows[names == name])
        vectors.close()
        return done

    def _commit(self, changed: Mapping[str, FileActions], note: Note) -> None:
        table, before = self._table, self._snapshot.version()
        moment = self._jvm.scala.Option.apply(note.at // 1000)
        actions = [self._delta.actions.SetTransaction(note.query, note.batch, moment)]
        files = dict(table.files)
        for name, (removed, added) in changed.items():
            actions += [one for one in (removed, added) if one is not None]
            files.pop(name, None)
            if added is not None:
                files[name] = self._described(added)
        operation = self._delta.DeltaOperations.Update(self._jvm.scala.Option.empty())
        version = self._transaction.commit(self._sequence(actions), operation)
        # After a commit of somebody else in between, the files are read again.
        table.files, table.version = files, version if version == before + 1 else -1

    def _sequence(self, given: Iterable[Any]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for one in given:
            found.add(one)
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(found).toSeq()

    def _list(self, given: Any) -> list[Any]:
        return list(self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(given))


class _VectorFile:
    """A new file of deletion vectors, if there are any."""

    def __init__(self, jvm: Any, log: Any) -> None:
        self._jvm, self._delta, self._data = jvm, jvm.org.apache.spark.sql.delta, log.dataPath()
        settings = log.newDeltaHadoopConf()
        # Delta writes into the file of this name, and another attempt may have committed that: a new name.
        self._id = jvm.java.util.UUID.randomUUID()
        self._descriptor = self._delta.actions.DeletionVectorDescriptor
        place = self._descriptor.assembleDeletionVectorPath(self._data, self._id, "")
        self._store = self._delta.storage.dv.HadoopFileSystemDVStore(settings)
        self._writer = self._store.createWriter(self._store.pathWithFileSystem(place))

    def remove_rows(self, file: LogFile, rows: Index) -> FileActions:
        """The actions that take rows out of a file; the second is none if nothing is left of it."""
        vectors = self._delta.deletionvectors
        bitmap = vectors.RoaringBitmapArray.readFrom(to_portable(rows))
        before = file.action.deletionVector()
        if before is not None:
            bitmap.merge(vectors.StoredBitmap.create(before, self._data).load(self._store))
        gone = bitmap.cardinality()
        if gone != len(rows) + (before.cardinality() if before is not None else 0):
            raise RecensionError(f"{file.action.path()}: a row was to be removed twice")
        if gone == file.rows:
            return file.action.remove(), None
        data = bitmap.serializeAsByteArray(vectors.RoaringBitmapArrayFormat.Portable())
        some, none = self._jvm.scala.Option.apply, self._jvm.scala.Option.empty()
        at = some(self._writer.write(data).offset())
        told = self._descriptor.onDiskWithRelativePath(self._id, "", len(data), gone, at, none)
        both = file.action.removeRows(told, True, True)
        return both.productElement(1), both.productElement(0)

    def close(self) -> None:
        """Write what there is."""
        self._writer.close()


def _delta_version(spark: SparkSession) -> str:
    try:
        return str(spark._jvm.io.delta.package.VERSION())
    except (TypeError, Py4JJavaError):
        return ""


def _name(path: str) -> str:
    return PurePosixPath(path).name


def _ticks(told: int | str | None, unknown: float, more: int = 0) -> float:
    """A time in the log; instants are texts there."""
    if told is None:
        return unknown
    if isinstance(told, int):
        return told
    try:
        moment = datetime.fromisoformat(told if told.endswith("Z") else told + "Z")
    except ValueError:
        return unknown
    return round(moment.timestamp() * 1_000_000) + more
