"""A query's progress as plain numbers: kept, passed on, and published as gauges of Spark's metrics system.

The numbers are in Spark's own progress, observed as ``recension``: any listener can read them there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

from recension.core.errors import RecensionError
from recension.runners.spark.query_numbers import QueryNumbers, numbers_of
from recension.runners.spark.stream.metrics import NUMBERS, observed_numbers, observed_rows, shard_reports

# By application and name: Spark takes each name once, whichever listener sets it.
_gauges: Final[dict[tuple[str, str], Any]] = {}


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What a pipeline did in one micro-batch, over all its shards, and what it holds after it."""

    query: str
    """The query's name; its id if it has none."""
    pipeline: str
    """What its metrics are called: ``recension``, unless a query is made of several pipelines."""
    batch: int
    at: str
    """When the micro-batch began, as Spark writes it."""
    elements: int
    """Elements that came in, those that were dropped included; a CTI counts once in every shard."""
    events_out: int
    """Inserts and retractions of the answer."""
    retractions_out: int
    late: int
    """Elements that broke a CTI: dropped, or moved to it."""
    dropped: int
    """Elements that were dropped for any reason."""
    state_rows: int
    state_bytes: int
    load_seconds: float
    """Of all shards together, as the next two: reading state that was not in the worker."""
    kernel_seconds: float
    save_seconds: float
    bytes_written: int
    rows_written: int
    resident_bytes: int | None = None
    """With a bound on memory: state in memory, and in files."""
    spilled_bytes: int | None = None
    cti: int | None = None
    """How far the answer is final, in ticks; microseconds if times are timestamps. None: not at all."""
    lag_seconds: float | None = None
    """From there to the clock of the workers; None if times are ticks, or nothing more can come."""


def micro_batches(progress: Any) -> Iterator[MicroBatch]:
    """What each pipeline of a query did, from a progress report of it; nothing if no micro-batch ran."""
    known: dict[str, Any] = {
        "query": str(progress["name"] or progress["id"]),
        "batch": int(progress["batchId"]),
    }
    for name, row in observed_rows(progress).items():
        numbers = observed_numbers(row)
        if numbers["elements"] is not None:
            yield MicroBatch(**known, **numbers, pipeline=name, at=str(progress["timestamp"]))


class Listener(StreamingQueryListener):  # type: ignore[misc]
    """Turns the progress of every query of a session into numbers: ``spark.streams.addListener(Listener())``.

    Parameters
    ----------
    keep
        How many micro-batches ``batches`` keeps.
    on_batch
        Called with each `MicroBatch`, on the thread of Spark's listeners, so it must be fast.
    gauges
        A session, to publish every number as a gauge of its metrics system, on the driver, for Prometheus and
        other configured sinks: ``AccumulatorSource.QUERY.PIPELINE.late`` and so on.
    folder
        A directory in which each query gets a sub-directory of its name, with its plan and the numbers of
        every step, written after each micro-batch: ``recension inspect FOLDER/QUERY`` follows it. Only for
        queries that were built in this program.
    """

    def __init__(
        self,
        keep: int = 1000,
        on_batch: Callable[[MicroBatch], None] | None = None,
        *,
        gauges: SparkSession | None = None,
        folder: str | PathLike[str] | None = None,
    ) -> None:
        # Connect's clients have no JVM.
        self._context = None if gauges is None else getattr(gauges, "sparkContext", None)
        if gauges is not None and self._context is None:
            raise RecensionError("gauges are made on the driver: give the classic Spark session there")
        self._on_batch = on_batch
        self._folder = None if folder is None else Path(folder)
        # By the query's id, and the pipeline.
        self._numbers: dict[str, dict[str, QueryNumbers | None]] = {}
        self.batches: deque[MicroBatch] = deque(maxlen=keep)
        """The last micro-batches of all queries, in the order in which they ended."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Called by Spark."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Called by Spark."""
        for place, found in enumerate(micro_batches(event.progress)):
            if self._folder is not None:
                self._write_numbers(event.progress, place, found)
            # Last: who sees the micro-batch here finds its numbers in the folder.
            self.batches.append(found)
            if self._context is not None:
                _set_gauges(self._context, found)
            if self._on_batch is not None:
                self._on_batch(found)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Called by Spark."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Called by Spark."""
        for numbers in self._numbers.pop(str(event.id), {}).values():
            if numbers is not None:
                numbers.end(" with an error" if event.exception else None)

    def _write_numbers(self, progress: Any, place: int, found: MicroBatch) -> None:
        assert self._folder is not None
        reports = [report for pipeline, report in shard_reports(progress) if pipeline == place]
        known = self._numbers.setdefault(str(progress["id"]), {})
        if found.pipeline not in known:
            plan = reports[0]["plan"] if reports else ""
            known[found.pipeline] = numbers_of(self._folder, found.query, found.pipeline, plan)
        numbers = known[found.pipeline]
        if numbers is not None:
            numbers.add(found, reports)


def _set_gauges(context: Any, found: MicroBatch) -> None:
    """Set a gauge for each number that is known; where there is none yet, Spark gets one."""
    numbers: Mapping[str, Any] = {name: getattr(found, name) for name in (*NUMBERS, "batch")}
    prefix = f"{found.query}.{found.pipeline.replace(' ', '_')}"
    known = {f"{prefix}.{name}": value for name, value in numbers.items() if value is not None}
    application, scala = context.applicationId, context._jsc.sc()
    if new := {name: scala.doubleAccumulator() for name in known if (application, name) not in _gauges}:
        _gauges.update({(application, name): gauge for name, gauge in new.items()})
        source = getattr(context._jvm.org.apache.spark.metrics.source, "DoubleAccumulatorSource$")
        getattr(source, "MODULE$").register(scala, context._jvm.PythonUtils.toScalaMap(new))
    for name, value in known.items():
        _gauges[application, name].setValue(float(value))
