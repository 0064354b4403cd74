"""How long rows of DataFrames live: as those of tables (docs/guide/data.md); and what is said of a query."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import recension as rc

CALLS = rc.source("calls", {"k": "string"}, start="t", arrival="loaded_at")
FAULTS = rc.source("faults", {"k": "string"}, start="t")
SPANS = rc.source("spans", {"k": "string"}, start="t", end="u")


def test_rows_live_as_those_of_tables_do(spark: Any) -> None:
    rows = spark.createDataFrame([("a", 5, 77)], "k string, t bigint, loaded_at bigint")
    spans = spark.createDataFrame([("a", 5, 9), ("b", 5, None)], "k string, t bigint, u bigint")
    histories = spark.createDataFrame([(5, 9, "a"), (5, None, "b")], "_vs bigint, _ve bigint, k string")
    plain = rc.source("plain", {"k": "string"})
    answers = {
        "calls": rc.spark.batch(spark, CALLS, {"calls": rows}),
        "spans": rc.spark.batch(spark, SPANS, {"spans": spans}),
        "plain": rc.spark.batch(spark, plain, {"plain": histories}),
    }
    assert all(found.columns == ["_vs", "_ve", "k"] for found in answers.values())
    lives = {name: sorted(map(tuple, found.collect()), key=str) for name, found in answers.items()}
    both = [(5, 9, "a"), (5, None, "b")]
    assert lives == {"calls": [(5, 6, "a")], "spans": both, "plain": both}


def test_what_is_hardly_meant_is_said_on_the_driver(spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    rows = spark.createDataFrame([("a", 5, 77)], "k string, t bigint, loaded_at bigint")
    inputs = {"calls": rows, "faults": rows}
    with caplog.at_level(logging.WARNING, "recension"):
        rc.spark.batch(spark, CALLS.set_duration(5).join(FAULTS, on="k"), inputs)
        assert caplog.messages == []
        rc.spark.batch(spark, CALLS.join(FAULTS, on="k"), inputs)
    assert ["both sides are instants" in message for message in caplog.messages] == [True]
