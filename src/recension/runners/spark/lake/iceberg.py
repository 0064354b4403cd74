"""A table in Iceberg, by its name in a catalog.

Iceberg puts a write on top of whatever is there when it commits: two that both looked before would both be in
the table. So a write is staged first, as a snapshot that no reader sees, and then published:

    look        the snapshot on which the staged one stands must end with the micro-batch before this one
    publish     the staged snapshot becomes the current one, if that is still the one on which it stands

The second step is one atomic change of the table's metadata. If another commit came in between, such as a
compaction, Iceberg puts an append on top of it, unless the query's micro-batch (its ``wap.id``) is there by
now; anything else is left behind and made again. What is left behind goes with `expire_snapshots`.

The note is in the summary of the staged snapshot, under ``recension``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as kinds
from pyspark.sql.types import StructType

from recension.core.errors import RecensionError, SchemaError
from recension.runners.spark.failures import reason_of
from recension.runners.spark.lake.iceberg_snapshots import (
    ATTEMPT,
    NOTE,
    commits_from,
    java_table,
    snapshots_of,
)
from recension.runners.spark.lake.shape import Shape
from recension.runners.spark.lake.table import (
    SMALL,
    Note,
    TableCommit,
    column_list,
    listed,
    quoted,
    read_properties,
    schema_unless,
    set_for_now,
    text,
)
from recension.runners.spark.session import is_connect

_PROPERTY: Final = "spark.sql.iceberg.snapshot-property."
_STAGED: Final = {"write.wap.enabled": "true"}
# Version 2 is what most readers know. Rows that are removed are listed, and no file is written anew.
_NEW_TABLE: Final = {
    **_STAGED,
    "format-version": "2",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.distribution-mode": "none",
    "write.merge.distribution-mode": "none",
    "write.delete.distribution-mode": "none",
}
_MISSING: Final = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "NoSuchNamespaceException")
# What Iceberg says if another commit came first.
_CONFLICT: Final = (
    "not append, dynamic overwrite, or fast-forward",
    "CommitFailedException",
    "Found conflicting files",
    "Found new conflicting delete",
    "DuplicateWAPCommitException",
    "already an ancestor",
)
_ATTEMPTS: Final = 8
# Iceberg's words for what happened to a row, and those of Delta's change feed.
_CHANGES: Final = {
    "INSERT": "insert",
    "DELETE": "delete",
    "UPDATE_BEFORE": "update_preimage",
    "UPDATE_AFTER": "update_postimage",
}
_SCAN_COLUMNS: Final = ("_change_type", "_change_ordinal", "_commit_snapshot_id")
_FAILURES: Final = (PySparkException, Py4JJavaError)


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """By its name in a catalog, ``catalog.schema.table``."""

    name: str
    sql: str
    path: str | None = None

    def require_session(self, spark: SparkSession) -> None:
        try:
            self.columns(spark)
        except _FAILURES as why:
            raise RecensionError(
                f"{self.name}: the session cannot write Iceberg: make it with Iceberg's jar (spark.jars): "
                f"{reason_of(why)}"
            ) from None

    def columns(self, spark: SparkSession) -> StructType | None:
        # What SQL does not find, PySpark logs as an error with all its frames.
        if not spark.catalog.tableExists(self.sql):
            return None
        return schema_unless(_MISSING, lambda: self._refreshed(spark))

    def properties(self, spark: SparkSession) -> dict[str, str]:
        return read_properties(spark, self.sql)

    def create(self, spark: SparkSession, columns: StructType, properties: Mapping[str, str]) -> None:
        for field in columns:
            if isinstance(field.dataType, kinds.ByteType | kinds.ShortType):
                kind = field.dataType.simpleString()
                raise SchemaError(
                    f"{self.name}: column {field.name} is {kind}, which Iceberg lacks: cast it to int32"
                )
        given = f"USING iceberg TBLPROPERTIES ({listed({**_NEW_TABLE, **properties})})"
        spark.sql(f"CREATE TABLE {self.sql} ({column_list(columns)}) {given}")

    def claim(self, spark: SparkSession, properties: Mapping[str, str]) -> None:
        given = listed({**_STAGED, **properties})
        spark.sql(f"ALTER TABLE {self.sql} SET TBLPROPERTIES ({given})")

    def commits(self, spark: SparkSession) -> Iterator[TableCommit]:
        self._refreshed(spark)
        snapshots = snapshots_of(spark, self.sql)
        return commits_from(snapshots, snapshots.current)

    def append(self, frame: DataFrame, note: Note) -> None:
        def stage(attempt: str) -> None:
            given = {f"snapshot-property.{k}": v for k, v in _summary(note, attempt).items()}
            frame.writeTo(self.sql).options(**given).append()

        self._commit(frame.sparkSession, stage, note)

    def merge(self, rows: DataFrame, statement: str, note: Note, is_local: bool) -> None:
        spark = rows.sparkSession

        def stage(attempt: str) -> None:
            given = {f"{_PROPERTY}{k}": v for k, v in _summary(note, attempt).items()}
            with set_for_now(spark, {**given, **(SMALL if is_local else {})}):
                spark.sql(statement).collect()

        self._commit(spark, stage, note)

    def small_commits(self, spark: SparkSession, shape: Shape) -> None:
        return None

    def read(self, spark: SparkSession, version: int | None = None) -> DataFrame:
        current = self._refreshed(spark)
        if version is None:
            return current
        try:
            return spark.sql(f"SELECT * FROM {self.sql} VERSION AS OF {version}")
        except PySparkException as why:
            raise RecensionError(f"{self.name}: version {version} cannot be read: {reason_of(why)}") from None

    def stream(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        return spark.readStream.format("iceberg").options(**options).table(self.sql)

    def changes(self, spark: SparkSession, since: int | None = None) -> DataFrame:
        """The rows that commits added and removed, after a snapshot or from the beginning, as Delta has them.

        It is what `rc.delta_changes` reads: ``_change_type``, ``_commit_version`` (here they count from 0)
        and ``_commit_timestamp``.
        """
        self._refreshed(spark)
        view = f"recension_changes_{uuid4().hex}"
        start = "" if since is None else f", options => map('start-snapshot-id', '{since}')"
        spark.sql(
            f"CALL {quoted(self._catalog)}.system.create_changelog_view("
            f"table => {text(self._in_catalog)}, changelog_view => '{view}'{start})"
        ).collect()
        found = spark.table(view)
        times = spark.sql(f"SELECT snapshot_id, committed_at FROM {self.sql}.snapshots")
        kind = F.create_map(*(F.lit(word) for pair in _CHANGES.items() for word in pair))[
            F.col("_change_type")
        ]
        columns = [F.col(quoted(name)) for name in found.columns if name not in _SCAN_COLUMNS]
        return found.join(F.broadcast(times), found["_commit_snapshot_id"] == times["snapshot_id"]).select(
            *columns,
            kind.alias("_change_type"),
            F.col("_change_ordinal").cast("bigint").alias("_commit_version"),
            F.col("committed_at").alias("_commit_timestamp"),
        )

    def _refreshed(self, spark: SparkSession) -> DataFrame:
        """The table as it is now: a session keeps what it has seen, and a query has one of its own."""
        spark.sql(f"REFRESH TABLE {self.sql}")
        return spark.table(self.sql)

    @property
    def _catalog(self) -> str:
        return self.name.partition(".")[0]

    @property
    def _in_catalog(self) -> str:
        return self.name.partition(".")[2]

    def _commit(self, spark: SparkSession, stage: Callable[[str], None], note: Note) -> None:
        """Stage a write, look on what it stands, and publish it; again if something else came first."""
        for attempts_left in reversed(range(_ATTEMPTS)):
            # Of its own, and never another attempt's: what is published must stand on what this one has seen.
            attempt = uuid4().hex
            try:
                with set_for_now(spark, {"spark.wap.id": f"{note.query}:{note.batch}"}):
                    stage(attempt)
                staged = self._staged(spark, attempt, note)
                if staged is not None:
                    self._publish(spark, staged)
                return
            except _FAILURES as why:
                if not attempts_left or not any(words in str(why) for words in _CONFLICT):
                    raise

    def _staged(self, spark: SparkSession, attempt: str, note: Note) -> int | None:
        """The staged snapshot, if it stands on the micro-batch before; none if the table has this one."""
        snapshots = snapshots_of(spark, self.sql)
        staged = next(one for one in snapshots.newest_first() if one.attempt == attempt)
        notes = (commit.note for commit in commits_from(snapshots, staged.parent))
        for before in (note for note in notes if note is not None):
            if before.batch < note.batch:
                break
            if before.batch == note.batch:
                if (before.query, before.content) != (note.query, note.content):
                    raise RecensionError(
                        f"{self.name}: another writer has just committed a micro-batch {note.batch} of other "
                        "input; let only one query write to a table"
                    )
                return None
        return staged.number

    def _publish(self, spark: SparkSession, snapshot: int) -> None:
        if not is_connect(spark):
            java_table(spark, self.sql).manageSnapshots().cherrypick(snapshot).commit()
            return
        call = f"{quoted(self._catalog)}.system.cherrypick_snapshot({text(self._in_catalog)}, {snapshot})"
        spark.sql(f"CALL {call}").collect()


def _summary(note: Note, attempt: str) -> dict[str, str]:
    return {NOTE: note.to_json(), ATTEMPT: attempt}
