"""What the sinks wrote to tables of lake formats, as DataFrames."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from recension.core.errors import FormatError, RecensionError
from recension.core.formats.versions import Version, describe_clock
from recension.runners.spark.lake.shape import Shape
from recension.runners.spark.lake.sinks import KIND_OF_TABLE, LakeChangelog, LakeHistory
from recension.runners.spark.lake.table import LakeTable


def read_lake_history(spark: SparkSession, table: LakeTable, asked: Version) -> DataFrame:
    """The history in a table, as `read_history` gives it."""
    properties = _properties(spark, table, LakeHistory.noun)
    return Shape.of(properties).history(table.read(spark, _version(spark, table, asked)))


def read_lake_changelog(spark: SparkSession, table: LakeTable) -> DataFrame:
    """The elements in a changelog so far."""
    _properties(spark, table, LakeChangelog.noun)
    return table.read(spark)


def _properties(spark: SparkSession, table: LakeTable, noun: str) -> dict[str, str]:
    properties = table.properties(spark) if table.columns(spark) is not None else {}
    if properties.get(KIND_OF_TABLE) != noun:
        raise FormatError(f"not a {noun} that rc.spark.write wrote", file=table.name)
    return properties


def _version(spark: SparkSession, table: LakeTable, asked: Version) -> int | None:
    """The format's own version: after so many micro-batches, or that of a time."""
    if asked.is_newest:
        return None
    for commit in table.commits(spark):
        if asked.as_of is not None and commit.at <= asked.as_of:
            return commit.version
        if asked.as_of is None and commit.note is not None and commit.note.batch + 1 == asked.number:
            return commit.version
    if asked.as_of is not None:
        raise RecensionError(f"{table.name}: at {describe_clock(asked.as_of)} there was no such table yet")
    raise RecensionError(f"{table.name}: no commit after {asked.number} micro-batches")
