"""What a lake format does for one table, and what a commit says of its micro-batch.

A format is a class with the methods of `LakeTable`. Every commit carries a `Note` in its own metadata: it is
there if and only if the rows are, so it says what the table has. The session is an argument throughout: a
query runs in one of its own, and a Connect server gets the table without any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from recension.runners.spark.lake.delta_commit import DeltaCommits
    from recension.runners.spark.lake.shape import Shape

_MARK: Final = "recension"


@dataclass(frozen=True, slots=True)
class Note:
    """Of which query and micro-batch a commit is, what that was made of, and how far the stream has come.

    ``at`` is when the micro-batch was planned (`MicroBatch.at`).
    """

    query: str
    batch: int
    content: str
    cti: int
    offsets: tuple[str, ...] = ()
    at: int = 0

    def to_json(self) -> str:
        """For the metadata of a commit."""
        return json.dumps({_MARK: asdict(self)})

    @staticmethod
    def from_json(text: str | None) -> Note | None:
        """What `to_json` gave; none if the metadata is somebody else's."""
        try:
            stored = json.loads(text or "")[_MARK]
            offsets = tuple(map(str, stored["offsets"]))
            return Note(
                str(stored["query"]),
                int(stored["batch"]),
                str(stored["content"]),
                int(stored["cti"]),
                offsets,
                int(stored.get("at", 0)),
            )
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A version of a table, when it was made (microseconds since 1970), and its note if it is of ours."""

    version: int
    at: int
    note: Note | None


class LakeTable(Protocol):
    """One table: ``name`` is what users call it, ``sql`` what SQL does, ``path`` where it is, if known."""

    @property
    def name(self) -> str: ...

    @property
    def sql(self) -> str: ...

    @property
    def path(self) -> str | None: ...

    def require_session(self, spark: SparkSession) -> None:
        """Refuse a session that cannot write the format, and say what it lacks."""

    def columns(self, spark: SparkSession) -> StructType | None:
        """The columns; none if there is no such table."""

    def properties(self, spark: SparkSession) -> dict[str, str]:
        """The properties that `create` and `claim` set, and others."""

    def create(self, spark: SparkSession, columns: StructType, properties: Mapping[str, str]) -> None:
        """Make the table, without rows."""

    def claim(self, spark: SparkSession, properties: Mapping[str, str]) -> None:
        """Add properties to a table that a user has made."""

    def commits(self, spark: SparkSession) -> Iterator[TableCommit]:
        """The commits, newest first."""

    def append(self, frame: DataFrame, note: Note) -> None:
        """Append rows in one commit with the note; nothing if the note's query has done so before."""

    def merge(self, rows: DataFrame, statement: str, note: Note, is_local: bool) -> None:
        """Run a MERGE as one commit with the note; nothing if the note's query has done so before.

        Its source is a view of ``rows``. If they are not local, that is few and in the driver, they may not
        be computed twice.
        """

    def small_commits(self, spark: SparkSession, shape: Shape) -> DeltaCommits | None:
        """What commits the changes that a driver has; none if a MERGE has to."""

    def read(self, spark: SparkSession, version: int | None = None) -> DataFrame:
        """The rows now, or at a version."""

    def stream(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Rows that are appended, as a streaming DataFrame."""


# A micro-batch is small and its statements differ in their literals: to compile each, and to plan it again
# between its stages, costs more than the rows.
SMALL: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}


@contextmanager
def set_for_now(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of the query's own session, put back afterwards: its next micro-batch is planned with them."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)


def schema_unless(missing: Iterable[str], read: Callable[[], DataFrame]) -> StructType | None:
    """The columns of what is read; none if Spark refuses it for one of these reasons."""
    try:
        return read().schema
    except AnalysisException as why:
        if any(condition in str(why) for condition in missing):
            return None
        raise


def read_properties(spark: SparkSession, table: str) -> dict[str, str]:
    """The properties of a table, by its name in SQL."""
    return {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}


def listed(properties: Mapping[str, str]) -> str:
    """Properties as SQL has them in brackets."""
    return ", ".join(f"{text(key)} = {text(value)}" for key, value in properties.items())


def column_list(columns: StructType) -> str:
    """Columns as SQL has them in brackets."""
    return ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in columns)


def quoted(*names: str) -> str:
    """A name in SQL, of one part or more."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def text(value: str) -> str:
    """A literal in SQL. Spark reads what a backslash escapes."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
