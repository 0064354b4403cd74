"""What the sinks wrote, as DataFrames."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from recension.core.bitemporal import FROM, refuse_belief_columns
from recension.core.errors import FormatError, RecensionError
from recension.core.formats.changelog import OLD_FORMAT, changelog_parts, parts_with_times, read_mark
from recension.core.formats.files import require_size
from recension.core.formats.manifest import FILE, FOLDER, ROW, find_manifest, is_table
from recension.core.formats.versions import Version
from recension.core.ticks import TimeLike
from recension.runners.spark.batch.bitemporal import believed_events
from recension.runners.spark.lake.places import lake_table
from recension.runners.spark.lake.reading import read_lake_changelog, read_lake_history
from recension.runners.spark.session import check
from recension.runners.spark.sinks.files import AnyPath, local_path, spark_pattern
from recension.runners.spark.stream.inputs import column_named
from recension.runners.spark.types import arrow_schema

_FILE, _ROW = "_file", "_row"
# Our pages carry checksums, which Spark checks only with this option.
_CHECKED = {"parquet.page.verify-checksum.enabled": "true"}


def read_history(
    spark: SparkSession, path: AnyPath, *, version: int | None = None, as_of: TimeLike | None = None
) -> DataFrame:
    """The history in a table: ``_vs``, ``_ve`` and the payload, as it is now or as it was before.

    ``version`` is a number of micro-batches, ``as_of`` a wall-clock time: a datetime or ISO text with a zone,
    or microseconds since 1970. The writer keeps versions for ``keep=`` (15 minutes by default); a version
    that is gone is refused. For that time the DataFrame stays at its version, whatever is committed later. A
    table in a lake format (``"delta:PATH"``, ``"catalog.schema.table"``) keeps versions by the rules of the
    format.
    """
    check(spark)
    asked = Version.from_request(version, as_of)
    if (lake := lake_table(spark, path)) is not None:
        return read_lake_history(spark, lake, asked)
    table = local_path(path)
    manifest = find_manifest(table, asked) if is_table(table) else None
    if manifest is None or manifest.batch < 0:
        raise FormatError("not a history table, or one to which nothing was committed yet", file=str(table))
    for name, seal in manifest.seals().items():
        require_size(table / FOLDER / name, seal)
    folder = spark_pattern(table / FOLDER)
    whole = [file.name for file in manifest.files if not file.deleted]
    torn = [file.name for file in manifest.files if file.deleted]
    schema = spark.read.parquet(f"{folder}/{manifest.schema}").schema
    reader = spark.read.options(**_CHECKED).schema(schema)
    events = reader.parquet(*(f"{folder}/{name}" for name in (manifest.schema, *whole)))
    if not torn:
        return events
    deletions = spark.read.options(**_CHECKED).parquet(
        *(f"{folder}/{file.name}" for file in manifest.deletions)
    )
    place = [F.col("_metadata.file_name").alias(_FILE), F.col("_metadata.row_index").alias(_ROW)]
    rows = reader.parquet(*(f"{folder}/{name}" for name in torn)).select("*", *place)
    is_deleted = (F.col(_FILE) == deletions[FILE]) & (F.col(_ROW) == deletions[ROW])
    kept = rows.join(deletions, is_deleted, "left_anti").select(*map(column_named, events.columns))
    return events.unionByName(kept)


def read_changelog(spark: SparkSession, path: AnyPath) -> DataFrame:
    """The elements in a changelog so far; order them by ``_batch`` and ``_seq``."""
    check(spark)
    if (lake := lake_table(spark, path)) is not None:
        return read_lake_changelog(spark, lake)
    directory = local_path(path)
    mark, paths = read_mark(directory), [directory]
    if mark is not None and mark.format != OLD_FORMAT:
        paths = [part.path for part in changelog_parts(directory, mark)]
    if mark is None or not paths:
        raise FormatError("not a changelog, or one to which nothing was written yet", file=str(directory))
    return spark.read.options(**_CHECKED).parquet(*map(spark_pattern, paths))


def read_bitemporal(spark: SparkSession, path: AnyPath) -> DataFrame:
    """Every event that a changelog ever contained, with the times from and until which it was believed.

    ``_vs`` and ``_ve`` say when it is true. ``believed_from`` and ``believed_to`` (null: still believed) are
    the times of the micro-batches that inserted and retracted it. The rows with ``believed_from <= t`` and
    ``believed_to > t``, or null, are what was believed at ``t``.
    """
    check(spark)
    if lake_table(spark, path) is not None:
        raise RecensionError(
            f"{path}: read_bitemporal reads changelogs in directories, whose parts have times"
        )
    directory = local_path(path)
    mark = read_mark(directory)
    if mark is None or mark.format == OLD_FORMAT:
        raise FormatError("not a changelog, whose micro-batches have times", file=str(directory))
    parts = parts_with_times(directory, mark, Version())
    rows = spark.read.options(**_CHECKED).parquet(*(spark_pattern(part.path) for part in parts))
    refuse_belief_columns(arrow_schema(rows.schema))
    times = spark.createDataFrame([(p.path.name, p.at) for p in parts], f"{_FILE} string, {FROM} long")
    named = rows.select("*", F.col("_metadata.file_name").alias(_FILE))
    return believed_events(named.join(F.broadcast(times), _FILE).drop(_FILE), str(directory))
