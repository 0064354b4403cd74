"""Two executors, each a process of its own: they agree as one does, also when one of them is lost.

On `local-cluster`, whose workers are threads of the driver, and on a standalone cluster, whose workers are
processes that can be lost as well.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runners.spark.sinks import feeding
from tests.runners.spark.standalone import Standalone, running_cluster
from tests.runners.spark.stream import driver
from tests.runners.spark.stream.cluster import AGREED
from tests.runners.spark.stream.processes import Program, family

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc"),
    pytest.mark.spark,
    pytest.mark.soak,
]
LOCAL = "local-cluster[2,1,1024]"


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    with running_cluster(tmp_path / "cluster") as found:
        yield found


class Cluster:
    """A program on its way, with executors below the processes of the cluster."""

    def __init__(self, program: Program, checkpoint: Path, nodes: list[int] | None = None) -> None:
        self.program, self._commits, self._nodes = program, checkpoint / "commits", nodes

    def wait_for_batches(self, number: int) -> None:
        """Until so many micro-batches are done in all."""
        self.program.wait_for(lambda: len(list(self._commits.glob("[0-9]*"))) >= number)

    def lose_executor(self, number: int) -> None:
        """SIGKILL one of the two, once so many micro-batches are done."""
        self.wait_for_batches(number)
        self.program.wait_for(lambda: len(self._executors()) == 2)
        os.kill(self._executors()[number % 2], signal.SIGKILL)

    def _executors(self) -> list[int]:
        found = self.program.family() if self._nodes is None else family(*self._nodes)
        return [p.pid for p in found if "CoarseGrainedExecutorBackend" in p.command]


def sample(master: str, folder: Path, every: int, plans: int, steps: int) -> Program:
    """A sample of the agreement suite."""
    wanted = [str(number) for number in (every, plans, steps)]
    module = "tests.runners.spark.stream.cluster"
    return Program(module, master, str(folder), *wanted, log=folder / "words.txt")


def check(program: Program) -> None:
    program.finish()
    assert AGREED in program.said()


def test_a_lost_executor(tmp_path: Path) -> None:
    cluster = Cluster(sample(LOCAL, tmp_path, every=12, plans=4, steps=4), tmp_path / "checkpoint")
    cluster.lose_executor(1)
    check(cluster.program)


def test_three_lost_executors(tmp_path: Path) -> None:
    cluster = Cluster(sample(LOCAL, tmp_path, every=1, plans=24, steps=100), tmp_path / "checkpoint")
    for number in (1, 4, 7):
        cluster.lose_executor(number)
    check(cluster.program)


def test_the_sample_on_a_standalone_cluster(standalone: Standalone, tmp_path: Path) -> None:
    check(sample(standalone.master, tmp_path, every=8, plans=4, steps=6))


def test_an_executor_and_then_a_worker_are_lost(standalone: Standalone, tmp_path: Path) -> None:
    """The worker starts another executor; when the worker is gone too, the other one does all."""
    expected = driver.write_inputs(tmp_path, files=8, size=5_000)
    module = "tests.runners.spark.stream.driver"
    program = Program(module, str(tmp_path), standalone.master, log=tmp_path / "words.txt")
    cluster = Cluster(program, tmp_path / "ck", standalone.workers)
    cluster.lose_executor(2)
    cluster.wait_for_batches(4)
    standalone.lose_worker(0)
    program.finish()
    for sink in ("table", "log"):
        feeding.assert_same(feeding.read(tmp_path / sink), expected)
