"""A query that is stopped in gaps between its writes, started again from the disk each time, and judged."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.runners.spark.gaps import program
from tests.runners.spark.gaps.points import POINTS, has_snapshot, micro_batches
from tests.runners.spark.gaps.program import OWN, Start
from tests.runners.spark.lake import killed
from tests.runners.spark.sinks.feeding import assert_same, read, revised
from tests.runners.spark.sinks.test_queries import history_of
from tests.runners.spark.stream import driver
from tests.runners.spark.stream.processes import Program

import recension as rc
from recension.core.batch import concat
from recension.core.formats.manifest import current_manifest
from recension.core.history import History

MOST_FILES = 400


class Kills:
    """A query that is stopped and started again, and the files that it reads, one a micro-batch."""

    def __init__(self, folder: Path, sink: str = "own", size: int = 60, seed: int = 0, **start: Any) -> None:
        self.folder, self.sink = folder, sink
        self._start = Start(str(folder), sink, **start)
        self._batches = revised(seed, MOST_FILES, size * MOST_FILES)
        self._files = 0
        self.kills: Counter[str] = Counter()

    def feed(self, files: int) -> None:
        """Put so many files more there."""
        for number in range(self._files, self._files + files):
            driver.put(self.folder / "in", number, self._batches[number])
        self._files += files

    def keep_busy(self, files: int) -> None:
        """See that so many files are not yet in a finished micro-batch."""
        done = self.done()
        self.feed(max(files - (self._files - (self._taken(done - 1) if done else 0)), 0))

    def done(self) -> int:
        """How many micro-batches the checkpoint has."""
        return micro_batches(self.folder / "ck", "commits")

    def is_between_commits(self) -> bool:
        """Is a micro-batch planned and not done?"""
        return micro_batches(self.folder / "ck", "offsets") > self.done()

    def has_snapshot(self) -> bool:
        """Has every shard of every level a snapshot of the state after the micro-batch at hand?"""
        return has_snapshot(self.folder / "ck")

    def expected(self, files: int | None = None) -> History:
        """What the local engine answers to so many files, or to all."""
        given = concat(self._batches[: self._files if files is None else files])
        return rc.run(program.asked(str(self.folder)), {"s": given}).history()

    def start(self, point: str = "", **how: Any) -> Program:
        """Start the query, to be stopped at a point, or not at all."""
        given = replace(self._start, point=point, **how)
        return Program(program.__name__, given.to_json(), log=self.folder / "words.txt")

    def kill_at(self, point: str, times: int = 1, **how: Any) -> None:
        """Start the query, which kills itself at a point that it reaches for the last of so many times."""
        self.keep_busy(times + 2)
        reached = self.folder / "killed"
        reached.unlink(missing_ok=True)
        running = self.start(point, times=times, **how)
        running.wait_for_end()
        if not reached.exists():
            raise AssertionError(f"{self.sink}: {point} was not reached: {running.said()[-4000:]}")
        self.kills[point] += 1
        self.check_now()

    def kill_twice(self, point: str, **how: Any) -> None:
        """Finish the micro-batch at hand, and be killed at a point of the next one; then there again."""
        self.kill_at(point, times=2, **how)
        self.kill_at(point, **how)

    def lose_sink(self, seconds: float, *, snapshots: bool) -> None:
        """Start the query; its sink is away for so long, then fails, and the query stops in order."""
        self.keep_busy(3)
        running = self.start("state", how="away", seconds=seconds, snapshots=snapshots)
        running.finish()
        assert "the sink was away" in running.said()
        self.kills["sink away"] += 1

    def kill_worker(self) -> None:
        """Start the query; a Python worker dies at work, and the query comes to its end."""
        self.keep_busy(2)
        (self.folder / "worker").touch()
        self.start().finish()
        assert (self.folder / "worker is dead").exists()
        self.kills["worker"] += 1

    def check_now(self) -> None:
        """A reader meanwhile finds the answer to the files of the micro-batches that are in the table."""
        found = current_manifest(self.folder / "table") if self.sink == "own" else None
        if found is not None and found.batch >= 0:
            assert_same(read(self.folder / "table"), self.expected(self._taken(found.batch)))

    def _taken(self, number: int) -> int:
        """How many files micro-batches took up to this one.

        One each; but if a driver died before it planned what it had listed, the next one takes more.
        """
        offset = (self.folder / "ck" / "offsets" / str(number)).read_text().splitlines()[-1]
        return int(json.loads(offset)["logOffset"]) + 1

    def check_end(self, spark: Any = None) -> None:
        """It comes to its end, from the disk; nothing twice, nothing missing in any sink."""
        self.start().finish()
        self.check_tables(spark)
        print(f"\n{self.sink}: {self.kills.total()} kills in {self.done()} micro-batches: {dict(self.kills)}")

    def check_tables(self, spark: Any = None) -> None:
        """What all sinks have is the answer to all files."""
        expected = self.expected()
        if self.sink == "own":
            for place in OWN.values():
                assert_same(read(self.folder / place), expected)
            recording = rc.read_recording(self.folder / "recording")
            assert recording.manifest["ended"] is None
            assert_same(recording.stream("query").history(), expected)
        elif self.sink != "kafka":
            where = killed.addresses(self.sink, self.folder)
            assert_same(history_of(rc.spark.read_history(spark, where["history"])), expected)
            log = rc.spark.read_changelog(spark, where["changelog"])
            assert_same(history_of(rc.spark.history(log)), expected)


def rounds(sink: str, writer: str) -> Iterator[tuple[str, bool]]:
    """Points in their order, over and over: without snapshots of the state, then with them."""
    for snapshots in itertools.cycle((False, True)):
        for point in POINTS[sink]:
            if is_reached(sink, writer, point):
                yield point, snapshots or point == "upload"


def is_reached(sink: str, writer: str, point: str) -> bool:
    """Has every micro-batch of this writer such a point? By default tasks write the first one of a start."""
    if point == "publishing":
        return writer == "tasks"
    return point != "files" or sink == "own" or writer == "driver"
