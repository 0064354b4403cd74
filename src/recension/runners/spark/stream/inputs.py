"""Streaming DataFrames as inputs: the columns that matter, in an order that can be relied on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from recension.core.errors import RecensionError, SchemaError
from recension.core.formats import open_stream
from recension.core.formats.columns import BATCH, CONTROL, KIND, SEQ, TimeColumns, describe_missing, layout_of
from recension.core.formats.manifest import is_table
from recension.core.time_kind import TimeKind
from recension.plan.nodes import Source
from recension.runners.spark.sinks.files import spark_pattern
from recension.runners.spark.stream.names import column_named, plain_name, refuse_alike
from recension.runners.spark.stream.packets import ORDER, ROW
from recension.runners.spark.stream.packing import FILE, FilePacker, SourcePacker
from recension.runners.spark.stream.topology import Inlet, Topology
from recension.runners.spark.types import arrow_schema

_WATERMARK = "spark.watermarkDelayMs"
# Within a micro-batch files are in the order of their names, whenever they were written.
_BYTES = str(256 << 20)
# Spark overlooks files so much older than the latest: one that is moved or copied here may well be.
_EVER = "36500d"
_BINARY_FILE = "path string, modificationTime timestamp, length long, content binary"


@dataclass(frozen=True)
class Input:
    """A DataFrame ready to be packed, and how its rows come."""

    frame: DataFrame
    inlet: Inlet
    kind: TimeKind
    packer: Callable[[Topology, str, int, list[int]], SourcePacker] = SourcePacker
    is_quickly_read: bool = False
    """Files of columns, which every shard may as well read for itself?"""


def read_folder(
    spark: SparkSession,
    source: Source,
    folder: Path,
    files: int | None,
    delay: int | None = None,
    closing: Path | None = None,
) -> Input:
    """A folder of stream files as an input: the tasks read them, by the same rules as everyone.

    The word that nothing more will come is a file as well, in the folder ``closing``.
    """
    if "://" in str(folder):
        raise RecensionError(f"{folder}: tasks read folders of the file system; give a streaming DataFrame")
    folder = folder.absolute()
    require_seen_by_spark(folder)
    reader = open_stream(folder, schema=source.columns, start=source.start, end=source.end)
    frame = found_files(spark, folder, files)
    if closing is not None:
        closing.mkdir(parents=True, exist_ok=True)
        frame = frame.union(found_files(spark, closing, None))
    return Input(frame, Inlet((), delay), reader.kind, FilePacker, reader.is_typed)


def found_files(spark: SparkSession, folder: Path, files: int | None, **options: str) -> DataFrame:
    """The names of files as they come; nothing is read of them."""
    reader = spark.readStream.format("binaryFile").schema(_BINARY_FILE)
    limit = {"maxBytesPerTrigger": _BYTES} if files is None else {"maxFilesPerTrigger": str(files)}
    if folder.is_file():
        limit["pathGlobFilter"] = spark_pattern(Path(folder.name)).removeprefix("file:")
    reader = reader.options(maxFileAge=_EVER, **limit, **options)
    return reader.load(spark_pattern(folder.parent if folder.is_file() else folder)).select("path")


def require_seen_by_spark(folder: Path) -> None:
    """Refuse what Spark would silently take for nothing."""
    if folder.is_file() and folder.name[0] in "_.":
        raise RecensionError(f"{folder}: Spark overlooks files whose names begin with _ or a dot: rename it")
    if is_table(folder):
        raise RecensionError(
            f"{folder}: a history table changes under its readers and is no stream; read the changelog of "
            "the query that writes it, or the table with rc.spark.read_history in a batch query"
        )


def read_input(source: Source, frame: DataFrame, order_by: tuple[str, ...]) -> Input:
    """Check a DataFrame against the source it is for, and put its rows' order into columns."""
    if not frame.isStreaming:
        raise RecensionError(
            f"{source.name}: the DataFrame is not a stream (spark.readStream makes one); "
            "for finite data use rc.spark.batch"
        )
    names = frame.columns
    is_stream = KIND in names
    times = TimeColumns() if is_stream else TimeColumns(source.start, source.end)
    kept = [n for n in names if n in {*CONTROL, times.vs, times.ve, *source.columns.names}]
    wanted = {name.lower() for name in kept}
    refuse_alike(frame.sparkSession, [n for n in names if n.lower() in wanted], source.name)
    schema = arrow_schema(frame.select(*(column_named(name) for name in kept)).schema)
    layout = layout_of(schema, times, source.name)
    require_payload(source, layout.payload)
    order, columns = _order(source, frame, order_by, is_stream)
    picked = [column_named(name).alias(plain_name(name)) for name in kept if name not in (BATCH, SEQ)]
    delay = _delay(frame, times.vs)
    return Input(frame.select(*picked, *columns), Inlet(order, delay), layout.kind)


def _order(
    source: Source, frame: DataFrame, order_by: tuple[str, ...], is_stream: bool
) -> tuple[tuple[str, ...], list[Column]]:
    """Which columns put rows in order, and the columns that carry it."""
    if not order_by and BATCH in frame.columns and SEQ in frame.columns:
        order_by = (BATCH, SEQ)
    if order_by:
        return order_by, [_ordering(frame, name).alias(f"{ORDER}{i}") for i, name in enumerate(order_by)]
    if not is_stream:
        return (), []
    places = [F.col("_metadata.file_path").alias(FILE), (F.col("_metadata.row_index") + 1).alias(ROW)]
    try:
        frame.select(*places)
    except AnalysisException:
        raise RecensionError(
            f"{source.name}: rows of a stream with {KIND} need an order; name the columns that give it, "
            f'such as order_by={{"{source.name}": ["offset"]}}'
        ) from None
    return (), places


def _ordering(frame: DataFrame, name: str) -> Column:
    """A column, or else a place within one, such as ``headers.offset``."""
    return column_named(name) if name in frame.columns else F.col(name)


def _delay(frame: DataFrame, start: str) -> int | None:
    """The delay of the watermark on the column of starts, in ticks."""
    if start not in frame.columns:
        return None
    milliseconds = (frame.schema[start].metadata or {}).get(_WATERMARK)
    return None if milliseconds is None else int(milliseconds) * 1000


def require_payload(source: Source, found: pa.Schema) -> None:
    """Refuse columns that are missing or of a kind that cannot be read as the source's."""
    if (reason := describe_missing(source.columns, found)) is not None:
        raise SchemaError(f"{source.name}: {reason}")
    for field in source.columns:
        there = found.field(field.name).type
        if not _fits(there, field.type):
            raise SchemaError(f"{source.name}: column {field.name} is {there}, the source says {field.type}")


def _fits(there: pa.DataType, wanted: pa.DataType) -> bool:
    def is_number(kind: pa.DataType) -> bool:
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))

    def is_text(kind: pa.DataType) -> bool:
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))

    def is_bytes(kind: pa.DataType) -> bool:
        tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
        return any(test(kind) for test in tests)

    if there == wanted or pa.types.is_null(there):
        return True
    families = (is_number, is_text, is_bytes, pa.types.is_temporal, pa.types.is_nested)
    return any(family(there) and family(wanted) for family in families)
