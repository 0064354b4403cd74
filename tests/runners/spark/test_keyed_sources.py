"""Keyed sources on Spark: batches and streams, feeds of databases, and what needs an order of arrival."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.runners.test_change_data_capture import SCHEMA, Database, contents, received

import recension as rc
from recension.core.errors import RecensionError
from recension.testing.assertions import assert_equivalent

STREAM = (
    "_kind string, _vs bigint, _ve bigint, _new_ve bigint, id bigint, state string, lsn bigint, gone boolean"
)
ORDERS = {"id": "int64", "state": "string"}


def orders(**options: Any) -> rc.Stream:
    return rc.changes(
        "orders", ORDERS, "id", **({"start": "ts", "version": "lsn", "deleted": "gone"} | options)
    )


def table(rows: list[tuple[int, str, int, int, bool]]) -> pa.Table:
    names = ("id", "state", "ts", "lsn", "gone")
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})


ROWS = table([(i % 7, f"s{i % 5}", i // 3, (i * 37) % 101, i % 11 == 0) for i in range(101)])


def test_a_batch_of_changes_and_of_records(spark: Any) -> None:
    frame = spark.createDataFrame(ROWS)
    found = rc.spark.batch(spark, orders(), {"orders": frame})
    assert_equivalent(found.toArrow(), rc.run(orders(), {"orders": ROWS}).history())
    records = rc.source("orders", ORDERS, "ts", key="id", version="lsn", deleted="gone")
    found = rc.spark.batch(spark, records, {"orders": frame})
    assert_equivalent(found.toArrow(), rc.run(records, {"orders": ROWS}).history())
    with pytest.raises(RecensionError, match="without version= the last row to arrive counts"):
        rc.spark.batch(spark, orders(version=None), {"orders": frame})
    with pytest.raises(RecensionError, match="on_violation='drop' drops depends on arrival"):
        rc.spark.batch(spark, orders(on_violation="drop"), {"orders": frame})
    stream = spark.createDataFrame([("retract", 1, 9, 5, 1, "a", 1, False)], STREAM)
    with pytest.raises(Exception, match="a retraction, but the source is keyed"):
        rc.spark.batch(spark, orders(start=None), {"orders": stream}).toArrow()
    twice = spark.createDataFrame(table([(1, "a", 1, 1, False), (1, "b", 1, 1, False)]))
    with pytest.raises(Exception, match="a version that was there with other content"):
        rc.spark.batch(spark, orders(), {"orders": twice}).toArrow()


def test_a_stream_of_files_in_two_shards(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "in").mkdir(exist_ok=True)
        file = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(ROWS.slice(40 * number, 40), file)
        os.utime(file, (number, number))  # Spark takes the older first
    query = orders(version=None)
    answers = rc.spark.stream(spark, query, {"orders": str(tmp_path / "in")}, shards=2, files_per_batch=1)
    where: dict[str, Any] = {"checkpoint": tmp_path / "ck", "trigger": {"availableNow": True}}
    rc.spark.write_changelog(answers, tmp_path / "log", **where).awaitTermination()
    found = rc.spark.history(rc.spark.read_changelog(spark, tmp_path / "log"))
    assert_equivalent(found.toArrow(), rc.run(query, {"orders": ROWS}).history())


def test_a_stream_without_an_order_is_refused(spark: Any) -> None:
    from pyspark.sql import functions as f

    frame = spark.readStream.format("rate").load()
    rows = frame.select(
        f.col("value").alias("id"),
        f.lit("a").alias("state"),
        f.col("value").alias("ts"),
        f.lit(False).alias("gone"),
    )
    with pytest.raises(RecensionError, match="rows of keys without a version= need an order"):
        rc.spark.stream(spark, orders(version=None), {"orders": rows})


def test_the_feeds_of_databases_as_data_frames(spark: Any) -> None:
    luck = random.Random(3)
    database = Database("eu", luck)
    database.work(40)
    feed = rc.debezium("orders", SCHEMA, key=["shard", "id"])
    struct = "struct<shard:string,id:bigint,state:string,amount:double>"
    types = f"op string, before {struct}, after {struct}, source struct<ts_ms:bigint,lsn:bigint>"
    messages = received([database], luck)
    rows = feed.rows(spark.createDataFrame(messages, types))
    found = rc.spark.batch(spark, feed.stream, {"orders": rows}).toArrow()
    assert_equivalent(found, rc.run(feed.stream, {"orders": feed.rows(messages)}).history())
    now = [row for row in found.to_pylist() if row["_ve"] is None]
    assert contents(now) == contents(database.rows.values())
    wrapped = spark.createDataFrame(messages, types).selectExpr("struct(*) as payload", "'x' as schema")
    wider = rc.debezium("orders", SCHEMA | {"note": "string"}, key=["shard", "id"], optional="note")
    noted = rc.spark.batch(spark, wider.stream, {"orders": wider.rows(wrapped)}).toArrow()
    assert noted["note"].null_count == noted.num_rows
    assert_equivalent(noted.drop_columns(["note"]), found)
    dimension = rc.spark.batch(spark, feed.stream, {"orders": rows})
    out = rc.to_scd2(dimension, key=["shard", "id"])
    assert out.where("is_current").count() == len(database.rows)
    again = rc.scd2("past", SCHEMA, key=["shard", "id"], version={"seen": "int64"})
    stated = again.rows(out.selectExpr("*", "1L as seen"))
    assert_equivalent(rc.spark.batch(spark, again.stream, {"past": stated}).toArrow(), found)
    delta = rc.delta_changes("orders", ORDERS, key="id")
    made = spark.createDataFrame(
        [(1, "new", "insert", 1), (1, "new", "update_preimage", 2), (1, "paid", "update_postimage", 2)],
        "id bigint, state string, _change_type string, _commit_version bigint",
    ).selectExpr("*", "timestamp_seconds(_commit_version) as _commit_timestamp")
    changed = rc.spark.batch(spark, delta.stream, {"orders": delta.rows(made)}).toArrow()
    assert sorted(changed["state"].to_pylist()) == ["new", "paid"]


def test_feeds_with_both_forms_with_equal_rows_and_with_rows_that_were_never_true(spark: Any) -> None:
    """Each message has its own form; of equal rows each delete ends another; an empty row is ignored."""
    feed, row = rc.debezium("orders", ORDERS, key="id"), "struct<id:bigint,state:string>"
    fields = {"op": "string", "before": row, "after": row, "source": "struct<ts_ms:bigint,lsn:bigint>"}
    whole = f"struct<{','.join(f'{name}:{kind}' for name, kind in fields.items())}>"
    changes = [("c", "a"), ("u", "b"), ("d", None)]
    log = [
        {
            "op": op,
            "before": None if op == "c" else {"id": 1, "state": "a"},
            "after": None if op == "d" else {"id": 1, "state": state},
            "source": {"ts_ms": at, "lsn": at},
        }
        for at, (op, state) in enumerate(changes, 1)
    ]
    forms = [log[0], {"payload": log[1]}, {"payload": None}, {"payload": log[2]}]
    types = ", ".join(f"{name} {kind}" for name, kind in [*fields.items(), ("payload", whole)])
    rows = feed.rows(spark.createDataFrame(forms, types))
    found = rc.spark.batch(spark, feed.stream, {"orders": rows}).toArrow()
    assert found["state"].to_pylist() == ["a", "b"]
    assert found["_ve"].null_count == 0
    assert_equivalent(found, rc.run(feed.stream, {"orders": feed.rows(forms)}).history())

    bag = rc.delta_changes("bag", {"v": "int64"})
    made = spark.createDataFrame(
        [(1, kind, at) for kind, at in (("insert", 9), ("insert", 10), ("delete", 12), ("delete", 14))],
        "v bigint, _change_type string, _commit_version bigint",
    ).selectExpr("*", "timestamp_seconds(_commit_version) as _commit_timestamp")
    ended = rc.spark.batch(spark, bag.stream, {"bag": bag.rows(made)}).toArrow().to_pylist()
    assert sorted((row["_vs"].second, row["_ve"].second) for row in ended) == [(9, 14), (10, 12)]

    sites = rc.scd2("sites", {"site": "string", "tier": "int64"}, key="site", version="seq")
    periods = spark.createDataFrame(
        [("CERN", 1, 3, None, True, 1), ("CERN", 0, 3, 3, False, 2)],
        "site string, tier bigint, valid_from bigint, valid_to bigint, is_current boolean, seq bigint",
    )
    kept = rc.spark.batch(spark, sites.stream, {"sites": sites.rows(periods)}).toArrow().to_pylist()
    assert [(row["_vs"], row["_ve"], row["tier"]) for row in kept] == [(3, None, 1)]
