"""A streaming query as a program of its own, for tests that kill it: ``driver.py FOLDER MASTER``.

It reads the files of FOLDER/in, one a micro-batch, groups them by one key and the answers by another, and
writes both sinks and a recording. Started again, it goes on from its checkpoint; when all files are read it
ends.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.runners.spark.sinks.feeding import revised
from tests.runners.spark.standalone import settings_of
from tests.runners.spark.stream.united import Places
from tests.short_sessions import short_session

import recension as rc
from recension.api.stream import Stream
from recension.core.batch import EventBatch, concat
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.history import History
from recension.testing.generator.settings import SCHEMA

SHARDS = 2


def query() -> Stream:
    """Two exchanges: by the remainder, then by how many events have it."""
    by_remainder = rc.source("s", SCHEMA).with_columns(k=rc.col("value") % 7).group_by("k")
    counted = by_remainder.agg(n=rc.count(), top=rc.max("value"), speculate="eager")
    return counted.group_by("n").agg(keys=rc.count(), top=rc.max("top"), speculate="eager")


def write_inputs(folder: Path, files: int, size: int, seed: int = 0) -> History:
    """Put the input files there; what the query's history must be once all are read."""
    batches = revised(seed, files, size)
    for number, batch in enumerate(batches):
        put(folder / "in", number, batch)
    return rc.run(query(), {"s": concat(batches)}).history()


def put(folder: Path, number: int, batch: EventBatch, time_type: pa.DataType | None = None) -> Path:
    """One file of a stream; Spark takes files by their age."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{number:04}.parquet"
    columns = stream_schema(batch.schema, time_type or pa.int64())
    pq.write_table(pa.Table.from_batches([stream_rows(batch, columns)]), file)
    os.utime(file, (1_000_000 + number, 1_000_000 + number))
    return file


def read(spark: Any, folder: Path) -> Any:
    """The files of a folder as a streaming DataFrame, one a micro-batch."""
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def start(
    spark: Any,
    folder: Path,
    shards: int = SHARDS,
    asked: Stream | None = None,
    where: Places | None = None,
) -> Any:
    """Start or go on with the query; into tables in the folder and a recording, or where it is said."""
    answers = rc.spark.stream(spark, asked or query(), {"s": read(spark, folder / "in")}, shards=shards)
    found = where or Places(*(str(folder / name) for name in ("log", "table", "ck")))
    record: dict[str, Any] = {} if where else {"record": folder / "recording", "record_edges": "all"}
    return rc.spark.write(answers, **found._asdict(), **record, trigger={"availableNow": True})


def main() -> None:
    folder, master = sys.argv[1:]
    spark = rc.spark.session(master, "recovery", **short_session(), **settings_of(master))
    start(spark, Path(folder)).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
