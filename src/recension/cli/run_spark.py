"""``recension run --engine spark``: the query as a streaming pipeline over the existing files."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree, which
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from recension.cli.inputs import common_time_type, open_inputs, report_dropped
from recension.cli.outputs import ResultTargets, check_folder, is_within
from recension.cli.progress import Meter, show_progress, with_progress
from recension.cli.show import show_memory, show_profile, sort_by_lifetime
from recension.core.batch import EventBatch
from recension.core.errors import RecensionError
from recension.core.reconstitution import reconstitute
from recension.gate.files import StreamReader, open_stream
from recension.plan.nodes import Node

if TYPE_CHECKING:
    from recension.runners.spark.job import Job


def missing_for_spark() -> str | None:
    """What Spark needs but is not installed here."""
    if find_spec("pyspark") is None:
        return "PySpark (pip install 'recension[spark]')"
    if which("java") is None and "JAVA_HOME" not in os.environ:
        return "Java 17 or later"
    return None


def run_spark(
    plan: Node,
    folders: Mapping[str, Path],
    results: ResultTargets,
    *,
    close: bool,
    shards: int | None,
    checkpoint: Path | None,
    memory: str | None,
    profile: bool,
) -> None:
    """Run a query as a pipeline until all files are read; with a checkpoint it can be continued later."""
    # Only the schemas are checked here; the tasks read the files for themselves.
    readers = open_inputs(folders, plan, set(), 1)
    if checkpoint is not None:
        _check_checkpoint(checkpoint, folders, results)
    _require_runnable(plan, folders, checkpoint, shards)
    folder = checkpoint or Path(mkdtemp(prefix="recension-"))
    try:
        with show_progress("spark") as meter:
            meter.say("starting Spark")
            job = _make_job(plan, folders, folder.absolute(), shards, memory)
            with _stop_on_interrupt(meter) as monitor:
                is_done = _run(job, readers, monitor, close=close)
        if not is_done:
            _report_stopped(checkpoint)
            raise KeyboardInterrupt
        _write_output(job, plan, results, common_time_type(readers))
        metrics = job.metrics()
        report_dropped(metrics.counts)
        if profile:
            show_profile(metrics.operators)
            if memory is not None:
                show_memory(metrics.resident_bytes, metrics.spilled_bytes)
    finally:
        if checkpoint is None:
            rmtree(folder, ignore_errors=True)


def _check_checkpoint(checkpoint: Path, folders: Mapping[str, Path], results: ResultTargets) -> None:
    """Refuse a folder that cannot be written, is no checkpoint, or is also an input or output."""
    check_folder(checkpoint)
    for path in (*folders.values(), *(output.path for output in results.outputs if not output.is_standard)):
        if is_within(path, checkpoint) or is_within(checkpoint, path):
            raise RecensionError(
                f"--checkpoint {checkpoint}: {path} is in it, or it in {path}: use another folder"
            )


def _require_runnable(
    plan: Node, folders: Mapping[str, Path], checkpoint: Path | None, shards: int | None
) -> None:
    # pyspark takes a second to load, and whoever runs on another engine need not have it.
    from recension.runners.spark.job import require_runnable

    require_runnable(plan, folders.values(), checkpoint, shards)


def _make_job(
    plan: Node, folders: Mapping[str, Path], checkpoint: Path, shards: int | None, memory: str | None
) -> Job:
    from recension.runners.spark.job import Job
    from recension.runners.spark.session import delay_interrupts, quiet_session

    absolute = {name: folder.absolute() for name, folder in folders.items()}
    with delay_interrupts():
        spark = quiet_session(checkpoint / "spark.log")
    return Job(spark, plan, absolute, checkpoint, shards, keeps_history=False, memory=memory)


class _RunMonitor:
    """Shows the progress of a run, and knows whether the user wants to stop it."""

    def __init__(self, meter: Meter) -> None:
        self._meter, self._began = meter, time.monotonic()
        meter.say("first micro-batch")
        self._events = self._batches = 0
        self.is_stopping = False

    def show_batch(self, report: dict[str, Any]) -> None:
        """Show a micro-batch."""
        from recension.runners.spark.stream.metrics import elements_in

        self._batches += 1
        self._events += elements_in(report)
        rate = self._events / (time.monotonic() - self._began)
        batches = "1 micro-batch" if self._batches == 1 else f"{self._batches:,} micro-batches"
        self._meter.say(f"{batches}, {self._events:,} elements, {rate:,.0f} a second")

    def stop(self, *_: Any) -> None:
        """The user wants to stop: after this micro-batch."""
        self.is_stopping = True
        self._meter.say("stopping after this micro-batch")


@contextmanager
def _stop_on_interrupt(meter: Meter) -> Iterator[_RunMonitor]:
    monitor = _RunMonitor(meter)
    before = signal.signal(signal.SIGINT, monitor.stop)
    try:
        yield monitor
    finally:
        signal.signal(signal.SIGINT, before)


def _run(job: Job, readers: Mapping[str, StreamReader], monitor: _RunMonitor, *, close: bool) -> bool:
    """Run once for all files, and once more to close inputs that end. False if the user stopped it."""
    is_done = job.run(monitor.show_batch, lambda: monitor.is_stopping)
    ending = [n for n, reader in readers.items() if (close or reader.is_table) and n not in job.tables]
    fresh = [name for name in ending if not job.is_closed(name)]
    if is_done and fresh:
        for name in fresh:
            job.close(name)
        is_done = job.run(monitor.show_batch, lambda: monitor.is_stopping)
    return is_done


def _report_stopped(checkpoint: Path | None) -> None:
    advice = f"run it again with --checkpoint {checkpoint} to go on" if checkpoint else "nothing is kept"
    print(f"recension: stopped before the end, no output is written: {advice}", file=sys.stderr)


def _write_output(job: Job, plan: Node, results: ResultTargets, time_type: pa.DataType) -> None:
    """The whole output so far, from the changelog in the checkpoint."""
    has_any = any(job.changelog.glob("*.parquet"))
    changelog: Iterable[EventBatch] = open_stream(job.changelog, schema=plan.schema) if has_any else ()
    if results.output is not None:
        results.output.write_stream(with_progress(changelog, "writing"), plan.schema, time_type)
    if results.needs_history:
        found = sort_by_lifetime(reconstitute(with_progress(changelog, "reading the answer"), plan.schema))
        results.put_history(found, time_type)
