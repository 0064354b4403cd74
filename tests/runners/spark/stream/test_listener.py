"""A query's progress as flat numbers: in Spark's progress, in our listener, and in Spark's metrics system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import recension as rc
from recension.core.formats import write_stream
from recension.runners.spark.stream.metrics import (
    NUMBERS,
    metrics_names,
    observed_numbers,
    observed_rows,
)

SCHEMA = {"k": "int64"}
NAMES = ["recension", "recension 2"]


def _put(folder: Path, number: int, *elements: rc.Insert | rc.Retract | rc.Cti) -> None:
    folder.mkdir(exist_ok=True)
    source = rc.source("s", SCHEMA)
    batch = rc.run(source, {"s": list(elements)}).batch()
    write_stream(folder / f"{number}.parquet", [batch], source.schema)


def test_numbers_of_two_pipelines_in_one_query(spark: Any, tmp_path: Path) -> None:
    """A count, and the largest count read from it; the query is started again with one element more."""
    counts = rc.source("s", SCHEMA).group_by("k").agg(n=rc.count(), speculate="eager")
    most = rc.source("counts", counts.schema).agg(most=rc.max("n"), speculate="eager")
    listener = rc.spark.Listener(gauges=spark)
    spark.streams.addListener(listener)

    def run() -> Any:
        first = rc.spark.stream(spark, counts, {"s": tmp_path / "in"}, shards=1)
        output = rc.spark.stream(spark, most, {"counts": first}, shards=1)
        query = rc.spark.write(
            output,
            changelog=tmp_path / "log",
            checkpoint=tmp_path / "ck",
            trigger={"availableNow": True},
        )
        query.awaitTermination()
        return query

    try:
        _put(tmp_path / "in", 0, rc.Insert({"k": 1}, 0, 10), rc.Insert({"k": 2}, 0, 5), rc.Cti(3))
        query = run()
        progress = [dict(p) for p in query.recentProgress if "addBatch" in p["durationMs"]]
        _put(tmp_path / "in", 1, rc.Insert({"k": 1}, 4, 8))
        again = run()
        progress += [dict(p) for p in again.recentProgress if "addBatch" in p["durationMs"]]
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    told = [[observed_numbers(row) for row in observed_rows(p).values()] for p in progress]
    assert all(list(observed_rows(p)) == NAMES for p in progress)
    assert all(list(numbers) == list(NUMBERS) for pair in told for numbers in pair)
    first, second = told[0]
    assert (first["elements"], first["events_out"], first["retractions_out"], first["cti"]) == (3, 2, 0, 3)
    assert first["lag_seconds"] is None  # ticks are not on a clock
    assert first["state_rows"] > 0
    assert first["state_bytes"] > 0
    assert 0 < first["kernel_seconds"] < 60
    assert second["cti"] == 3
    assert told[-1][0]["retractions_out"] == 1
    assert (told[-1][0]["late"], told[-1][0]["dropped"]) == (0, 0)
    seen = [{name: getattr(batch, name) for name in NUMBERS} for batch in listener.batches]
    assert seen == [numbers for pair in told for numbers in pair]
    assert {batch.query for batch in listener.batches} == {str(query.id)}
    gauges = _gauges(spark)
    assert gauges[f"{query.id}.recension.retractions_out"] == 1
    assert gauges[f"{query.id}.recension_2.cti"] == 3
    assert gauges[f"{query.id}.recension.batch"] == progress[-1]["batchId"]


def _gauges(spark: Any) -> dict[str, float]:
    """What Spark's metrics system has of ours, for all its sinks."""
    system = spark._jvm.org.apache.spark.SparkEnv.get().metricsSystem()
    sources = system.getSourcesByName("AccumulatorSource")
    registries = [sources.apply(at).metricRegistry().getGauges() for at in range(sources.size())]
    return {name: gauges.get(name).getValue() for gauges in registries for name in gauges.keySet()}


@pytest.mark.soak
def test_prometheus_can_scrape_them(tmp_path: Path) -> None:
    """As the guide sets it up: a session of its own, with Spark's UI, on the loopback."""
    _put(tmp_path / "in", 0, rc.Insert({"k": 1}, 0, 10), rc.Cti(3))
    here = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    program = [sys.executable, "-m", "tests.runners.spark.stream.scraped", str(tmp_path)]
    done = subprocess.run(program, env=here, capture_output=True, text=True, timeout=300, check=True)
    found = dict(line.split() for line in done.stdout.splitlines() if line.startswith("metrics_shop_driver_"))
    prefix = "metrics_shop_driver_AccumulatorSource_sites_recension_"
    for name, value in {"elements": 2, "events_out": 1, "late": 0, "cti": 3}.items():
        assert float(found[f'{prefix}{name}_Value{{type="gauges"}}']) == value


def test_names_are_given_by_position() -> None:
    first, names = metrics_names(None, [])
    second, more = metrics_names(None, [names, names])
    assert [first, second] == NAMES == list(more)
    assert metrics_names(None, [])[0] == "recension"
    assert metrics_names("sites", [names])[0] == "recension sites"
    with pytest.raises(rc.RecensionError, match=r"two pipelines that go into one query .* 'recension'"):
        metrics_names(None, [names, metrics_names(None, [])[1]])
    with pytest.raises(rc.RecensionError, match="'recension 2': take another"):
        metrics_names("2", [more])


def test_outputs_of_two_queries_are_merged_in_one(spark: Any, tmp_path: Path) -> None:
    """One of them reads a third: built alone each begins with the same names."""
    _put(tmp_path / "in", 0, rc.Insert({"k": 1}, 0, 10), rc.Cti(3))
    query = rc.source("s", SCHEMA)
    first, read = (rc.spark.stream(spark, query, {"s": tmp_path / "in"}, shards=1) for _ in range(2))
    second = rc.spark.stream(spark, query, {"s": read}, shards=1)
    merged = rc.spark.merge(spark, [first, second], shards=1)
    with pytest.raises(rc.RecensionError, match="two pipelines that go into one query"):
        rc.spark.merge(spark, [first, second.where("true")], shards=1)
    running = rc.spark.write(
        merged, changelog=tmp_path / "log", checkpoint=tmp_path / "ck", trigger={"availableNow": True}
    )
    running.awaitTermination()
    found = [dict(p) for p in running.recentProgress if "addBatch" in p["durationMs"]]
    assert [*observed_rows(found[0])] == [*NAMES, "recension 3", "recension 4"]
    changes = rc.spark.read_changelog(spark, tmp_path / "log")
    assert [row.k for row in changes.where("_kind = 'insert'").collect()] == [1]
