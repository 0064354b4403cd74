"""What goes wrong in a module on Spark is told as it is here: module, window and payloads, in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from tests.runners.spark.batch.jobs import frame
from tests.runners.spark.stream import driver

import recension as rc
from recension.core.batch import from_elements

S: Any = rc.source("s", {"k": "string", "v": "int64"})


class Refusing(rc.Aggregate):
    result = "int64"

    def compute(self, payloads: Any) -> int:
        raise ValueError("not today")


class Limited(rc.IncrementalAggregate):
    """A sum that must not become large; it keeps its state between micro-batches."""

    inputs = {"v": "int64"}
    result = "int64"

    def initial(self) -> int:
        return 0

    def add(self, state: int, payloads: Any) -> int:
        return state + int(payloads["v"].sum())

    def remove(self, state: int, payloads: Any) -> int:
        return state - int(payloads["v"].sum())

    def compute(self, state: int) -> int:
        if state > 10:
            raise ValueError(f"{state} is too much")
        return state


def _too_long(values: Any) -> int:
    raise ValueError(f"{len(values)} values")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            Refusing(),
            "module Refusing in the window [0, 5): ValueError: not today; it was given {'k': 'a', 'v': 1}",
        ),
        (
            rc.aggregate(_too_long, "v", result="int64"),
            "module _too_long in the window [0, 5): ValueError: 1 values; it was given 1",
        ),
    ],
    ids=["module", "function"],
)
def test_in_a_batch(spark: Any, answer: Any, told: str) -> None:
    history = [rc.Event({"k": "a", "v": 1}, 2, 3)]
    job = rc.spark.batch(spark, S.tumbling(5).agg(a=answer), {"s": frame(spark, history, S.schema)})
    with pytest.raises(PySparkException) as caught:
        job.collect()
    assert rc.spark.reason_of(caught.value) == told


def test_in_a_stream(spark: Any, tmp_path: Path) -> None:
    """The first micro-batch passes and shows its sum; the second brings it over the limit."""
    for number, value in enumerate([5, 7]):
        batch = from_elements([rc.Insert({"k": "a", "v": value}, 2 + number, 4 + number)], S.schema)
        driver.put(tmp_path / "in", number, batch)
    query = S.group_by("k").tumbling(10).agg(a=Limited(), speculate="eager")
    answers = rc.spark.stream(spark, query, {"s": str(tmp_path / "in")}, shards=2, files_per_batch=1)
    where: Any = {"checkpoint": tmp_path / "ck", "trigger": {"availableNow": True}}
    with pytest.raises(StreamingQueryException) as caught:
        rc.spark.write_history(answers, tmp_path / "table", **where).awaitTermination()
    assert rc.spark.reason_of(caught.value) == (
        "module Limited in the window [0, 10): ValueError: 12 is too much; it was given {'v': 5}, {'v': 7}"
    )
