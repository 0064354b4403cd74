"""Fifty kills a format: drivers at named moments of a commit, executors, Python workers, a cluster's worker.

The disk shows where in a micro-batch a query is, and it is killed there. After each death of a driver the
history is that of the micro-batches that its table says it has; in the end 0 are missing and 0 extra.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.runners.spark.lake import killed
from tests.runners.spark.sinks.feeding import assert_same, revised
from tests.runners.spark.sinks.test_queries import history_of, put
from tests.runners.spark.standalone import Standalone, running_cluster
from tests.runners.spark.stream.processes import CRASHED, Process, Program, family

import recension as rc
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.runners.spark.lake.places import lake_table

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc"),
    pytest.mark.soak,
]
FILES, ELEMENTS = 250, 100_000
# Drivers at each moment, executors, Python workers: a new driver costs most.
AT_MOMENT, EXECUTORS, WORKERS = 3, 14, 24
MOMENTS = {
    "delta": ("written", "one table", "both tables", "any"),
    "iceberg": ("written", "staged", "one table", "both tables", "any"),
}
WRITERS = ("driver", "tasks", "driver", "tasks", "driver")
ANY = 3.0  # seconds
_EXECUTOR = "CoarseGrainedExecutorBackend"


@dataclass
class TableOnDisk:
    """What the files of a table say, while others write them."""

    folder: Path
    lake: str
    version: int = -1
    batch: int = -1
    is_staged: bool = False
    known: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.look()
        self.first, self.is_staged = self.batch, False

    def look(self) -> None:
        """See the last version, and the micro-batch that its readers have."""
        logs = self.folder.glob("_delta_log/0*.json" if self.lake == "delta" else "metadata/v*.metadata.json")
        last = max(logs, key=_version, default=None)
        if last is not None and _version(last) > self.version:
            self.version, self.known, before = _version(last), self._data(), self.batch
            self.batch = max(before, _last_batch(last, self.lake))
            self.is_staged = self.batch == before >= 0

    def is_ahead_of(self, batch: int) -> bool:
        """Has a micro-batch come that is after this one?"""
        return self.batch > max(self.first, batch)

    def has_more_data(self) -> bool:
        """Are there files that came after the last version?"""
        return bool(self._data() - self.known)

    def _data(self) -> set[str]:
        where = self.folder if self.lake == "delta" else self.folder / "data"
        return {file.name for file in where.glob("[a-z0-9]*.*")}


def _version(file: Path) -> int:
    return int(file.name.removeprefix("v").partition(".")[0])


def _last_batch(file: Path, lake: str) -> int:
    """The micro-batch of a version; -1 if it is not of one."""
    if lake == "delta":
        actions = map(json.loads, file.read_text().splitlines())
        notes = [action["commitInfo"].get("userMetadata") for action in actions if "commitInfo" in action]
    else:
        stored = json.loads(file.read_text())
        now = stored.get("current-snapshot-id")
        notes = [s["summary"].get("recension") for s in stored["snapshots"] if s["snapshot-id"] == now]
    return next((int(json.loads(note)["recension"]["batch"]) for note in notes if note), -1)


class Killed:
    """A query that is killed and started again, and the files that it reads."""

    def __init__(self, folder: Path, lake: str, seed: int) -> None:
        self.folder, self.lake = folder, lake
        self.rng = random.Random(seed)
        self.batches = revised(seed, FILES, ELEMENTS)
        self.files = 0
        self.kills: Counter[str] = Counter()
        self.programs: list[OnCluster] = []

    def feed(self, files: int) -> None:
        """Put so many files more there."""
        assert self.files + files <= FILES
        put(self.folder / "making", self.batches[self.files : self.files + files], self.files)
        (self.folder / "in").mkdir(exist_ok=True)
        for file in sorted((self.folder / "making").iterdir()):
            file.rename(self.folder / "in" / file.name)
        self.files += files

    def wait_for_batch(self, program: Program) -> None:
        """Until one more is done."""
        before = self.done()
        program.wait_for(lambda: self.done() > before)

    def keep_busy(self) -> None:
        """See that there is always something to do, and little left at the end."""
        self.feed(max(3 - (self.files - self.done()), 0))

    def expected(self, batches: int) -> History:
        return reconstitute(self.batches[:batches], self.batches[0].schema)

    def done(self) -> int:
        """How many micro-batches the checkpoint has."""
        names = (self.folder / "ck" / "commits").glob("[0-9]*")
        return max((int(file.name) for file in names), default=-1) + 1

    def start(self, writer: str, master: str = "local[2,4]", nodes: tuple[int, ...] = ()) -> OnCluster:
        given = (str(self.folder), self.lake, master, writer)
        self.programs.append(OnCluster(killed.__name__, *given, log=self.folder / "words.txt", nodes=nodes))
        return self.programs[-1]

    def stop(self) -> None:
        """Leave nothing running, however the test ends."""
        for program in self.programs:
            if program.is_running():
                program.kill()

    def kill_driver(self, moment: str, writer: str) -> None:
        """Start the query, and kill it at a moment of a micro-batch."""
        self.keep_busy()
        program, tables = self.start(writer), [self._table("history"), self._table("log")]
        program.wait_for(lambda: program.java() is not None)
        java = program.java()
        assert java is not None
        if moment == "any":
            program.wait_for(lambda: self._is_at("written", tables))
            time.sleep(self.rng.uniform(0, ANY))
        else:
            program.wait_for(lambda: self._is_at(moment, tables))
        os.kill(java, signal.SIGKILL)
        program.kill()
        self.kills[moment if moment == "any" or self._is_at(moment, tables) else "missed"] += 1

    def _is_at(self, moment: str, tables: list[TableOnDisk]) -> bool:
        history, log = tables
        versions = history.version, log.version
        for table in tables:
            table.look()
        if moment == "written":
            has_moved = (history.version, log.version) != versions
            return not has_moved and (history.has_more_data() or log.has_more_data())
        if moment == "staged":
            return history.is_staged
        return history.is_ahead_of(log.batch) if moment == "one table" else log.is_ahead_of(self.done() - 1)

    def _table(self, name: str) -> TableOnDisk:
        return TableOnDisk(self.folder / "lake" / "db" / name, self.lake)

    def check(self, spark: Any) -> None:
        """What readers see now is right: whole micro-batches, and not fewer than the checkpoint has."""
        address = killed.addresses(self.lake, self.folder)["history"]
        table = lake_table(spark, address)
        assert table is not None
        if table.columns(spark) is None:
            return
        last = next((c.note.batch for c in table.commits(spark) if c.note is not None), -1)
        assert last + 1 - self.done() in (0, 1)
        assert_same(history_of(rc.spark.read_history(spark, address)), self.expected(last + 1))


class OnCluster(Program):
    """A program with executors below processes that it has not started."""

    def __init__(self, module: str, *arguments: str, log: Path, nodes: tuple[int, ...] = ()) -> None:
        super().__init__(module, *arguments, log=log)
        self._nodes = nodes

    def java(self) -> int | None:
        """The driver's Java process, which writes; the launcher before it is another."""
        found = [p for p in self.family() if "/java " in p.command and "SparkSubmit" in p.command]
        return next((p.pid for p in found if "launcher.Main" not in p.command), None)

    def executors(self) -> list[Process]:
        return [p for p in family(*self._nodes) if _EXECUTOR in p.command]

    def kill_python_worker(self, meanwhile: Callable[[], None]) -> None:
        """SIGKILL a Python worker at work, again until Spark says that it lost one in a task."""
        before, limit = self.said().count(CRASHED), time.monotonic() + 400
        while not (self._has_killed_one() and self._lost_one(before)):
            assert self.is_running(), self.said()[-4000:]
            assert time.monotonic() < limit, self.said()[-4000:]
            meanwhile()

    def _workers(self) -> list[Process]:
        found = [*self.family(), *family(*self._nodes)]
        daemons = {process.pid for process in found if "spark.daemon" in process.command}
        return [process for process in found if process.pid in daemons and process.parent in daemons]


@pytest.mark.parametrize("lake", ["delta", "iceberg"])
def test_fifty_kills(request: pytest.FixtureRequest, tmp_path: Path, lake: str) -> None:
    spark = killed.with_catalog(request.getfixturevalue(lake), tmp_path)
    run = Killed(tmp_path, lake, seed=len(lake))
    try:
        for writer, moment in [(w, moment) for w in WRITERS for moment in MOMENTS[lake]]:
            if run.kills[moment] == AT_MOMENT:
                continue
            run.kill_driver(moment, writer)
            print(f"\n{lake}: {dict(run.kills)}, {run.done()} micro-batches", flush=True)
            run.check(spark)
        with running_cluster(tmp_path / "cluster") as cluster:
            _kill_on_cluster(run, cluster)
    finally:
        run.stop()
    print(f"\n{lake}: {dict(run.kills)}, {run.done()} micro-batches", flush=True)
    where, expected = killed.addresses(lake, tmp_path), run.expected(run.files)
    assert_same(history_of(rc.spark.read_history(spark, where["history"])), expected)
    log = rc.spark.read_changelog(spark, where["changelog"])
    assert_same(history_of(rc.spark.history(log)), expected)
    elements = sum(map(len, run.batches[: run.files]))
    assert log.count() == log.select("_batch", "_seq").distinct().count() == elements
    assert run.kills.total() - run.kills["missed"] >= 50
    assert all(run.kills[moment] == AT_MOMENT for moment in MOMENTS[lake])


def _kill_on_cluster(run: Killed, cluster: Standalone) -> None:
    """Executors and Python workers, one after the other; in the end one of the two workers of the cluster."""
    program = run.start("tasks", cluster.master, tuple(cluster.workers))
    for kind in [*["executor"] * EXECUTORS, *["Python worker"] * WORKERS]:
        run.keep_busy()
        run.wait_for_batch(program)
        if kind == "executor":
            program.wait_for(lambda: len(program.executors()) == 2)
            time.sleep(run.rng.uniform(0, 1))
            os.kill(run.rng.choice(program.executors()).pid, signal.SIGKILL)
        else:
            program.kill_python_worker(run.keep_busy)
        run.kills[kind] += 1
        print(f"\n{run.lake}: {dict(run.kills)}, {run.done()} micro-batches", flush=True)
    run.feed(4)
    cluster.lose_worker(0)
    run.kills["worker of the cluster"] += 1
    (run.folder / "end").touch()
    program.finish()
