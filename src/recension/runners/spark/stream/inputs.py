"""Inputs of a pipeline: streaming DataFrames, folders of files, and roots.

A root is a folder whose sub-folders are streams that a merge reads, with small files on who joins and leaves:

    root/
        a/                  a stream, as rc.spark.write_changelog writes it
            part-000000000000.parquet
        b/
        b.join              {"from_time": 1700000000000000}: b is complete for all that ends then or later
        a.leave             a does not count any more
        _feedback/          what the merge no longer needs of anybody

Everything goes through Spark's own log of files: a micro-batch that is run again gets the same files, and the
same messages of who joins and leaves. So files must never change, and appear as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from os import fspath
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from recension.core.errors import FormatError, RecensionError, SchemaError, suggest_name
from recension.core.formats.columns import (
    BATCH,
    CONTROL,
    KIND,
    RUN,
    SEQ,
    TimeColumns,
    describe_missing,
    describe_missing_column,
    layout_of,
)
from recension.core.formats.listing import NO_FILES, StoredFile, is_data_file
from recension.core.formats.manifest import is_table
from recension.core.formats.reader import StreamFiles, open_file
from recension.core.formats.stream_files import StreamFile, agreed_payload
from recension.core.ticks import TimeLike, instant
from recension.core.time_kind import OneKind, TimeKind, kind_of, merge_kinds
from recension.gate.decode import open_source
from recension.plan.nodes import Source
from recension.runners.exchange.packets import NAMED, ORDER, ROW
from recension.runners.spark.sinks.files import (
    AnyPath,
    escape_wildcards,
    is_local,
    local_path,
    publish_text,
    spark_pattern,
)
from recension.runners.spark.stream.membership import JOIN, LEAVE, RootPacker
from recension.runners.spark.stream.metrics import first_conflict
from recension.runners.spark.stream.packing import FILE, FilePacker, SourcePacker, path_of, plain_name
from recension.runners.spark.stream.remote_files import (
    BytesPacker,
    fetch_files,
    list_files,
    require_stream_files,
)
from recension.runners.spark.stream.topology import OBSERVED, Inlet, Topology
from recension.runners.spark.types import arrow_schema

_WATERMARK = "spark.watermarkDelayMs"
# Within a micro-batch files are in the order of their names, whenever they were written.
_BYTES = str(256 << 20)
# Spark ignores files that are so much older than the latest: one that is moved or copied here may well be.
_EVER = "36500d"
# How the output of a pipeline was made: Spark cannot rename what is observed of a DataFrame.
_builders: Final[WeakKeyDictionary[DataFrame, Callable[[Mapping[str, int]], DataFrame]]] = WeakKeyDictionary()
# The same for times of another kind, where no file shows it yet.
_kinds: Final[WeakKeyDictionary[DataFrame, Callable[[TimeKind], DataFrame]]] = WeakKeyDictionary()
_BINARY_FILE = "path string, modificationTime timestamp, length long, content binary"


@dataclass(frozen=True)
class InputFrame:
    """A DataFrame ready to be packed, and how its rows come."""

    frame: DataFrame
    inlet: Inlet
    kind: TimeKind
    packer: Callable[[Topology, str, int, list[int]], SourcePacker] = SourcePacker
    is_quickly_read: bool = False
    """Files of columns, which every shard may as well read for itself?"""
    empty: str = ""
    """The folder or address, if there is no file: its query may have taken all, and more will come."""
    observed: Mapping[str, int] = field(default_factory=dict)
    """The pipelines that it comes out of in the same query, by the names of their metrics."""
    rename: Callable[[Mapping[str, int]], InputFrame] | None = None
    """The same of pipelines whose metrics have none of these names; None if that cannot be made."""


def read_folder(
    spark: SparkSession,
    source: Source,
    given: AnyPath,
    files: int | None,
    delay: int | None = None,
    closing: Path | None = None,
) -> InputFrame:
    """A folder of stream files as an input: the tasks read them, by the same rules as everyone.

    That nothing more will come is said by a file as well, in the folder ``closing``.
    """
    if not is_local(given):
        return _read_remote_folder(spark, source, fspath(given), files, delay, closing)
    folder = local_path(given)
    require_seen_by_spark(folder)
    reader = _open_if_filled(source, folder)
    # Directories in it are partitions: also one that is not there yet.
    has_folders = bool(source.partition) and not folder.is_file()
    options = {"recursiveFileLookup": "true"} if has_folders else {}
    frame = watch_files(spark, folder, files, **options)
    if closing is not None:
        closing.mkdir(parents=True, exist_ok=True)
        frame = frame.union(watch_files(spark, closing, None))
    inlet = Inlet(delay, folder=folder if has_folders else None)
    if reader is None:
        return InputFrame(frame, inlet, None, FilePacker, empty=str(folder))
    return InputFrame(frame, inlet, reader.kind, FilePacker, reader.is_typed)


def _open_if_filled(source: Source, folder: Path) -> StreamFiles | None:
    """The files of a source, its columns checked; None if there are none, or none in one of its folders."""
    try:
        return open_source(source, folder)
    except FormatError as why:
        if why.reason != NO_FILES:
            raise
        return None


def _read_remote_folder(
    spark: SparkSession,
    source: Source,
    address: str,
    files: int | None,
    delay: int | None,
    closing: Path | None,
) -> InputFrame:
    """The same on a file system that only Spark sees: it brings the bytes of the files to the tasks."""
    given, partition = address, source.partition
    there = list_files(spark, address)
    require_stream_files(address, there, has_partitions=bool(partition))
    kind = _first_kind(spark, source, there)
    is_file = [path_of(file) for file in there] == [path_of(address)]
    options = {"recursiveFileLookup": "true"} if partition and not is_file else {}
    if is_file:
        address, name = address.rstrip("/").rsplit("/", 1)
        options["pathGlobFilter"] = escape_wildcards(name)
    frame = _watch(spark, escape_wildcards(address), files, **options).select("path", "content")
    if closing is not None:
        closing.mkdir(parents=True, exist_ok=True)
        frame = frame.union(_watch(spark, spark_pattern(closing), None).select("path", "content"))
    inlet = Inlet(delay, folder=path_of(address) if partition and not is_file else None)
    return InputFrame(frame, inlet, kind, BytesPacker, empty="" if there else given)


def _first_kind(spark: SparkSession, source: Source, files: Sequence[str]) -> TimeKind:
    """The kind of times that the first file shows that has any; its columns are checked on the way.

    Tasks check all files, each as they come to it: to fetch them all beforehand would be to read them twice.
    """
    for file in files:
        with fetch_files(spark, [file]) as fetched:
            if (kind := open_source(source, fetched).kind) is not None:
                return kind
    return None


def local_folder(given: AnyPath, source: str) -> Path:
    """The folder of versions of a table; an address that is no path is refused, before `Path` mangles it."""
    if not is_local(given):
        raise RecensionError(
            f"{fspath(given)}: shards read the versions of {source!r} from disks that they see: give a "
            "folder on one (a path or file:/...)"
        )
    return local_path(given)


def watch_files(spark: SparkSession, folder: Path, files: int | None, **options: str) -> DataFrame:
    """The paths of files as they come; nothing is read of them."""
    if folder.is_file():
        options["pathGlobFilter"] = escape_wildcards(folder.name)
    found = _watch(spark, spark_pattern(folder.parent if folder.is_file() else folder), files, **options)
    return found.select("path")


def _watch(spark: SparkSession, pattern: str, files: int | None, **options: str) -> DataFrame:
    reader = spark.readStream.format("binaryFile").schema(_BINARY_FILE)
    limit = {"maxBytesPerTrigger": _BYTES} if files is None else {"maxFilesPerTrigger": str(files)}
    return reader.options(maxFileAge=_EVER, **limit, **options).load(pattern)


def require_seen_by_spark(folder: Path) -> None:
    """Refuse what Spark would silently read as empty."""
    if folder.is_file() and folder.name[0] in "_.":
        raise RecensionError(f"{folder}: Spark overlooks files whose names begin with _ or a dot: rename it")
    if is_table(folder):
        raise RecensionError(
            f"{folder}: a history table changes under its readers and is no stream; read the changelog of "
            "the query that writes it, or the table with rc.spark.read_history in a batch query"
        )


def read_frame(
    source: Source, frame: DataFrame, order_by: tuple[str, ...], *, by_arrival: bool = False
) -> InputFrame:
    """Check a DataFrame against the source it is for, and put its rows' order into columns.

    Rows of a stream need an order, and so do others if the query depends on it (``by_arrival``).
    """
    if not frame.isStreaming:
        raise RecensionError(
            f"{source.name}: the DataFrame is not a stream (spark.readStream makes one); "
            "for finite data use rc.spark.batch"
        )
    times = source.time_columns.ours if KIND in frame.columns else source.time_columns
    named = source_names(frame, [*CONTROL, times.vs, times.ve, *source.columns.names])
    names, is_stream = [named.get(name, name) for name in frame.columns], KIND in frame.columns
    wanted = {name.lower() for name in named}
    refuse_ambiguous(frame.sparkSession, [n for n in frame.columns if n.lower() in wanted], source.name)
    if missing := [name for name in source.columns.names if name not in names]:
        raise SchemaError(f"{source.name}: {describe_missing_column(missing[0], frame.columns)}")
    schema = arrow_schema(frame.select(*(column_named(n).alias(own) for n, own in named.items())).schema)
    layout = layout_of(schema, times, source.name)
    require_payload(source, layout.payload)
    places = _place_columns(source, frame, order_by)
    if not source.order:
        places += _order_columns(source, frame, order_by, is_stream, by_arrival)
    picked = [
        column_named(there).alias(plain_name(name))
        for there, name in named.items()
        if name not in (RUN, BATCH, SEQ)
    ]
    delay = _delay(frame, next((there for there, name in named.items() if name == times.vs), times.vs))
    observed = (frame.schema[BATCH].metadata or {}).get(OBSERVED, {}) if BATCH in names else {}
    again = _builders.get(frame)

    def rename(names: Mapping[str, int]) -> InputFrame:
        assert again is not None
        return read_frame(source, again(names), order_by, by_arrival=by_arrival)

    ready = InputFrame(frame.select(*picked, *places), Inlet(delay), layout.kind, observed=observed)
    return ready if again is None else replace(ready, rename=rename)


def source_names(frame: DataFrame, wanted: Sequence[str]) -> dict[str, str]:
    """The columns that are wanted, by their names in a DataFrame: as Spark does, it may overlook case."""
    named = {name: name for name in frame.columns if name in wanted}
    if frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true":
        return named
    missing = {name.lower(): name for name in wanted if name not in named}
    return {
        there: named.get(there) or missing[there.lower()]
        for there in frame.columns
        if there in named or there.lower() in missing
    }


def remember_builder(frame: DataFrame, build: Callable[[Mapping[str, int]], DataFrame]) -> DataFrame:
    """A pipeline's output, which can be built again with other names for its metrics than these."""
    _builders[frame] = build
    return frame


def remember_kinds(frame: DataFrame, build: Callable[[TimeKind], DataFrame]) -> DataFrame:
    """A pipeline's output, which can be built again for times of another kind."""
    _kinds[frame] = build
    return frame


def with_times(frame: DataFrame, kind: TimeKind) -> DataFrame | None:
    """The output of a pipeline for times of this kind; None if it is not what a pipeline gave, as it is."""
    build = _kinds.get(frame)
    return None if build is None else build(kind)


def with_own_names(
    inputs: Mapping[str, InputFrame], avoided: Mapping[str, int] | None
) -> dict[str, InputFrame]:
    """Inputs of one query. What two pipelines call by one name the later one calls by another."""
    taken, ready = dict(avoided or {}), dict(inputs)
    for name, given in inputs.items():
        if given.rename is not None and first_conflict(given.observed, taken) is not None:
            ready[name] = given.rename(taken)
        taken.update(ready[name].observed)
    return ready


def _place_columns(source: Source, frame: DataFrame, order_by: tuple[str, ...]) -> list[Column]:
    """The columns that the source names to say where its rows stand in which partition."""
    if source.order and order_by:
        raise RecensionError(
            f"{source.name}: the source names its order ({', '.join(source.order)}), which holds within a "
            "partition: leave order_by= out"
        )
    columns = source.sub_streams_in(frame.columns)
    names = () if columns is None else columns.names
    return [_named_column(source, frame, name).alias(plain_name(f"{NAMED}{name}")) for name in names]


def _named_column(source: Source, frame: DataFrame, name: str) -> Column:
    """A column that the source names for its partitions."""
    found = _order_column(frame, name)
    try:
        frame.select(found)
    except AnalysisException:
        hint, there = suggest_name(name, frame.columns), ", ".join(frame.columns)
        raise SchemaError(
            f"{source.name}: no column {name}{hint}, which the source names; the DataFrame has {there}"
        ) from None
    return found


def _order_columns(
    source: Source, frame: DataFrame, order_by: tuple[str, ...], is_stream: bool, by_arrival: bool
) -> list[Column]:
    """The columns that put rows in order: those that are named, or else file and row; none if not needed."""
    if not order_by and BATCH in frame.columns and SEQ in frame.columns:
        order_by = (BATCH, SEQ)
    if order_by:
        return [_order_column(frame, name).alias(f"{ORDER}{i}") for i, name in enumerate(order_by)]
    if not is_stream and not by_arrival:
        return []
    places = [F.col("_metadata.file_path").alias(FILE), (F.col("_metadata.row_index") + 1).alias(ROW)]
    try:
        # Connect analyses a plan when its columns are asked for.
        _ = frame.select(*places).schema
    except AnalysisException:
        why = f"rows of a stream with {KIND}" if is_stream else "rows of keys without a version="
        raise RecensionError(
            f"{source.name}: {why} need an order; name the columns that give it, "
            f'such as order_by={{"{source.name}": ["offset"]}}'
        ) from None
    return places


def _order_column(frame: DataFrame, name: str) -> Column:
    """A column, or else a field of one, such as ``headers.offset``."""
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
    for wanted in source.columns:
        there = found.field(wanted.name).type
        if not _fits(there, wanted.type):
            raise SchemaError(
                f"{source.name}: column {wanted.name} is {there}, the source says {wanted.type}"
            )


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


def column_named(name: str) -> Column:
    """A column by its name: dots and back-ticks in it have no meaning to Spark."""
    return F.col(f"`{name.replace('`', '``')}`")


def refuse_ambiguous(spark: SparkSession, names: Sequence[str], place: str) -> None:
    """Refuse columns whose names differ by case only, unless the session is case-sensitive."""
    if spark.conf.get("spark.sql.caseSensitive") == "true":
        return
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise SchemaError(
                f"{place}: columns {other} and {name} are the same to Spark, which overlooks case; "
                "rename one, or set spark.sql.caseSensitive to true"
            )


def attach(root: AnyPath, name: str, from_time: TimeLike) -> None:
    """Say, before the first file of a stream is in its sub-folder, from which time on it is complete.

    The stream must then have every event that ends at ``from_time`` or later, and does not advance the merge
    until the merge has come so far. Without a call the stream must be complete from the beginning.
    """
    times, since = OneKind(), instant(from_time)
    for file in _first_files(local_path(root)):
        times.note(file.layout.kind, file.name)
    times.require(kind_of(since), f"attach {name}, from_time")
    _publish_message(root, name, JOIN, {"from_time": int(since)})


def detach(root: AnyPath, name: str) -> None:
    """Let a stream leave the merge: what its sub-folder still gets is ignored."""
    _publish_message(root, name, LEAVE, {})


def _publish_message(root: AnyPath, name: str, verb: str, message: dict[str, int]) -> None:
    if not name or name[0] in "_." or "/" in name:
        raise RecensionError(f"{name!r} is not the name of a sub-folder that a merge reads")
    folder = local_path(root)
    folder.mkdir(parents=True, exist_ok=True)
    publish_text(folder / f"{name}{verb}", json.dumps(message) + "\n")


def read_root(spark: SparkSession, root: Path, files: int | None, kind: TimeKind) -> InputFrame:
    """All streams of a root as one input."""
    root.mkdir(parents=True, exist_ok=True)
    frame = watch_files(spark, root, files, recursiveFileLookup="true")
    return InputFrame(frame, Inlet(is_root=True), kind, partial(RootPacker, root=root))


def columns_of_streams(root: Path) -> tuple[pa.Schema, TimeKind]:
    """The payload and the kind of times of the streams that are there."""
    known = _first_files(root)
    if not known:
        raise RecensionError(f"{root}: no stream is there yet whose columns could be seen; give schema=")
    return agreed_payload(known, None), reduce(merge_kinds, (file.layout.kind for file in known), None)


def _first_files(root: Path) -> list[StreamFile]:
    files = [_first_file(folder) for folder in sorted(root.glob("[!_.]*/"))] if root.is_dir() else []
    return [file for file in files if file is not None and file.rows.schema.names]


def _first_file(folder: Path) -> StreamFile | None:
    """The first file of a stream, if it has one."""
    files = sorted(file for file in folder.iterdir() if is_data_file(file))
    return open_file(StoredFile(files[0]), TimeColumns(), None) if files else None
