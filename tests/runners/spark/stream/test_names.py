"""Columns whose names Spark would read otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.runners.spark.sinks.feeding import fed

import recension as rc
from recension.core.batch import from_elements
from recension.gate.files import read_history
from recension.runners.spark.sinks.changelog import Changelog
from recension.runners.spark.sinks.history_table import HistoryTable
from recension.runners.spark.stream.packing import plain_name

ODD = pa.schema([("a.b", pa.int64()), ("`", pa.string()), ("50%2E", pa.int64())])


@pytest.mark.parametrize("name", [*ODD.names, "plain", "é", "a b"])
def test_a_plain_name_has_no_signs(name: str) -> None:
    assert unquote(plain_name(name)) == name
    assert not set(plain_name(name)) & {".", "`"}


def test_dots_and_back_ticks_are_letters_like_others(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    columns = {"_vs": [1, 2], "a.b": [5, 6], "`": ["x", None], "50%2E": [7, 8]}
    pq.write_table(pa.table(columns), tmp_path / "in" / "0.parquet")
    ddl = "_vs long, `a.b` long, ```` string, `50%2E` long"
    frame = spark.readStream.schema(ddl).parquet(str(tmp_path / "in"))
    order = {"s": ["a.b"]}
    found = rc.spark.stream(spark, rc.source("s", ODD), {"s": frame}, shards=1, order_by=order)
    where: dict[str, Any] = {"checkpoint": tmp_path / "ck", "trigger": {"availableNow": True}}
    rc.spark.write_history(found, tmp_path / "table", **where).awaitTermination()
    events = read_history(tmp_path / "table").to_events()
    assert [event.payload for event in events] == [
        {"a.b": 5, "`": "x", "50%2E": 7},
        {"a.b": 6, "`": None, "50%2E": 8},
    ]


def test_names_that_differ_by_case_are_refused_where_spark_overlooks_it(spark: Any, tmp_path: Path) -> None:
    both, one = rc.source("s", {"a": "int64", "A": "int64"}), rc.source("s", {"a": "int64"})
    pq.write_table(pa.table({"_vs": [1], "a": [5], "A": [6]}), tmp_path / "0.parquet")
    words = "columns a and A are the same to Spark, which overlooks case; rename one, or set"
    with pytest.raises(rc.SchemaError, match=f"the query's output: {words}"):
        rc.spark.stream(spark, both, {"s": str(tmp_path)}, shards=1)
    # What stays in the workers may have any names.
    rc.spark.stream(spark, both.select(sum=rc.col("a") + rc.col("A")), {"s": str(tmp_path)}, shards=1)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        frame = spark.readStream.schema("_vs long, a long, A long").parquet(str(tmp_path))
        assert {"a", "A"} <= set(rc.spark.stream(spark, both, {"s": frame}, shards=1).columns)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    with pytest.raises(rc.SchemaError, match=f"s: {words}"):
        rc.spark.stream(spark, one, {"s": frame}, shards=1)


def test_such_columns_are_read_from_tables_too(spark: Any, tmp_path: Path) -> None:
    """A history with deletions joins its files with them; a bitemporal one adds up the elements."""
    schema = pa.schema([*ODD, ("a b", pa.int64())])
    payloads = [dict.fromkeys(schema.names, n) | {"`": str(n)} for n in (1, 2)]
    inserts = from_elements([rc.Insert(payload, 0, 9) for payload in payloads], schema)
    shorter = from_elements([rc.Retract(payloads[0], 0, 9, 5), rc.Retract(payloads[1], 0, 9, 0)], schema)
    history, log = HistoryTable(tmp_path / "table", keep=0), Changelog(tmp_path / "log")
    for sink in (history, log):
        for number, batch in enumerate((inserts, shorter)):
            sink.apply(fed(batch, number))
    found = rc.spark.read_history(spark, tmp_path / "table").collect()
    assert [row.asDict() for row in found] == [{"_vs": 0, "_ve": 5} | payloads[0]]
    assert rc.spark.read_changelog(spark, tmp_path / "log").count() == 4
    believed = [row.asDict() for row in rc.spark.read_bitemporal(spark, tmp_path / "log").collect()]
    now = [row for row in believed if row.pop("believed_from") and row.pop("believed_to") is None]
    assert now == [{"_vs": 0, "_ve": 5} | payloads[0]]
    assert len(believed) == 3
