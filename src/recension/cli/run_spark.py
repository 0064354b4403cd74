"""``recension run --engine spark``: the query as a streaming pipeline over the files there are."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from recension.cli.inputs import readers_of, time_type_of
from recension.cli.profile import show_profile, tell_counts
from recension.cli.show import in_order, show_history
from recension.core.batch import EventBatch
from recension.core.formats import StreamReader, open_stream, write_history, write_stream
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.plan.nodes import Node

if TYPE_CHECKING:
    from recension.runners.spark.stream.job import Job


def run_spark(
    plan: Node,
    given: list[str],
    output: Path | None,
    history: Path | None,
    *,
    close: bool,
    shards: int | None,
    checkpoint: Path | None,
    profile: bool,
) -> None:
    """Run a query as a pipeline until all files are taken; with a checkpoint it can be run on later."""
    # Read here only to see that the files fit; the tasks read them for themselves.
    readers = readers_of(given, plan, set(), 1)
    folders = {name: Path(path) for name, _, path in (text.partition("=") for text in given)}
    place = checkpoint or Path(mkdtemp(prefix="recension-"))
    try:
        job = _job(plan, folders, place.absolute(), shards)
        with _watching() as watched:
            _run(job, readers, watched, close=close)
        _write(job, plan, output, history, time_type_of(readers))
        metrics = job.metrics()
        tell_counts(metrics.counts)
        if profile:
            show_profile(metrics.operators)
    finally:
        if checkpoint is None:
            shutil.rmtree(place, ignore_errors=True)


def _job(plan: Node, folders: Mapping[str, Path], place: Path, shards: int | None) -> Job:
    # pyspark takes a second to load, and whoever runs on another engine need not have it.
    from recension.runners.spark.interrupts import interrupted_after
    from recension.runners.spark.session import quiet_session
    from recension.runners.spark.stream.job import Job

    absolute = {name: folder.absolute() for name, folder in folders.items()}
    with interrupted_after():
        spark = quiet_session(place / "spark.log")
    return Job(spark, plan, absolute, place, shards, keeps_history=False)


class _Watch:
    """A progress bar, and whether the user wants to stop."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._began = progress, time.monotonic()
        self._task = progress.add_task("starting Spark", total=None)
        self._events = self._batches = 0
        self.is_stopping = False

    def see(self, report: dict[str, Any]) -> None:
        """Show a micro-batch."""
        from recension.runners.spark.stream.metrics import events_of

        self._batches += 1
        self._events += events_of(report)
        rate = self._events / (time.monotonic() - self._began)
        what = f"{self._batches} micro-batches, {self._events:,} elements, {rate:,.0f} a second"
        self._progress.update(self._task, description=what)

    def stop(self, *_: Any) -> None:
        """The user wants to stop: after this micro-batch."""
        self.is_stopping = True
        self._progress.update(self._task, description="stopping after this micro-batch")


@contextmanager
def _watching() -> Iterator[_Watch]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    shown = sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown) as progress:
        watch = _Watch(progress)
        before = signal.signal(signal.SIGINT, watch.stop)
        try:
            yield watch
        finally:
            signal.signal(signal.SIGINT, before)


def _run(job: Job, readers: Mapping[str, StreamReader], watch: _Watch, *, close: bool) -> None:
    """Once for all files; once more to close the inputs that end here."""
    is_done = job.run(watch.see, lambda: watch.is_stopping)
    ending = [name for name, reader in readers.items() if close or reader.is_table]
    fresh = [name for name in ending if not job.is_closed(name)]
    if is_done and fresh:
        for name in fresh:
            job.close(name)
        job.run(watch.see, lambda: watch.is_stopping)


def _write(job: Job, plan: Node, output: Path | None, history: Path | None, time_type: pa.DataType) -> None:
    """The whole output so far, from the changelog in the checkpoint."""
    has_any = any(job.changelog.glob("*.parquet"))
    changelog: Iterable[EventBatch] = open_stream(job.changelog, schema=plan.schema) if has_any else ()
    if output is not None:
        write_stream(output, iter(changelog), plan.schema, time_type)
    if history is not None or output is None:
        found: History = in_order(reconstitute(iter(changelog), plan.schema))
        if history is not None:
            write_history(history, found, time_type)
        else:
            show_history(found, time_type)
