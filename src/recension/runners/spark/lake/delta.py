"""A table in Delta.

A commit has a transaction: an application (our query) and a version (its micro-batch). Delta itself leaves
out a write whose version the table has, whoever runs it; `sinks` looks at more than the number before that.
The note is in the commit's ``userMetadata``, which ``DESCRIBE HISTORY`` shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from recension.core.errors import RecensionError
from recension.runners.spark.lake.delta_commit import LOG, USER_METADATA, DeltaCommits
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
)
from recension.runners.spark.session import is_connect

SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_MISSING: Final = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE",
    "PATH_NOT_FOUND",
)
_NEW_TABLE: Final = {"delta.enableDeletionVectors": "true"}
# The log has a file for each commit: the last ones are asked for first.
_COMMITS: Final = (16, 256, 0)
_SMALL: Final = SMALL | {"spark.databricks.delta.merge.materializeSource": "none"}
_LARGE: Final = {"spark.databricks.delta.merge.materializeSource": "all"}


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """By its path, or by its name in a catalog."""

    name: str
    sql: str
    path: str | None = None

    @staticmethod
    def at(path: str) -> DeltaTable:
        """The table in a directory, which may be an address of any file system of Spark's."""
        return DeltaTable(f"delta:{path}", quoted("delta", path), path)

    def require_session(self, spark: SparkSession) -> None:
        for setting, wanted in SETTINGS.items():
            if wanted not in (spark.conf.get(setting, "") or ""):
                given = ", ".join(f"{key}={value}" for key, value in SETTINGS.items())
                raise RecensionError(
                    f"{self.name}: the session cannot write Delta: make it with Delta's jars (spark.jars) "
                    f"and the settings {given}"
                )

    def columns(self, spark: SparkSession) -> StructType | None:
        return schema_unless(_MISSING, lambda: spark.table(self.sql))

    def properties(self, spark: SparkSession) -> dict[str, str]:
        return read_properties(spark, self.sql)

    def create(self, spark: SparkSession, columns: StructType, properties: Mapping[str, str]) -> None:
        given = f"USING delta TBLPROPERTIES ({listed({**_NEW_TABLE, **properties})})"
        with set_for_now(spark, LOG):
            spark.sql(f"CREATE TABLE {self.sql} ({column_list(columns)}) {given}")

    def claim(self, spark: SparkSession, properties: Mapping[str, str]) -> None:
        spark.sql(f"ALTER TABLE {self.sql} SET TBLPROPERTIES ({listed(properties)})")

    def commits(self, spark: SparkSession) -> Iterator[TableCommit]:
        oldest: int | None = None
        for limit in _COMMITS:
            found = spark.sql(f"DESCRIBE HISTORY {self.sql}" + (f" LIMIT {limit}" if limit else ""))
            at = F.unix_micros("timestamp").alias("at")
            rows = found.select("version", at, "userMetadata").orderBy(F.desc("version")).collect()
            # While this is read, others may commit.
            for row in rows if oldest is None else [row for row in rows if row["version"] < oldest]:
                oldest = row["version"]
                yield TableCommit(row["version"], row["at"], Note.from_json(row["userMetadata"]))
            if not limit or len(rows) < limit:
                return

    def append(self, frame: DataFrame, note: Note) -> None:
        with set_for_now(frame.sparkSession, _transaction(note) | LOG):
            frame.writeTo(self.sql).append()

    def merge(self, rows: DataFrame, statement: str, note: Note, is_local: bool) -> None:
        with set_for_now(rows.sparkSession, _transaction(note) | LOG | (_SMALL if is_local else _LARGE)):
            rows.sparkSession.sql(statement).collect()

    def small_commits(self, spark: SparkSession, shape: Shape) -> DeltaCommits | None:
        return None if self.path is None or is_connect(spark) else DeltaCommits(self.path, shape)

    def read(self, spark: SparkSession, version: int | None = None) -> DataFrame:
        if version is None:
            return spark.table(self.sql)
        try:
            return spark.sql(f"SELECT * FROM {self.sql} VERSION AS OF {version}")
        except PySparkException as why:
            reason = " ".join(str(why).split())
            raise RecensionError(f"{self.name}: version {version} cannot be read: {reason}") from None

    def stream(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        return spark.readStream.format("delta").options(**options).table(self.sql)


def _transaction(note: Note) -> dict[str, str]:
    return {
        "spark.databricks.delta.write.txnAppId": note.query,
        "spark.databricks.delta.write.txnVersion": str(note.batch),
        USER_METADATA: note.to_json(),
    }
