"""The demo on Spark: the same question as a pipeline, stopped half way and started again."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

from rich.console import Console

from recension.core.batch import EventBatch
from recension.core.difference import difference
from recension.core.formats import read_history, write_stream
from recension.core.history import History
from recension.plan.node import Node

_FILES = 4


def ask_spark(
    question: Node, source: str, elements: EventBatch, truth: History, folder: Path, console: Console
) -> bool:
    """Is the history that a restarted pipeline leaves the right one?"""
    if find_spec("pyspark") is None or which("java") is None:
        console.print("\nThe part on Spark is left out: it needs recension[spark] and Java 17 or later.")
        return True
    console.print(
        f"\nThe same question to witness 1 as a Spark Structured Streaming query, a micro-batch for each of "
        f"{_FILES} files,\nstopped after the first and started again from its checkpoint."
    )
    _write(folder / "feed", elements)
    with console.status("starting Spark") as status:
        job, seen = _run(question, {source: folder / "feed"}, folder, status)
    history = read_history(job.history)
    equal = not difference(truth, history)
    events, live = sum(map(_elements, seen)), job.metrics()
    console.print(
        f"{len(seen)} micro-batches, {events:,} elements in, {live.operators[-1].events_out:,} changes out, "
        f"{len(history):,} events in the history table; equal to the final truth: {'yes' if equal else 'NO'}"
    )
    return equal


def _write(folder: Path, elements: EventBatch) -> None:
    folder.mkdir()
    size = len(elements)
    for number in range(_FILES):
        part = elements.slice(size * number // _FILES, size * (number + 1) // _FILES)
        write_stream(folder / f"{number}.parquet", [part], elements.schema)


def _run(question: Node, folders: dict[str, Path], place: Path, status: Any) -> tuple[Any, list[Any]]:
    from recension.runners.spark.interrupts import interrupted_after
    from recension.runners.spark.session import quiet_session
    from recension.runners.spark.stream.job import Job

    with interrupted_after():
        spark = quiet_session(place / "spark.log")
    job = Job(spark, question, folders, place / "checkpoint", 2, files_per_batch=1)
    seen: list[Any] = []

    def see(report: dict[str, Any]) -> None:
        seen.append(report)
        status.update(f"{len(seen)} micro-batches, {sum(map(_elements, seen)):,} elements")

    job.run(see, lambda: bool(seen))
    status.update("stopped; starting again from the checkpoint")
    job.run(see, lambda: False)
    return job, seen


def _elements(report: dict[str, Any]) -> int:
    from recension.runners.spark.stream.metrics import events_of

    return events_of(report)
