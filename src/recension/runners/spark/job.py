"""A query over folders of files, from the first file to the last, as a pipeline with a checkpoint.

Run again with the same checkpoint, a job goes on where it stopped: it takes the files that came since, and
nothing twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from recension.core.errors import RecensionError
from recension.plan.nodes import Node, Table, walk
from recension.runners.spark.failures import is_worker_missing, reason_of
from recension.runners.spark.session import require_streaming_packages
from recension.runners.spark.sinks.checkpoint import LocalFiles, require_owner, shards_of
from recension.runners.spark.sinks.writing import write
from recension.runners.spark.stream.inputs import require_seen_by_spark
from recension.runners.spark.stream.metrics import PipelineMetrics, pipeline_metrics
from recension.runners.spark.stream.packing import CLOSING
from recension.runners.spark.stream.pipeline import stream
from recension.runners.spark.stream.topology import topology

_POLL: Final = 0.2
_ATTEMPTS: Final = 4
_PAUSE: Final = 2.0
# What a job keeps in its folder: what Spark needs to go on, and its log, which comes first.
_SPARK: Final = "spark"
_OURS: Final = (_SPARK, "spark.log")


def require_runnable(
    query: Node, folders: Iterable[Path], checkpoint: Path | None, shards: int | None
) -> None:
    """Refuse, before Spark starts, what would stop a job later."""
    require_streaming_packages()
    for folder in folders:
        require_seen_by_spark(folder.absolute())
    if checkpoint is None or not checkpoint.exists():
        return
    if not any((checkpoint / name).exists() for name in _OURS) and any(checkpoint.iterdir()):
        raise RecensionError(f"{checkpoint}: a folder with other things in it, and no checkpoint")
    files = LocalFiles(checkpoint / _SPARK)
    if (made_with := shards_of(files)) is not None:
        require_owner(files, topology([query], shards or made_with, {}).owner)


@dataclass
class Job:
    """What is run and where it is kept: ``checkpoint`` holds Spark's own and the query's output."""

    spark: SparkSession
    query: Node
    folders: Mapping[str, Path]
    checkpoint: Path
    shards: int | None = None
    keeps_history: bool = True
    files_per_batch: int | None = None
    memory: str | int | None = None
    _seen: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def tables(self) -> set[str]:
        """The inputs that are tables without times, which are closed anyway."""
        return {node.name for node in walk(self.query) if isinstance(node, Table)}

    @property
    def changelog(self) -> Path:
        """Where the physical output is kept."""
        return self.checkpoint / "changelog"

    @property
    def history(self) -> Path:
        """Where the current history is kept, as a table."""
        return self.checkpoint / "history"

    def run(self, watch: Callable[[dict[str, Any]], None], should_stop: Callable[[], bool]) -> bool:
        """Take all files there are; False if it was stopped before. ``watch`` sees every micro-batch.

        Spark gives up if a Python process does not start within ten seconds. Nothing is lost by that, so the
        job is tried again.
        """
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                return self._follow(self._start(), watch, should_stop)
            except (PySparkException, Py4JError) as why:
                if not attempts_left or not is_worker_missing(str(why)):
                    raise RecensionError(reason_of(why)) from None
            time.sleep(_PAUSE)
        raise AssertionError("the last attempt ends in one way or the other")

    def _start(self) -> Any:
        output = stream(
            self.spark,
            self.query,
            self.folders,
            shards=self.shards,
            files_per_batch=self.files_per_batch,
            closing=self.checkpoint / "closing",
            memory=self.memory,
        )
        return write(
            output,
            changelog=self.changelog,
            history=self.history if self.keeps_history else None,
            checkpoint=self.checkpoint / _SPARK,
            trigger={"availableNow": True},
        )

    def _follow(
        self, query: Any, watch: Callable[[dict[str, Any]], None], should_stop: Callable[[], bool]
    ) -> bool:
        stopping = False
        while query.isActive:
            time.sleep(_POLL)
            fresh = self._new_progress(query)
            for progress in fresh:
                watch(progress)
            # A micro-batch has just ended: nothing is lost by stopping here.
            stopping = stopping or should_stop()
            if stopping and (fresh or not query.status["isTriggerActive"]):
                query.stop()
        query.awaitTermination()
        for progress in self._new_progress(query):
            watch(progress)
        return not stopping

    def _new_progress(self, query: Any) -> list[dict[str, Any]]:
        # Where nothing came there was no micro-batch: the report has the number of the next one.
        ran = [dict(p) for p in query.recentProgress if "addBatch" in p["durationMs"]]
        fresh = [p for p in ran if p["batchId"] not in self._seen]
        self._seen |= {p["batchId"]: p for p in fresh}
        return fresh

    def close(self, source: str) -> None:
        """Let the next run know that nothing more comes at a source."""
        folder = self.checkpoint / "closing" / source
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CLOSING).write_text(json.dumps({"_kind": "cti", "_vs": None}) + "\n", encoding="utf-8")

    def is_closed(self, source: str) -> bool:
        """Has `close` been called for it?"""
        return (self.checkpoint / "closing" / source / CLOSING).exists()

    def metrics(self) -> PipelineMetrics:
        """What the operators did in all runs of this job."""
        return pipeline_metrics(self._seen[number] for number in sorted(self._seen))
