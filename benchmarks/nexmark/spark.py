"""The queries of NEXMark on Spark, as streams and as batches, in one session on two cores; judged by DuckDB.

A stream takes ten files of every source in a micro-batch and gives answers at once, which stand in its
changelog; the rates are those of all its micro-batches by the wall clock, the first included. A batch writes
its answer to a file. A query of a few events goes before, so that nobody pays for the start of Spark.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import recension as rc
from benchmarks.nexmark import judge
from benchmarks.nexmark.generator import SECOND, Settings, write
from benchmarks.nexmark.queries import QUERIES
from benchmarks.spark import QUIET
from recension.core.formats import open_stream
from recension.core.reconstitution import reconstitute

FILES = 10
TABLES = ("side",)


def measure_spark(settings: Settings, folder: Path, queries: list[str], out: Console) -> None:
    """Print the table; an answer that is not DuckDB's is an error."""
    if settings.revisions:
        raise SystemExit("nexmark: on Spark there are no revisions: the files of the generator have no CTIs")
    spark = rc.spark.session("local[2]", "nexmark", spark__driver__memory="4g", **QUIET)
    small, files, wrong = folder / "small", folder / "files", list[str]()
    write(Settings(500, steps=2), small)
    write(settings, files)
    table = Table(
        "query", title=f"NEXMark on Spark {spark.version}, {settings.events:,} events, two cores, wall clock"
    )
    for column in ("stream: events/s", "seconds", "micro-batches", "batch: events/s", "seconds", "rows"):
        table.add_column(column, justify="right")
    table.add_column("agreement: stream, batch", justify="right")
    for way in (_stream, _batch):
        way(spark, "q5", small, folder / way.__name__, settings)
    for name in queries:
        cells, is_right = _row(spark, name, files, folder / name, settings)
        table.add_row(*cells)
        print(*cells, sep="  ", file=sys.stderr, flush=True)
        wrong += [] if is_right else [name]
    spark.stop()
    out.print(table)
    if wrong:
        raise SystemExit(f"not what DuckDB says: {', '.join(wrong)}")


def _row(spark: Any, name: str, files: Path, place: Path, settings: Settings) -> tuple[list[str], bool]:
    theirs = judge.answer(files, name, threads=2)
    streamed, batches, stream_seconds = _stream(spark, name, files, place / "stream", settings)
    found, _, batch_seconds = _batch(spark, name, files, place / "batch", settings)
    wrong = [judge.differences(answer, theirs) for answer in (streamed, found)]
    rates = [f"{settings.events / seconds:,.0f}" for seconds in (stream_seconds, batch_seconds)]
    cells = [
        *(name, rates[0], f"{stream_seconds:.1f}", str(batches), rates[1], f"{batch_seconds:.1f}"),
        f"{theirs.num_rows:,}",
        "; ".join(f"{missing} missing, {extra} extra" for missing, extra in wrong),
    ]
    return cells, not any(map(any, wrong))


def _stream(
    spark: Any, name: str, files: Path, place: Path, settings: Settings
) -> tuple[pa.Table, int, float]:
    """The answer by the changelog, how many micro-batches there were and how long they took."""
    query = QUERIES[name]().consistency(rc.MIDDLE)
    sources = _sources(query)
    lag = {source: f"{settings.lateness // SECOND}s" for source in sources if source not in TABLES}
    frame = rc.spark.stream(
        spark,
        query,
        {source: str(files / source) for source in sources},
        shards=2,
        watermark=lag,
        files_per_batch=FILES,
    )
    running = rc.spark.write_changelog(
        frame, place / "log", checkpoint=place / "checkpoint", trigger={"availableNow": True}
    )
    running.awaitTermination()
    progress = [p for p in running.recentProgress if p["durationMs"].get("addBatch")]
    seconds = sum(p["durationMs"]["triggerExecution"] for p in progress) / 1000
    reader = open_stream(place / "log")
    return reconstitute(reader, reader.schema).to_arrow(), len(progress), seconds


def _batch(
    spark: Any, name: str, files: Path, place: Path, settings: Settings
) -> tuple[pa.Table, int, float]:
    query, began = QUERIES[name](), time.perf_counter()
    frames = {source: spark.read.parquet(str(files / source)) for source in _sources(query)}
    rc.spark.batch(spark, query, frames).write.parquet(str(place))
    seconds = time.perf_counter() - began
    return _in_microseconds(pq.read_table(place)), 1, seconds


def _sources(query: rc.Stream) -> list[str]:
    return list(rc.session(query).sources)


def _in_microseconds(table: pa.Table) -> pa.Table:
    """Spark's own files may have times in nanoseconds."""
    stamp = pa.timestamp("us", "UTC")
    fields = [
        field.with_type(stamp) if pa.types.is_timestamp(field.type) else field for field in table.schema
    ]
    return table.cast(pa.schema(fields))
