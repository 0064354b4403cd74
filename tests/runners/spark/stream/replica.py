"""Queries as programs of their own, for tests that kill them.

``replica.py FOLDER NAME`` reads the files of FOLDER/feeds/NAME as they come and writes its answers to the
sub-folder NAME of the root. ``replica.py FOLDER`` merges what is in the root. Neither ends by itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.short_sessions import short_session

import recension as rc
from recension.api.stream import Stream
from recension.core.batch import EventBatch, concat
from recension.core.formats import write_stream
from recension.core.ticks import BEGINNING
from recension.testing.generator import StreamSettings, replicas
from recension.testing.generator.settings import SCHEMA

NAMES = ("a", "b", "c")
COLUMNS = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("top", pa.int64())])
# Without a pause Spark looks for files a hundred times a second.
_OFTEN = {"processingTime": "300 milliseconds"}


def query() -> Stream:
    """With state, so that there is something to lose."""
    by_remainder = rc.source("s", SCHEMA).with_columns(k=rc.col("value") % 7).group_by("k")
    return by_remainder.agg(n=rc.count(), top=rc.max("value"), speculate="eager")


def feeds(parts: int, size: int, seed: int = 0) -> dict[str, list[EventBatch]]:
    """For each replica its own telling of one history, in parts."""
    settings = StreamSettings.of(
        "R4", size=size, revisions=0.3, stable_freq=0.05, event_duration="2m", duration_spread=0.9, seed=seed
    )
    wholes = [concat(list(stream)) for stream in replicas(settings, len(NAMES))]
    return {
        name: [whole.slice(len(whole) * i // parts, len(whole) * (i + 1) // parts) for i in range(parts)]
        for name, whole in zip(NAMES, wholes, strict=True)
    }


def put(folder: Path, name: str, number: int, part: EventBatch) -> None:
    """One more file of a feed, complete when it appears."""
    place = folder / "feeds" / name
    place.mkdir(parents=True, exist_ok=True)
    partial = place / f".{number:04}.parquet"
    write_stream(partial, [part], part.schema)
    os.replace(partial, place / f"{number:04}.parquet")


def promised(changelog: Path) -> int:
    """How far the answers in a changelog are final."""
    found = BEGINNING
    for file in changelog.glob("part-*.parquet"):
        rows = pq.read_table(file, columns=["_kind", "_vs"]).to_pylist()
        found = max([found, *(_time(row["_vs"]) for row in rows if row["_kind"] == "cti")])
    return found


def _time(vs: int | None) -> int:
    return rc.FOREVER if vs is None else vs


def run_replica(spark: Any, folder: Path, name: str) -> Any:
    """Start, or go on with, a replica."""
    given = {"s": folder / "feeds" / name}
    answers = rc.spark.stream(spark, query(), given, shards=1, files_per_batch=1)
    where: dict[str, Any] = {"checkpoint": folder / f"ck-{name}", "trigger": _OFTEN}
    return rc.spark.write_changelog(answers, folder / "root" / name, **where)


def run_merge(spark: Any, folder: Path, shards: int = 2) -> Any:
    """Start, or go on with, the merge."""
    merged = rc.spark.merge(spark, root=folder / "root", schema=COLUMNS, shards=shards)
    where: dict[str, Any] = {"changelog": folder / "merged", "history": folder / "table"}
    return rc.spark.write(merged, **where, checkpoint=folder / "ck-merge", trigger=_OFTEN)


def main() -> None:
    folder, *name = sys.argv[1:]
    spark = rc.spark.session("local[1,4]", "replica", **short_session("512m"))
    running = run_replica(spark, Path(folder), *name) if name else run_merge(spark, Path(folder))
    running.awaitTermination()


if __name__ == "__main__":
    main()
