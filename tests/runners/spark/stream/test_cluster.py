"""Two executors, each a process of its own: they agree as one does, also when one of them is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.runners.spark.stream.cluster import AGREED
from tests.runners.spark.stream.processes import Program

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


class Cluster:
    """The sample on its way."""

    def __init__(self, folder: Path, every: int, plans: int, steps: int) -> None:
        self._folder = folder
        module = "tests.runners.spark.stream.cluster"
        wanted = [str(number) for number in (every, plans, steps)]
        self.program = Program(module, str(folder), *wanted, log=folder / "words.txt")

    def lose_executor(self, number: int) -> None:
        """SIGKILL one of the two, once so many micro-batches are done."""
        commits = self._folder / "checkpoint" / "commits"
        self.program.wait_for(lambda: len(list(commits.glob("[0-9]*"))) >= number)
        self.program.wait_for(lambda: len(self._executors()) == 2)
        os.kill(self._executors()[number % 2], signal.SIGKILL)

    def _executors(self) -> list[int]:
        return [p.pid for p in self.program.family() if "CoarseGrainedExecutorBackend" in p.command]

    def check(self) -> None:
        self.program.finish()
        assert AGREED in self.program.said()


@pytest.mark.soak
def test_a_lost_executor(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, every=12, plans=4, steps=4)
    cluster.lose_executor(1)
    cluster.check()


@pytest.mark.soak
def test_three_lost_executors(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, every=1, plans=24, steps=100)
    for number in (1, 4, 7):
        cluster.lose_executor(number)
    cluster.check()
