"""Queries on a session of Spark Connect, against the local engine: ``connect.py FOLDER WHAT``.

WHAT is ``queries``: a batch, a stream over a folder with both sinks and a restart, one over a DataFrame into
Delta, tables, metrics, alerts by the clock; ``two``: two queries at once into Delta, and what is refused;
or three numbers, for a sample of the agreement suite. A process has a classic session or one of Connect:
this has its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scripts.lake_jars import NoJarsError, jars
from tests.runners.spark.connect_server import running_server
from tests.short_sessions import SHORT_LIVED

import recension as rc
from recension.core.errors import RecensionError
from recension.runners.spark.lake import delta

AGREED = "all agreed"
LEASES = rc.source("leases", {"user": "string", "bytes": "int64"}, start="ts")
USERS = rc.table("users", {"user": "string", "site": "string"})
QUERY = LEASES.join(USERS, on="user").group_by("site").tumbling(10).agg(n=rc.count(), s=rc.sum("bytes"))
ORDERS, SHIPMENTS = (rc.source(name, {"user": "string"}, start="ts") for name in ("orders", "shipments"))
ALERTS = rc.unless(ORDERS, SHIPMENTS, within=3, on="user").shift(3).due(by="clock")
_KAFKA = "read_kafka and write_kafka need a classic session"
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
    """A batch; a stream over a folder, stopped and started again beside one over a DataFrame."""
    users, parts = spark.createDataFrame(ROWS), folder / "in"
    for number in range(4):
        write_part(parts, number)
    batch = rc.spark.batch(spark, QUERY, {"leases": spark.read.parquet(str(parts)), "users": users})
    assert sort(batch.toArrow()) == expected(parts, rc.FOREVER)
    follow_folder(spark, users, folder).awaitTermination()
    history = rc.spark.read_history(spark, folder / "of a folder" / "history")
    assert sort(history.toArrow()) == expected(parts, 19)
    for number in range(4, 8):
        write_part(parts, number)
    again, of_a_frame = follow_folder(spark, users, folder), follow_frame(spark, users, folder)
    for query, events in ((again, 20), (of_a_frame, 40)):
        query.awaitTermination()
        assert rc.spark.metrics(query).operators[0].events_out == events
    changelog = rc.spark.read_changelog(spark, folder / "of a folder" / "changelog")
    assert sort(rc.spark.history(changelog).toArrow()) == expected(parts, 39)
    assert {row["_batch"] for row in changelog.collect()} == {0, 1}
    history = rc.spark.read_history(spark, table(folder / "of a frame"))
    assert sort(history.toArrow()) == expected(parts, None)


def check_alerts(spark: Any, folder: Path) -> None:
    """An alert of absence by the clock; one that is not due yet, and one that a late row takes back."""
    parts = [
        {"orders": {"ann": 1, "bob": 2, "kim": 1 << 60}, "shipments": {"bob": 3}},
        {"orders": {"lee": 9}, "shipments": {"ann": 2}},
    ]
    alerts = []
    for number, part in enumerate(parts):
        for name, rows in part.items():
            file = folder / "alerts" / name / f"{number}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"user": list(rows), "ts": list(rows.values())}), file)
        query = rc.spark.write(
            rc.spark.stream(spark, ALERTS, {name: str(folder / "alerts" / name) for name in part}, shards=2),
            history=folder / "alerts" / "history",
            checkpoint=folder / "alerts" / "checkpoint",
            trigger={"availableNow": True},
        )
        query.awaitTermination()
        found = rc.spark.read_history(spark, folder / "alerts" / "history").toArrow().to_pylist()
        alerts.append([(row["user"], row["_vs"]) for row in found])
    assert alerts == [[("ann", 4)], [("lee", 12)]]


def check_refused(spark: Any, folder: Path) -> None:
    """What needs a classic session says so, and leaves nothing behind."""
    frame = rc.spark.stream(spark, LEASES, {"leases": str(folder / "in")}, watermark={"leases": 0})
    places: dict[str, Any] = {
        name: folder / "refused" / name for name in ("changelog", "checkpoint", "record")
    }
    topic = ("127.0.0.1:9092", "answers")
    for words, ask in (
        ("record needs a classic session", lambda: rc.spark.write(frame, **places)),
        (_KAFKA, lambda: rc.spark.write_kafka(frame, *topic, checkpoint=places["checkpoint"])),
        (_KAFKA, lambda: rc.spark.read_kafka(spark, LEASES, *topic)),
    ):
        with pytest.raises(RecensionError, match=words):
            ask()
    assert not (folder / "refused").exists()


def follow_folder(spark: Any, users: Any, folder: Path) -> Any:
    """Write what is asked of a folder to both sinks, as far as there are rows."""
    given = {"leases": str(folder / "in"), "users": users}
    return rc.spark.write(
        rc.spark.stream(spark, QUERY, given, watermark={"leases": 0}, shards=2),
        changelog=folder / "of a folder" / "changelog",
        history=folder / "of a folder" / "history",
        checkpoint=folder / "of a folder" / "checkpoint",
        trigger={"availableNow": True},
    )


def follow_frame(spark: Any, users: Any, folder: Path) -> Any:
    """The same of a DataFrame, into one table."""
    reader = spark.readStream.schema("ts long, user string, bytes long").parquet(str(folder / "in"))
    return rc.spark.write_history(
        rc.spark.stream(spark, QUERY, {"leases": reader, "users": users}, shards=1),
        table(folder / "of a frame"),
        checkpoint=folder / "of a frame checkpoint",
        trigger={"availableNow": True},
    )


def table(folder: Path) -> str:
    """Of Delta, if its jars are there."""
    return f"delta:{folder}" if delta_settings() else str(folder)


def check_two_at_once(spark: Any, folder: Path) -> None:
    """Two queries of one session into Delta: neither takes the other's settings, nor does the session."""
    users, parts = spark.createDataFrame(ROWS), folder / "in"
    for number in range(8):
        write_part(parts, number)
    running = []
    for name in ("first", "second"):
        given = {"leases": str(parts), "users": users}
        frame = rc.spark.stream(
            spark, QUERY, given, watermark={"leases": 0}, shards=1, files_per_batch=4, name=name
        )
        table, checkpoint = f"delta:{folder / name}", folder / f"{name} checkpoint"
        running.append(
            rc.spark.write_history(frame, table, checkpoint=checkpoint, trigger={"availableNow": True})
        )
    for query in running:
        query.awaitTermination()
    for name, query in zip(("first", "second"), running, strict=True):
        found = rc.spark.read_history(spark, f"delta:{folder / name}")
        assert sort(found.toArrow()) == expected(parts, 5 * len(list(parts.iterdir())) - 1)
        told = spark.sql(f"DESCRIBE HISTORY delta.`{folder / name}`").select("userMetadata").collect()
        notes = [json.loads(row[0])["recension"] for row in told if row[0]]
        assert [note["batch"] for note in notes] == [1, 0]
        assert {note["query"] for note in notes} == {str(query.id)}
    assert not any("txnAppId" in key or "userMetadata" in key for key in spark.conf.getAll)


def delta_settings() -> dict[str, str]:
    """Of a server that has Delta, if its jars are there."""
    try:
        few = {"spark.databricks.delta.snapshotPartitions": "1"}
        return delta.SETTINGS | few | {"spark.jars": ",".join(map(str, jars("delta")))}
    except NoJarsError as why:
        print(f"no Delta: {why}")
        return {}


def main() -> None:
    from pyspark.sql import SparkSession

    folder, what = Path(sys.argv[1]), sys.argv[2:]
    settings = delta_settings()
    # A server says much of every plan.
    light = {
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "WARN",
    }
    with running_server("local[2]", settings | light, folder / "server.txt") as address:
        spark = SparkSession.builder.remote(address).getOrCreate()
        try:
            if what == ["queries"]:
                check_queries(spark, folder)
                check_alerts(spark, folder)
            elif what == ["two"]:
                assert settings, "no Delta"
                check_two_at_once(spark, folder)
                check_refused(spark, folder)
            else:
                from tests.runners.spark.stream.test_agreement import agree, sample

                every, plans, steps = map(int, what)
                cases = [case for case in sample(every, plans) if len(case.turns()) <= steps]
                agree(spark, cases, 2, folder)
            print(AGREED)
        finally:
            # A client whose server is gone asks for it again and again.
            spark.stop()


if __name__ == "__main__":
    main()
