"""What the sinks wrote, as DataFrames."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from recension.core.errors import FormatError
from recension.core.formats.changelog import OLD_FORMAT, changelog_parts, read_mark
from recension.core.formats.files import require_size
from recension.core.formats.manifest import FILE, FOLDER, ROW, current_manifest, is_table
from recension.runners.spark.session import check
from recension.runners.spark.sinks.files import AnyPath, local_path, spark_pattern

_FILE, _ROW = "_file", "_row"
# Our pages carry checksums, which Spark checks only with this option.
_CHECKED = {"parquet.page.verify-checksum.enabled": "true"}


def read_history(spark: SparkSession, path: AnyPath) -> DataFrame:
    """The history in a table as it is now: ``_vs``, ``_ve`` and the payload.

    The DataFrame stays at that version, whatever is committed later, for as long as the writer keeps files
    that fell out of use (15 minutes by default).
    """
    check(spark)
    table = local_path(path)
    manifest = current_manifest(table) if is_table(table) else None
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
    return events.unionByName(rows.join(deletions, is_deleted, "left_anti").select(*events.columns))


def read_changelog(spark: SparkSession, path: AnyPath) -> DataFrame:
    """The elements in a changelog so far, to be ordered by ``_batch`` and ``_seq``."""
    check(spark)
    directory = local_path(path)
    mark, paths = read_mark(directory), [directory]
    if mark is not None and mark.format != OLD_FORMAT:
        paths = [part.path for part in changelog_parts(directory, mark)]
    if mark is None or not paths:
        raise FormatError("not a changelog, or one to which nothing was written yet", file=str(directory))
    return spark.read.options(**_CHECKED).parquet(*map(spark_pattern, paths))
