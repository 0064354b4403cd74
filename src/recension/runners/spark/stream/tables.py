"""Tables without times beside streams: read once when the query is planned, then part of the shards' state.

Each shard takes its rows of a table in its first micro-batch, before anything else. From then on they are in
its state, and a restart reads the table only to see whether it is the same: its digest is part of what names
the owner of a checkpoint. So a query that is started again with another table is refused.
"""

from __future__ import annotations

import atexit
import hashlib
from dataclasses import dataclass
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
from recension.core.errors import RecensionError
from recension.core.formats import open_stream
from recension.core.formats.columns import layout_of
from recension.core.formats.decode import Decoder
from recension.core.rowhash import row_hash
from recension.core.ticks import BEGINNING, FOREVER
from recension.plan.nodes import Table
from recension.runners.spark.stream.inputs import column_named, refuse_ambiguous, require_payload
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
        payload = batches[0] if batches else null_payload(0, table.schema)
        size = len(payload)
        return inserts(np.full(size, BEGINNING), np.full(size, FOREVER), payload)


def read_table(spark: SparkSession, table: Table, given: Any) -> TableContent:
    """Read a batch DataFrame, or the files at a path, as a table."""
    if table.refresh is not None:
        raise RecensionError(
            f"{table.name}: refresh= is for sessions; a stream on Spark reads a table once: leave it out, "
            "or give what changes as a stream of its own (rc.source)"
        )
    if isinstance(given, str | Path):
        path = Path(given)
        events = list(open_stream(path, schema=table.columns, is_timeless=True))
    elif isinstance(given, DataFrame):
        events = _collect(table, given)
    else:
        raise RecensionError(
            f"{table.name}: a table is a batch DataFrame or a path, not a {type(given).__name__}"
        )
    payload = concat(events).payload if events else empty(table.columns).payload
    rows, digest = to_bytes(payload), digest_of_rows(payload)
    if len(rows) <= FEW_BYTES:
        return TableContent(digest, rows)
    return TableContent(digest, file=_send_file(spark, rows))


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
    kept = [n for n in frame.columns if n in table.columns.names or n.startswith("_")]
    chosen = frame.select(*(column_named(name) for name in kept))
    layout = layout_of(arrow_schema(chosen.schema), table.time_columns, table.name)
    require_payload(table, layout.payload)
    decoder = Decoder(table.columns, "raise")
    rows = chosen.toArrow().combine_chunks().to_batches()
    return [decoder.decode(batch, layout, table.name, 1).batch for batch in rows]


def digest_of_rows(payload: pa.RecordBatch) -> str:
    """The same for equal bags of rows, in whatever order they come."""
    hashes = np.sort(row_hash(payload, payload.num_rows))
    return hashlib.blake2b(str(payload.schema).encode() + hashes.tobytes(), digest_size=12).hexdigest()
