"""The snapshots of an Iceberg table, staged ones too: of which micro-batch they are, and on which they stand.

A classic session asks Iceberg's own classes, in the driver. On Connect there is only SQL, and a query of the
metadata tables is some jobs of Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pyspark.sql import SparkSession

from recension.runners.spark.lake.table import Note, TableCommit, text
from recension.runners.spark.session import is_connect

NOTE: Final = "recension"
ATTEMPT: Final = "recension.attempt"
_SOURCE: Final = "source-snapshot-id"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One of them: that below it, when it was made (microseconds since 1970), what its summary says."""

    number: int
    parent: int | None
    at: int
    note: str | None
    attempt: str | None
    source: int | None


class Snapshots(Protocol):
    """All of a table; ``current`` is what readers see."""

    current: int | None

    def get(self, number: int | None) -> Snapshot | None:
        """One by its number; none if it has expired."""

    def newest_first(self) -> Iterator[Snapshot]:
        """All of them, as they were made."""


def snapshots_of(spark: SparkSession, table: str) -> Snapshots:
    """Those of a table by its name in SQL, as they are now."""
    return SqlSnapshots(spark, table) if is_connect(spark) else JavaSnapshots(java_table(spark, table))


def commits_from(snapshots: Snapshots, last: int | None) -> Iterator[TableCommit]:
    """A snapshot and those on which it stands, newest first, as far as they have not expired."""
    while (one := snapshots.get(last)) is not None:
        # An append that was put on top of another commit has a new summary, which names the staged snapshot.
        source = snapshots.get(one.source)
        told = one.note or (source.note if source is not None else None)
        yield TableCommit(one.number, one.at, Note.from_json(told))
        last = one.parent


def java_table(spark: SparkSession, table: str) -> Any:
    """A table as Iceberg itself has it, with its present metadata."""
    jvm: Any = spark._jvm
    found = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
    found.refresh()
    return found


class JavaSnapshots:
    """By Iceberg's own classes."""

    def __init__(self, table: Any) -> None:
        self._metadata = table.operations().current()
        now = self._metadata.currentSnapshot()
        self.current: int | None = None if now is None else now.snapshotId()

    def get(self, number: int | None) -> Snapshot | None:
        found = None if number is None else self._metadata.snapshot(number)
        return None if found is None else _from_java(found)

    def newest_first(self) -> Iterator[Snapshot]:
        made = self._metadata.snapshots()
        return (_from_java(made.get(at)) for at in reversed(range(made.size())))


def _from_java(found: Any) -> Snapshot:
    told = found.summary()
    source = told.get(_SOURCE)
    at = 1000 * found.timestampMillis()
    whence = None if source is None else int(source)
    return Snapshot(found.snapshotId(), found.parentId(), at, told.get(NOTE), told.get(ATTEMPT), whence)


class SqlSnapshots:
    """By the metadata tables."""

    def __init__(self, spark: SparkSession, table: str) -> None:
        found = spark.sql(
            "SELECT snapshot_id, parent_id, unix_micros(committed_at) AS at, "
            f"summary[{text(NOTE)}] AS note, summary[{text(ATTEMPT)}] AS attempt, "
            f"CAST(summary[{text(_SOURCE)}] AS BIGINT) AS source_id, "
            f"snapshot_id = (SELECT max(snapshot_id) FROM {table}.refs WHERE name = 'main') AS is_current "
            f"FROM {table}.snapshots ORDER BY committed_at"
        ).collect()
        self._by_number = {row["snapshot_id"]: Snapshot(*row[:6]) for row in found}
        self.current = next((row["snapshot_id"] for row in found if row["is_current"]), None)

    def get(self, number: int | None) -> Snapshot | None:
        return None if number is None else self._by_number.get(number)

    def newest_first(self) -> Iterator[Snapshot]:
        return reversed(self._by_number.values())
