"""The queries of NEXMark on Spark, as streams and as batches, in one session on two cores; judged by DuckDB.

A stream takes ten files of every source in a micro-batch and gives answers at once, which stand in its
changelog; the rates are those of all its micro-batches by the wall clock, the first included. A batch writes
its answer to a file. A query of a few events goes before, so that nobody pays for the start of Spark.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import recension as rc
from benchmarks.nexmark import judge
from benchmarks.nexmark.generator import SECOND, STAMP, Settings, write
from benchmarks.nexmark.queries import QUERIES
from benchmarks.spark import QUIET
from recension.core.reconstitution import reconstitute
from recension.gate.files import open_stream

FILES, _TURNS = 10, 3
TABLES = ("side",)


@dataclass(frozen=True)
class Outcome:
    """What one way took and how many rows are wrong, or why there is no answer."""

    seconds: float = 0.0
    batches: int = 0
    wrong: tuple[int, int] = (0, 0)
    failure: str = ""

    def cells(self, events: int) -> list[str]:
        """For the table."""
        if self.failure:
            return ["", "", self.failure]
        missing, extra = self.wrong
        told = f"{missing} missing, {extra} extra"
        return [f"{events / self.seconds:,.0f}", f"{self.seconds:.1f} ({self.batches})", told]


def measure_spark(
    settings: Settings, folder: Path, queries: list[str], ways: list[str], out: Console
) -> None:
    """Print the table; an answer that is not DuckDB's, or none, is an error."""
    if settings.revisions:
        raise SystemExit("nexmark: on Spark there are no revisions: the files of the generator have no CTIs")
    spark = rc.spark.session("local[2]", "nexmark", spark__driver__memory="4g", **QUIET)
    small, files, wrong = folder / "small", folder / "files", list[str]()
    write(Settings(500, steps=2), small)
    write(settings, files)
    title = f"NEXMark on Spark {spark.version}, {settings.events:,} events, two cores, wall clock"
    table = Table("query", title=title)
    for name in ways:
        for column in (f"{name}: events/s", "seconds (micro-batches)", "agreement"):
            table.add_column(column, justify="right")
    chosen = [{"stream": _stream, "batch": _batch}[name] for name in ways]
    for way in chosen:
        _outcome(way, spark, "q0", small, folder / "warm-up")
    for name in queries:
        found = [_outcome(way, spark, name, files, folder / name) for way in chosen]
        cells = [cell for outcome in found for cell in outcome.cells(settings.events)]
        table.add_row(name, *cells)
        print(name, *cells, sep="  ", file=sys.stderr, flush=True)
        wrong += [name] if any(outcome.failure or any(outcome.wrong) for outcome in found) else []
    spark.stop()
    out.print(table)
    if wrong:
        raise SystemExit(f"not what DuckDB says: {', '.join(wrong)}")


def _outcome(way: Any, spark: Any, name: str, files: Path, place: Path) -> Outcome:
    """On a busy machine Spark does not always wait until a worker has started; it is asked again then."""
    for turn in range(_TURNS):
        try:
            answer, batches, seconds = way(spark, name, files, place / f"{way.__name__}{turn}")
        except Exception as why:
            failure = str(why).splitlines()[0][:60]
            if "failed to connect back" not in str(why):
                break
        else:
            wrong = judge.differences(answer, judge.answer(files, name, threads=2))
            return Outcome(seconds, batches, wrong)
    return Outcome(failure=failure)


def _stream(spark: Any, name: str, files: Path, place: Path) -> tuple[pa.Table, int, float]:
    """The answer by the changelog, how many micro-batches there were and how long they took."""
    answer, progress = our_stream(spark, name, files, place, FILES)
    seconds = sum(p["durationMs"]["triggerExecution"] for p in progress) / 1000
    return answer, len(progress), seconds


def our_stream(
    spark: Any, name: str, files: Path, place: Path, files_per_batch: int
) -> tuple[pa.Table, list[Any]]:
    """The answer by the changelog, and what Spark reports of each micro-batch."""
    query = QUERIES[name]().consistency(rc.MIDDLE)
    sources = _sources(query)
    lag = {source: f"{Settings.lateness // SECOND}s" for source in sources if source not in TABLES}
    frame = rc.spark.stream(
        spark,
        query,
        {source: str(files / source) for source in sources},
        shards=2,
        watermark=lag,
        files_per_batch=files_per_batch,
    )
    running = rc.spark.write_changelog(
        frame, place / "log", checkpoint=place / "checkpoint", trigger={"availableNow": True}
    )
    running.awaitTermination()
    progress = [p for p in running.recentProgress if p["durationMs"].get("addBatch")]
    reader = open_stream(place / "log")
    return reconstitute(reader, reader.schema).to_arrow(STAMP), progress


def _batch(spark: Any, name: str, files: Path, place: Path) -> tuple[pa.Table, int, float]:
    query, began = QUERIES[name](), time.perf_counter()
    frames = {source: spark.read.parquet(str(files / source)) for source in _sources(query)}
    rc.spark.batch(spark, query, frames).write.parquet(str(place))
    seconds = time.perf_counter() - began
    return _in_microseconds(pq.read_table(place)), 1, seconds


def _sources(query: rc.Stream) -> list[str]:
    return list(rc.session(query).sources)


def _in_microseconds(table: pa.Table) -> pa.Table:
    """Spark's own files may have times in nanoseconds."""
    fields = [
        field.with_type(STAMP) if pa.types.is_timestamp(field.type) else field for field in table.schema
    ]
    return table.cast(pa.schema(fields))
