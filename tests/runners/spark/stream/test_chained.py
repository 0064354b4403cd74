"""Grouped by one key, joined on another, aggregated by a third: stateful operators in a row, for real."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import recension as rc
from recension.core.batch import EventBatch, concat
from recension.core.difference import difference
from recension.core.formats import write_stream
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.gate.files import read_history
from recension.testing.generator import StreamSettings, generate
from recension.testing.generator.settings import SCHEMA

FILES = 2


def _query() -> rc.Stream:
    reads, sites = rc.source("reads", SCHEMA), rc.source("sites", SCHEMA)
    keyed = reads.with_columns(sensor=rc.col("value") % 13, site=rc.col("value") % 5)
    busy = keyed.group_by("sensor", "site").agg(n=rc.count(), speculate="eager")
    placed = busy.join(sites.select(site=rc.col("value") % 5, country=rc.col("value") % 3), on="site")
    return placed.group_by("country").agg(total=rc.sum("n"), most=rc.max("n"))


def _feed(folder: Path, seed: int) -> EventBatch:
    """A revised and disordered stream in some files."""
    settings = StreamSettings.of("R3", size=300, seed=seed, revisions=0.3)
    elements = concat(list(generate(settings)))
    folder.mkdir()
    for number in range(FILES):
        part = elements.slice(len(elements) * number // FILES, len(elements) * (number + 1) // FILES)
        file = folder / f"{number}.parquet"
        write_stream(file, [part], SCHEMA)
        # Spark takes files by their times, which may be the same for files written at once.
        os.utime(file, (number + 1.0, number + 1.0))
    return elements


def test_chained_operators_agree_with_batch(spark: Any, tmp_path: Path) -> None:
    query = _query()
    assert query.fragments().count("fragment") == 3, query.fragments()
    feeds = {name: _feed(tmp_path / name, seed) for seed, name in enumerate(("reads", "sites"))}
    inputs = {name: str(tmp_path / name) for name in feeds}
    answers = rc.spark.stream(spark, query, inputs, shards=2, files_per_batch=1)
    assert answers.isStreaming
    rc.spark.write_history(
        answers, tmp_path / "out", checkpoint=tmp_path / "ck", trigger={"availableNow": True}
    ).awaitTermination()
    frames = {
        name: spark.createDataFrame(reconstitute([elements], SCHEMA).to_arrow())
        for name, elements in feeds.items()
    }
    batch = History.from_arrow(rc.spark.batch(spark, query, frames).toArrow())
    assert len(batch) > 100
    assert not difference(read_history(tmp_path / "out"), batch)


def test_a_pipeline_reads_what_another_puts_out(spark: Any, tmp_path: Path) -> None:
    elements = _feed(tmp_path / "reads", 0)
    inner = rc.source("reads", SCHEMA).with_columns(k=rc.col("value") % 3)
    counted = inner.group_by("k").agg(n=rc.count(), speculate="eager")
    outer = rc.source("counted", counted.schema).group_by("n").agg(keys=rc.count(), speculate="eager")
    between = rc.spark.stream(spark, counted, {"reads": str(tmp_path / "reads")}, shards=1)
    answers = rc.spark.stream(spark, outer, {"counted": between}, shards=1)
    where: dict[str, Any] = {"checkpoint": tmp_path / "ck", "trigger": {"availableNow": True}}
    running = rc.spark.write_history(answers, tmp_path / "out", **where)
    running.awaitTermination()
    whole = counted.group_by("n").agg(keys=rc.count(), speculate="eager")
    expected = rc.run(whole, {"reads": elements}).history()
    assert len(expected) > 10
    assert not difference(read_history(tmp_path / "out"), expected)
    names = [operator.name for operator in rc.spark.metrics(running).operators]
    assert [name.split(",")[0] for name in names if "aggregate" in name] == [
        "aggregate n = count() by k",
        "aggregate keys = count() by n",
    ]
