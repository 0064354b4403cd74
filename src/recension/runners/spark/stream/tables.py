"""Tables without times beside streams: part of the shards' state, once read.

A table that is read once is read when the query is planned. Each shard takes its rows in its first
micro-batch, before anything else. A restart reads the table only to see whether it is the same: its digest is
part of what names the owner of a checkpoint. So a query that is started again with another table is refused.

A table that is read again (`refresh`) is a folder of versions, each a file with all rows:

    sites/
        version-000000000001.parquet
        version-000000000002.parquet

Spark's own log of files says which version came in which micro-batch, and a micro-batch that is run again
gets the same. Every shard reads the last version that came, keeps its rows, and gives them to its engine
before the rows of the streams: the difference holds from the CTI that all shards reached in the micro-batch
before.
"""

from __future__ import annotations

import atexit
import hashlib
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession

from recension.core.batch import EventBatch, concat, empty, inserts, null_payload
from recension.core.errors import FormatError, RecensionError
from recension.core.formats.columns import Layout, layout_of
from recension.core.formats.decode import Decoder
from recension.core.formats.listing import NO_FILES, is_data_file
from recension.core.frames import table_of
from recension.core.rowhash import row_hash
from recension.core.ticks import BEGINNING, FOREVER
from recension.gate.files import open_stream
from recension.plan.nodes import Table
from recension.runners.spark.session import is_connect
from recension.runners.spark.sinks.files import is_local, local_path
from recension.runners.spark.stream.inputs import (
    InputFrame,
    column_named,
    local_folder,
    refuse_ambiguous,
    require_payload,
    require_seen_by_spark,
    source_names,
    watch_files,
)
from recension.runners.spark.stream.remote_files import fetch_files, list_files, require_stream_files
from recension.runners.spark.stream.topology import Inlet
from recension.runners.spark.types import arrow_schema

FEW_BYTES: Final = 1 << 17


@dataclass(frozen=True)
class TableContent:
    """The rows of a table, as an Arrow stream, and a digest of them in any order.

    Few rows travel with the query. Spark sends large queries as broadcasts, which its stateful operators do
    not find: more rows are a file that Spark brings to its executors.
    """

    digest: str
    rows: bytes = b""
    file: str = ""

    def events(self) -> EventBatch:
        """The rows as events, which are true for ever."""
        rows = Path(SparkFiles.get(self.file)).read_bytes() if self.file else self.rows
        table = pa.ipc.open_stream(rows).read_all()
        batches = table.combine_chunks().to_batches()
        return always(batches[0] if batches else null_payload(0, table.schema))


def always(payload: pa.RecordBatch) -> EventBatch:
    """Rows as events that are true for ever."""
    size = len(payload)
    return inserts(np.full(size, BEGINNING), np.full(size, FOREVER), payload)


def read_rows(table: Table, path: Path) -> pa.RecordBatch:
    """The rows of a table in the files at a path."""
    return _join_rows(table, list(open_stream(path, schema=table.columns, is_timeless=True)))


def _join_rows(table: Table, events: list[EventBatch]) -> pa.RecordBatch:
    return concat(events).payload if events else empty(table.columns).payload


def read_table(spark: SparkSession, table: Table, given: Any) -> TableContent:
    """Read a batch DataFrame, or the files at a path, as a table."""
    if not isinstance(given, str | Path | DataFrame):
        raise RecensionError(
            f"{table.name}: a table is a batch DataFrame or a path, not a {type(given).__name__}"
        )
    payload = rows_of(table, given)
    rows, digest = to_bytes(payload), digest_of_rows(payload)
    if len(rows) <= FEW_BYTES:
        return TableContent(digest, rows)
    return TableContent(digest, file=_send_file(spark, rows))


def rows_of(table: Table, data: Any) -> pa.RecordBatch:
    """The rows of a table in a batch DataFrame, in files at a path, or in anything that speaks Arrow."""
    if isinstance(data, str | Path) and not is_local(data):
        return _fetch_rows(table, fspath(data))
    if isinstance(data, str | Path):
        return read_rows(table, local_path(data))
    if isinstance(data, DataFrame):
        return _join_rows(table, _collect(table, data))
    found = table_of(data, table.name)
    layout = layout_of(found.schema, table.time_columns, table.name)
    return _join_rows(table, _decode(table, layout, found))


def _fetch_rows(table: Table, address: str) -> pa.RecordBatch:
    """The rows in the files at an address that Spark sees."""
    spark = SparkSession.active()
    files = list_files(spark, address)
    if not files:
        raise FormatError(NO_FILES, file=address)
    require_stream_files(address, files, has_partitions=False)
    with fetch_files(spark, files) as fetched:
        return read_rows(table, fetched)


def watch_versions(spark: SparkSession, table: Table, given: Any) -> InputFrame:
    """The versions of a table in a folder, as they come."""
    if not isinstance(given, str | Path):
        raise RecensionError(
            f"{table.name}: a table with refresh= is a folder of versions, not a {type(given).__name__}: "
            "rc.spark.write_version(table, folder, data) writes one, rc.spark.refresh(...) those to come"
        )
    folder = local_folder(given, table.name)
    if not folder.is_dir() or (newest := newest_version(folder)) is None:
        raise RecensionError(
            f"{table.name}: a table with refresh= is a folder of versions, and {folder} has none: "
            "rc.spark.write_version(table, folder, data) writes one"
        )
    require_seen_by_spark(folder)
    # Opened only to see its columns.
    open_stream(newest, schema=table.columns, is_timeless=True)
    return InputFrame(watch_files(spark, folder, None), Inlet(), None)


def newest_version(folder: Path) -> Path | None:
    """The version of a table that counts; none if none is there."""
    return max((file for file in folder.iterdir() if is_data_file(file)), default=None)


def to_bytes(payload: pa.RecordBatch) -> bytes:
    """Rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, payload.schema, options=options) as writer:
        writer.write_batch(payload)
    return bytes(sink.getvalue())


def _send_file(spark: SparkSession, rows: bytes) -> str:
    """Let Spark bring a file to every executor that asks for it; gives its name there."""
    folder = mkdtemp(prefix="recension-")
    # Executors may ask as long as this process runs.
    atexit.register(rmtree, folder, ignore_errors=True)
    path = Path(folder) / f"table-{uuid4().hex}.arrows"
    path.write_bytes(rows)
    if is_connect(spark):
        spark.addArtifacts(str(path), file=True)
    else:
        spark.sparkContext.addFile(str(path))
    return path.name


def _collect(table: Table, frame: DataFrame) -> list[EventBatch]:
    if frame.isStreaming:
        raise RecensionError(
            f"{table.name}: a streaming DataFrame; a table is read once: use rc.source for it"
        )
    wanted = {name.lower() for name in table.columns.names}
    refuse_ambiguous(frame.sparkSession, [n for n in frame.columns if n.lower() in wanted], table.name)
    # Times, which a table must not have, are noticed below.
    named = {n: n for n in frame.columns if n.startswith("_")} | source_names(frame, table.columns.names)
    chosen = frame.select(*(column_named(there).alias(name) for there, name in named.items()))
    layout = layout_of(arrow_schema(chosen.schema), table.time_columns, table.name)
    return _decode(table, layout, chosen.toArrow())


def _decode(table: Table, layout: Layout, rows: pa.Table) -> list[EventBatch]:
    require_payload(table, layout.payload)
    decoder = Decoder(table.columns, "raise")
    batches = rows.combine_chunks().to_batches()
    return [decoder.decode(batch, layout, table.name, 1).batch for batch in batches]


def digest_of_rows(payload: pa.RecordBatch) -> str:
    """The same for equal bags of rows, in whatever order they come."""
    hashes = np.sort(row_hash(payload, payload.num_rows))
    return hashlib.blake2b(str(payload.schema).encode() + hashes.tobytes(), digest_size=12).hexdigest()
