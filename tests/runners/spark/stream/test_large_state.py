"""With five million live events: a driver, a worker and an executor are killed, and the history is right.

The state is filled once. Each case goes on from a copy of that checkpoint, which has to be loaded whole.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from tests.runners.spark.sinks import feeding
from tests.runners.spark.stream import large_state
from tests.runners.spark.stream.processes import Program

from recension.core.history import History

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc"),
    pytest.mark.soak,
]
LIVE = int(os.environ.get("LIVE_EVENTS", "5000000"))
ONE_MACHINE, CLUSTER = "local[2,4]", "local-cluster[2,1,2048]"


class Run:
    """A query on its way from where its checkpoint is."""

    def __init__(self, folder: Path, source: Path, master: str) -> None:
        self.folder, self._source, self._master = folder, source, master
        self.program = self._started()

    def _started(self) -> Program:
        module, arguments = "tests.runners.spark.stream.large_state", (self.folder, self._source)
        log = self.folder / "words.txt"
        return Program(module, *map(str, arguments), self._master, log=log, patience=1800)

    def wait_for_batches(self, number: int) -> None:
        """Until so many micro-batches more are done."""
        commits = self.folder / "ck" / "commits"
        wanted = len(list(commits.glob("[0-9]*"))) + number
        self.program.wait_for(lambda: len(list(commits.glob("[0-9]*"))) >= wanted)

    def start_again(self) -> None:
        """After its end."""
        self.program = self._started()

    def executors(self) -> list[int]:
        """Their processes."""
        return [p.pid for p in self.program.family() if "CoarseGrainedExecutorBackend" in p.command]


def kill_driver(run: Run) -> None:
    """At any point of a micro-batch, and once more soon after the state was loaded again."""
    for _ in range(2):
        time.sleep(random.uniform(0, 2.0))
        run.program.kill()
        run.start_again()
        run.wait_for_batches(1)


def kill_worker(run: Run) -> None:
    """While it works."""
    assert run.program.kill_busy_worker(), "it was done before a worker was caught"


def kill_executor(run: Run) -> None:
    """One of two; the other one takes its shard, or the one that comes in its place."""
    os.kill(run.executors()[0], signal.SIGKILL)


class Loaded:
    """A checkpoint with all of the state, and the files that are still to come."""

    def __init__(self, folder: Path) -> None:
        self.source, later, self._first = folder / "in", folder / "later", folder / "first"
        self.expected: History = large_state.write_inputs(self.source, LIVE)
        later.mkdir()
        files = sorted(self.source.iterdir())[large_state.LOADS :]
        for file in files:
            file.rename(later / file.name)
        self._first.mkdir()
        Run(self._first, self.source, ONE_MACHINE).program.finish()
        for file in files:
            (later / file.name).rename(file)

    def go_on(self, folder: Path, master: str) -> Run:
        """The query from here, in another folder."""
        shutil.copytree(self._first, folder, dirs_exist_ok=True)
        return Run(folder, self.source, master)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return Loaded(tmp_path_factory.mktemp("loaded"))


@pytest.mark.parametrize(
    ("kill", "master"),
    [(kill_driver, ONE_MACHINE), (kill_worker, ONE_MACHINE), (kill_executor, CLUSTER)],
    ids=["driver", "worker", "executor"],
)
def test_a_kill_with_much_state(loaded: Loaded, tmp_path: Path, kill: object, master: str) -> None:
    assert callable(kill)
    run = loaded.go_on(tmp_path, master)
    run.wait_for_batches(2)
    kill(run)
    run.program.finish()
    feeding.assert_same(feeding.read(tmp_path / "table"), loaded.expected)
