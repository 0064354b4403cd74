"""The story played from beginning to end, on Spark or in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from rich.console import Console

from recension.demo.display import Display
from recension.demo.local_stage import LocalStage
from recension.demo.report import page
from recension.demo.script import World, play
from recension.demo.stage import Stage
from recension.demo.story import tell
from recension.demo.verdict import Verdict, judge


def perform(world: World, console: Console, report: Path, *, on_spark: bool) -> Verdict:
    """Play, judge, tell, and write the report."""
    display = Display(console)
    with display.live(), _stage(display, on_spark=on_spark) as stage:
        display.follow(stage.trace)
        play(world, stage, display.see)
        display.wait_for("asking the same question of the leases as they were in the end")
        verdict = judge(world, stage)
    tell(verdict, console)
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(page(stage.trace, verdict, stage.engine), encoding="utf-8")
    return verdict


@contextmanager
def _stage(display: Display, *, on_spark: bool) -> Iterator[Stage]:
    if not on_spark:
        yield LocalStage()
        return
    from recension.demo.spark_stage import SparkStage, start_spark

    # Spark looks after the state of queries that have stopped for a while yet.
    with TemporaryDirectory(prefix="recension-demo-", ignore_cleanup_errors=True) as name:
        display.wait_for("starting Spark")
        stage = SparkStage(start_spark(Path(name)), Path(name), display.see)
        try:
            yield stage
        finally:
            stage.close()


def missing_for_spark() -> str | None:
    """What is not here and Spark needs."""
    if find_spec("pyspark") is None:
        return "PySpark (pip install 'recension[spark]')"
    if which("java") is None and "JAVA_HOME" not in os.environ:
        return "Java 17 or later"
    return None
