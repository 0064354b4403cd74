"""A micro-batch whose state is committed, and which is not committed itself: the next attempt goes on, from disk.

Its sink failed there, or the query was stopped, or killed. What the first attempt left in the checkpoint is read
by all later ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.runners.spark.sinks import feeding
from tests.runners.spark.stream import driver, gapped
from tests.runners.spark.stream.processes import Program

import recension as rc
from recension.runners.spark.sinks import writing
from recension.runners.spark.sinks.writing import Commit

OFTEN = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
    "spark.sql.streaming.stateStore.maintenanceInterval": "100ms",
}
COUNTED = rc.source("s", driver.SCHEMA).with_columns(k=rc.col("value") % 7).group_by("k")
QUERY = COUNTED.agg(n=rc.count(), top=rc.max("value"), speculate="eager")


class SinkFailed(Exception):
    """The sink is away."""


def _fail_once_each(monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None]) -> None:
    """Let every micro-batch fail once, when its tables are written."""
    write, failed = writing.Commit.__call__, set[int]()

    def write_and_fail(self: Commit, frame: Any, number: int) -> None:
        write(self, frame, number)
        if number not in failed:
            failed.add(number)
            before(number)
            raise SinkFailed

    monkeypatch.setattr(writing.Commit, "__call__", write_and_fail)


def _forget_state(spark: Any) -> None:
    """What is loaded next is read from disk. (The engines of failed attempts are of no use to others.)"""
    spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def _play(spark: Any, folder: Path) -> int:
    """Start until all is read; how often that was."""
    where: dict[str, Any] = {"changelog": folder / "log", "checkpoint": folder / "ck"}
    for starts in range(1, 20):
        _forget_state(spark)
        answers = rc.spark.stream(spark, QUERY, {"s": driver.read(spark, folder / "in")}, shards=1)
        try:
            rc.spark.write(answers, **where, trigger={"availableNow": True}).awaitTermination()
        except StreamingQueryException as why:
            assert "SinkFailed" in str(why), rc.spark.reason_of(why)
        else:
            return starts
    raise AssertionError("it never came to its end")


def _uploaded(folder: Path, version: int) -> None:
    """Wait until Spark has uploaded a snapshot of a version, as it does in the background."""
    deadline = time.monotonic() + 60
    while not (folder / "ck" / "state" / "0" / "0" / f"{version}.zip").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("uploads", [False, True], ids=["", "with a snapshot"])
def test_a_sink_that_fails(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uploads: bool
) -> None:
    """In every micro-batch, after its tables; with or without a snapshot of the state it had."""
    driver.write_inputs(tmp_path, 3, 12)
    expected = rc.run(QUERY, {"s": tmp_path / "in"}).history()
    _fail_once_each(monkeypatch, lambda number: _uploaded(tmp_path, number + 1) if uploads else None)
    before = {name: spark.conf.get(name) for name in OFTEN}
    for name, value in OFTEN.items() if uploads else ():
        spark.conf.set(name, value)
    try:
        assert _play(spark, tmp_path) == 4
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
        _forget_state(spark)
    feeding.assert_same(feeding.read(tmp_path / "log"), expected)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("uploads", [False, True], ids=["", "with a snapshot"])
def test_a_driver_that_is_killed_eight_times(tmp_path: Path, uploads: bool) -> None:
    """Twice in each of four micro-batches, when its tables are written."""
    expected = driver.write_inputs(tmp_path, 5, 60)
    settings = [f"{name}={value}" for name, value in OFTEN.items()] if uploads else []
    for kill in range(8):
        program = Program(gapped.__name__, str(tmp_path), str(kill), *settings, log=tmp_path / "words.txt")
        program.wait_for(gapped.mark(tmp_path, kill).exists)
        if uploads and kill % 2 == 0:
            _uploaded(tmp_path, kill // 2 + 1)
        program.kill()
    last = Program(gapped.__name__, str(tmp_path), "end", *settings, log=tmp_path / "words.txt")
    last.finish()
    for name in ("log", "table"):
        feeding.assert_same(feeding.read(tmp_path / name), expected)
