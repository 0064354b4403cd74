"""The gaps between the durable writes of a micro-batch, by name, and how a program is stopped in one.

The names are those of `docs/design/020-checkpoints.md`; a gap lies just after the write that it is named for,
and `written` is when the last sink has all. In Iceberg a commit is `staged` before it is published.
What Python writes, or waits for, is caught where it happens, in the driver, by wrapping functions of ours;
what Spark alone writes is caught as soon as the file is there. Nothing of this is in the library.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql.streaming.readwriter import DataStreamWriter

from recension.runners.spark.kafka.sink import _Encoder
from recension.runners.spark.lake import sinks as lake_sinks
from recension.runners.spark.lake.delta_commit import _Attempt
from recension.runners.spark.lake.iceberg import IcebergTable
from recension.runners.spark.sinks import history_table, writing
from recension.runners.spark.sinks.changelog import Changelog
from recension.runners.spark.sinks.history_table import HistoryTable
from recension.runners.spark.sinks.micro_batch import MicroBatch
from recension.runners.spark.sinks.recording import MicroBatchRecorder

# Of every sink, the gaps in the order of a micro-batch.
_FIRST: Final = ("source-log", "offsets", "state-part")
_LAST: Final = ("written", "upload", "commit")
POINTS: Final = {
    "own": (*_FIRST, "state", "files", "history", "publishing", "part", "mark", "recorded", *_LAST),
    "delta": (*_FIRST, "state", "files", "history", "part", *_LAST),
    "iceberg": (*_FIRST, "state", "staged", "history", "part", *_LAST),
    "kafka": (*_FIRST, *_LAST),
}
# A state snapshot is uploaded by a thread of Spark's that looks after so long.
MAINTENANCE: Final = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
    "spark.sql.streaming.stateStore.maintenanceInterval": "100ms",
}
_PATIENCE: Final = 60.0


class Trap:
    """Acts when a point is reached for the last of so many times; once."""

    def __init__(self, point: str, times: int, act: Callable[[], None], checkpoint: Path) -> None:
        self.point, self._left, self._act, self._checkpoint = point, times, act, checkpoint
        self._lock, self._first = threading.Lock(), self.micro_batches("commits")
        self.is_set = True

    def reach(self, point: str) -> None:
        """A point is reached."""
        with self._lock:
            self._left -= point == self.point
            is_sprung = point == self.point and self._left == 0
        if is_sprung:
            self._act()

    def micro_batches(self, log: str) -> int:
        """How many micro-batches a log of the checkpoint has."""
        return micro_batches(self._checkpoint, log)

    def wait_for_snapshot(self) -> None:
        """Until every shard of every level has a snapshot of the state after the micro-batch at hand."""
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            if has_snapshot(self._checkpoint):
                self.reach("upload")
                return
            time.sleep(0.02)

    def watch(self) -> None:
        """Look for what Spark alone writes."""
        while self.is_set:
            if self.point == "commit" and self.micro_batches("commits") > self._first:
                self._first += 1
                self.reach("commit")
            elif self.point == "source-log":
                version = self.micro_batches("sources/0")
                if version > max(self._first, self.micro_batches("offsets")):
                    self._first = version
                    self.reach("source-log")
            elif self.point == "state-part":
                version = self.micro_batches("offsets")
                if version > self._first and any(self._checkpoint.glob(f"state/*/*/{version}.changelog")):
                    self._first = version
                    self.reach("state-part")
            time.sleep(0.001)


def micro_batches(checkpoint: Path, log: str) -> int:
    """How many micro-batches a log of a checkpoint has."""
    names = (file.name for file in (checkpoint / log).glob("[0-9]*"))
    return max((int(name) for name in names if name.isdigit()), default=-1) + 1


def has_snapshot(checkpoint: Path) -> bool:
    """Has every shard of every level a snapshot of the state after the micro-batch that was planned last?"""
    version = micro_batches(checkpoint, "offsets")
    places = [place for place in checkpoint.glob("state/*/*") if place.name.isdigit()]
    return bool(places) and all((place / f"{version}.zip").exists() for place in places)


@contextmanager
def set_trap(trap: Trap) -> Iterator[None]:
    """Let a trap know which points are reached."""
    undo = [_wrap(owner, name, wrapped) for owner, name, wrapped in _wrappers(trap)]
    if trap.point in ("source-log", "commit", "state-part"):
        threading.Thread(target=trap.watch, daemon=True).start()
    try:
        yield
    finally:
        trap.is_set = False
        for back in undo:
            back()


def _wrap(owner: Any, name: str, wrapped: Callable[[Any], Any]) -> Callable[[], None]:
    before = getattr(owner, name)
    setattr(owner, name, wrapped(before))
    return lambda: setattr(owner, name, before)


def _wrappers(trap: Trap) -> list[tuple[Any, str, Callable[[Any], Any]]]:
    def after(point: str, when: Callable[..., bool] = lambda *_: True) -> Callable[[Any], Any]:
        def wrap(function: Any) -> Any:
            def wrapped(*given: Any, **named: Any) -> Any:
                found = function(*given, **named)
                if when(*given):
                    trap.reach(point)
                return found

            return wrapped

        return wrap

    def before(point: str) -> Callable[[Any], Any]:
        def wrap(function: Any) -> Any:
            def wrapped(*given: Any, **named: Any) -> Any:
                trap.reach(point)
                return function(*given, **named)

            return wrapped

        return wrap

    def around(for_each_batch: Any) -> Any:
        """Of every sink: before the function of a micro-batch, and before Spark knows that it has ended."""

        def wrapped(writer: Any, function: Any) -> Any:
            def call(frame: Any, number: int) -> None:
                trap.reach("offsets")
                function(frame, number)
                trap.reach("written")
                if trap.point == "upload":
                    trap.wait_for_snapshot()

            return for_each_batch(writer, call)

        return wrapped

    def is_part(_: Any, target: Any) -> bool:
        return Path(target).name.startswith("part-")

    return [
        (DataStreamWriter, "foreachBatch", around),
        # Rows are with the driver, or with the files of tasks, once all state is committed.
        (MicroBatch, "with_rows", after("state")),
        (writing, "write_from_tasks", after("state")),
        (writing, "_count", after("state")),
        (history_table, "revise", after("files")),
        (HistoryTable, "commit", before("files")),
        (_Attempt, "_commit", before("files")),
        (HistoryTable, "_commit", after("history")),
        (lake_sinks.LakeHistory, "_write_rows", after("history")),
        (lake_sinks.LakeHistory, "_write_frame", after("history")),
        (IcebergTable, "_publish", before("staged")),
        (Changelog, "_put_mark", after("publishing", lambda _, mark: mark.publishing is not None)),
        (Changelog, "_put_mark", after("mark", lambda _, mark: mark.publishing is None and mark.last >= 0)),
        (os, "replace", after("part", is_part)),
        (lake_sinks.LakeChangelog, "_write_frame", after("part")),
        (MicroBatchRecorder, "commit", after("recorded")),
        (_Encoder, "spread_over", after("asked")),
    ]
