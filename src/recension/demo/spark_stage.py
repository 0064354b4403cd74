"""The story on Spark: every replica a Structured Streaming query, and one more that merges them.

feeds/north/…      the files of a feed, an hour each
root/north/…       the answers of a replica, a file for each of its micro-batches
answers/, table/   the merged stream, and its history as a table
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import recension as rc
from recension.core.batch import EventBatch, concat
from recension.core.errors import RecensionError
from recension.core.formats import write_stream
from recension.core.history import History
from recension.core.ticks import BEGINNING
from recension.demo.plans import LEASES, POLICY, common_properties
from recension.demo.trace import MERGED, Trace
from recension.gate.files import open_stream, read_history
from recension.runners.spark.failures import BUSY
from recension.runners.spark.session import delay_interrupts, quiet_session

# Without a pause Spark looks for files a hundred times a second.
_OFTEN: Final = {"processingTime": "200 milliseconds"}
_POLL: Final = 0.2
# In a minute Java's second compiler costs more than it gains.
_SHORT_RUN: Final = "-XX:TieredStopAtLevel=1"
_PATIENCE: Final = 300.0
_KILL_WITHIN: Final = 2.0
_STARTS: Final = 6


def start_spark(folder: Path) -> Any:
    """A session that talks to a file; a Ctrl-C while it starts counts afterwards."""
    log = folder / "spark.log"
    try:
        with delay_interrupts():
            return quiet_session(log, spark__driver__extraJavaOptions=_SHORT_RUN)
    except Exception as why:
        text = log.read_text(encoding="utf-8", errors="replace").strip() if log.exists() else ""
        reason = text.splitlines()[0] if text else str(why)
        raise RecensionError(f"Spark does not start here: {reason}; --no-spark leaves it out") from None


class SparkStage:
    """Queries of one Spark session, in a folder. ``watch`` is called while it waits.

    A Ctrl-C counts between calls of Spark: within one it would leave a trace of the bridge to Java.
    """

    engine = "spark"

    def __init__(self, spark: Any, folder: Path, watch: Callable[[], None]) -> None:
        self._spark, self._folder, self._watch = spark, folder, watch
        self._feeds: dict[str, int] = {}
        self._replicas: dict[str, tuple[str, _RunningQuery]] = {}
        self._merge: _RunningQuery | None = None
        self._files_read: set[Path] = set()
        self.trace = Trace()

    def push(self, feed: str, part: EventBatch) -> None:
        """One more file of the feed, complete when it appears."""
        number = self._feeds.get(feed, 0)
        folder = self._folder / "feeds" / feed
        folder.mkdir(parents=True, exist_ok=True)
        write_stream(folder / f"{number:04}.parquet", [part], part.schema)
        self._feeds[feed] = number + 1

    @delay_interrupts()
    def start(self, name: str, plan: rc.Stream, feed: str, from_time: int) -> None:
        """A query of its own, whose changelog is a sub-folder of the root."""
        if from_time > BEGINNING:
            rc.spark.attach(self._root, name, from_time)
        self._replicas[name] = feed, _RunningQuery(partial(self._start_replica, name, plan, feed))
        if self._merge is None:
            self._merge = _RunningQuery(partial(self._start_merge, plan))

    def _start_replica(self, name: str, plan: rc.Stream, feed: str) -> Any:
        answers = rc.spark.stream(self._spark, plan, {LEASES: self._folder / "feeds" / feed}, shards=1)
        return rc.spark.write_changelog(
            answers,
            self._root / name,
            checkpoint=self._folder / f"checkpoint {name}",
            trigger=_OFTEN,
            query_name=name,
        )

    def _start_merge(self, plan: rc.Stream) -> Any:
        what: dict[str, Any] = {"root": self._root, "schema": plan.schema, "properties": common_properties()}
        merged = rc.spark.merge(self._spark, **what, policy=POLICY, shards=1)
        where: dict[str, Any] = {"changelog": self._folder / "answers", "history": self._folder / "table"}
        checkpoint = self._folder / "checkpoint of the merge"
        return rc.spark.write(merged, **where, checkpoint=checkpoint, trigger=_OFTEN, query_name=MERGED)

    @delay_interrupts()
    def kill(self, name: str) -> None:
        """Stop its query, if possible while it works on a micro-batch."""
        query = self._replicas.pop(name)[1].query
        deadline = time.monotonic() + _KILL_WITHIN
        while not query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(_POLL / 20)
        query.stop()

    def detach(self, name: str) -> None:
        """A file in the root folder says so."""
        rc.spark.detach(self._root, name)

    @delay_interrupts()
    def input_state(self, name: str) -> str:
        """As the merge says in its metrics."""
        assert self._merge is not None
        return rc.spark.metrics(self._merge.query).inputs.get(name, "unknown")

    def wait(self) -> None:
        """First for the replicas, then for the merge: each takes all files that are there for it."""
        for feed, running in self._replicas.values():
            self._wait_for(running, self._feeds[feed])
        if self._merge is not None:
            self._wait_for(self._merge, self._files_in_root())

    def _wait_for(self, running: _RunningQuery, files: int) -> None:
        deadline = time.monotonic() + _PATIENCE
        while running.files_taken() < files:
            if time.monotonic() > deadline:
                raise RecensionError(f"the query {running.query.name} has not answered for {_PATIENCE:.0f} s")
            time.sleep(_POLL)
            self._read_outputs()
        self._read_outputs()

    def _files_in_root(self) -> int:
        return sum(1 for file in self._root.glob("**/*") if file.is_file() and _is_visible(file, self._root))

    def _read_outputs(self) -> None:
        """Note the changelog files that have appeared."""
        for stream, folder in self._changelogs().items():
            for file in sorted(set(folder.glob("part-*.parquet")) - self._files_read):
                self._files_read.add(file)
                self.trace.add_output(
                    stream, concat(list(open_stream(file, check_orphans=False))), file.stat().st_mtime
                )
        self._watch()

    def _changelogs(self) -> dict[str, Path]:
        found = {folder.name: folder for folder in self._root.glob("[!_.]*/")}
        return found | {MERGED: self._folder / "answers"}

    def history(self) -> History:
        """The table that the merge keeps."""
        return read_history(self._folder / "table")

    @delay_interrupts()
    def batch_answer(self, question: rc.Stream, leases: History) -> History:
        """A Spark batch job over the table of leases."""
        frame = self._spark.createDataFrame(leases.to_arrow())
        return History.from_arrow(rc.spark.batch(self._spark, question, {LEASES: frame}).toArrow())

    @delay_interrupts()
    def close(self) -> None:
        """Stop all that runs."""
        for _, running in self._replicas.values():
            running.query.stop()
        if self._merge is not None:
            self._merge.query.stop()

    @property
    def _root(self) -> Path:
        return self._folder / "root"


class _RunningQuery:
    """A query, started again from its checkpoint if the machine was too busy to start its Python in time.

    For that Spark waits ten seconds, whatever its settings say, and the demo starts three queries at once.
    """

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start, self._starts, self._files_before = start, 1, 0
        self.query = start()

    @delay_interrupts()
    def files_taken(self) -> int:
        """How many files it has worked through: they are the rows of its source."""
        if (why := self.query.exception()) is not None:
            reason = rc.spark.reason_of(why)
            if reason != BUSY or self._starts == _STARTS:
                raise RecensionError(reason)
            self._files_before += _rows_in(self.query)
            self._starts += 1
            self.query = self._start()
        return self._files_before + _rows_in(self.query)


def _rows_in(query: Any) -> int:
    return sum(report["numInputRows"] for report in query.recentProgress)


def _is_visible(file: Path, root: Path) -> bool:
    """Spark overlooks what is under a name that begins with _ or a dot."""
    return not any(part[0] in "_." for part in file.relative_to(root).parts)
