"""Queries on a session of Spark Connect, against the local engine: ``connect.py FOLDER EVERY PLANS STEPS``.

Batches, streams over folders and DataFrames with both sinks and a restart, tables, metrics; then a sample of
the agreement suite, unless EVERY is 0. A process has a classic session or one of Connect: this has its own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import recension as rc

AGREED = "all agreed"
LEASES = rc.source("leases", {"user": "string", "bytes": "int64"}, start="ts")
USERS = rc.table("users", {"user": "string", "site": "string"})
QUERY = LEASES.join(USERS, on="user").group_by("site").tumbling(10).agg(n=rc.count(), s=rc.sum("bytes"))
ROWS = pa.table({"user": ["ann", "bob"], "site": ["Oslo", "Bern"]})


def write_part(folder: Path, number: int) -> None:
    """Five leases, written so that Spark takes the parts in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    start = 5 * number
    rows = {"ts": list(range(start, start + 5)), "user": ["ann", "bob", "ann", "kim", "bob"]}
    file = folder / f"part-{number:03}.parquet"
    pq.write_table(pa.table({**rows, "bytes": list(range(5))}), file)
    os.utime(file, (number, number))


def expected(folder: Path, until: int | None) -> list[dict[str, Any]]:
    """What the local engine says of the same rows, with a CTI or without."""
    session = rc.session(QUERY)
    session.push("users", ROWS)
    session.push("leases", pq.read_table(folder))
    if until is not None:
        session.advance("leases", until)
    session.read()
    return sort(session.history().to_arrow())


def sort(table: pa.Table) -> list[dict[str, Any]]:
    """Rows in an order of their own."""
    return sorted(table.to_pylist(), key=str)


def check_queries(spark: Any, folder: Path) -> None:
    """A batch; a stream over a folder, stopped and started again; a stream over a DataFrame."""
    users, parts = spark.createDataFrame(ROWS), folder / "in"
    for number in range(4):
        write_part(parts, number)
    batch = rc.spark.batch(spark, QUERY, {"leases": spark.read.parquet(str(parts)), "users": users})
    assert sort(batch.toArrow()) == expected(parts, rc.FOREVER)
    for _ in range(2):
        frame = rc.spark.stream(
            spark, QUERY, {"leases": str(parts), "users": users}, watermark={"leases": 0}, shards=2
        )
        query = follow(frame, folder / "of a folder")
        found = rc.spark.read_history(spark, folder / "of a folder" / "history")
        assert sort(found.toArrow()) == expected(parts, 5 * len(list(parts.iterdir())) - 1)
        assert rc.spark.metrics(query).operators[0].events_out == 20
        for number in range(len(list(parts.iterdir())), 8):
            write_part(parts, number)
    reader = spark.readStream.schema("ts long, user string, bytes long").parquet(str(parts))
    query = follow(rc.spark.stream(spark, QUERY, {"leases": reader, "users": users}), folder / "of a frame")
    changelog = rc.spark.read_changelog(spark, folder / "of a frame" / "changelog")
    assert sort(rc.spark.history(changelog).toArrow()) == expected(parts, None)
    assert rc.spark.metrics(query).operators[0].events_out == 40


def follow(frame: Any, folder: Path) -> Any:
    """Write a stream to both sinks, as far as there are rows."""
    query = rc.spark.write(
        frame,
        changelog=folder / "changelog",
        history=folder / "history",
        checkpoint=folder / "checkpoint",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    return query


def main() -> None:
    from pyspark.sql import SparkSession

    folder, every, plans, steps = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    if int(every):
        from tests.runners.spark.stream.test_agreement import agree, sample

        cases = [case for case in sample(int(every), int(plans)) if len(case.turns()) <= int(steps)]
        agree(spark, cases, 2, Path(folder))
    else:
        check_queries(spark, Path(folder))
    print(AGREED)
    spark.stop()


if __name__ == "__main__":
    main()
