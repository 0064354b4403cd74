"""The agreement and recovery suites over every format, store, session and machine: a table in the guide.

Each cell is a program (`cell.py`). On a cluster an executor is killed as well as the driver.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest
from scripts.lake_jars import NoJarsError, jars
from tests.runners.spark.lake.cell import AGREED, DELTA, DONE, ICEBERG, OURS, Cell
from tests.runners.spark.s3_server import running_s3
from tests.runners.spark.standalone import Standalone, running_cluster
from tests.runners.spark.stream import driver
from tests.runners.spark.stream.processes import Program, family

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc"),
    pytest.mark.spark,
    pytest.mark.soak,
]
# All of them, but for what cannot be: our own format commits by an atomic rename, which S3 lacks.
CELLS = [
    (form, store, session, machines)
    for form in (OURS, DELTA, ICEBERG)
    for store in ("disk", "s3")
    for session in ("classic", "connect")
    for machines in ("one machine", "cluster")
    if (form, store) != (OURS, "s3")
]
# Every so many-th transcript, so many random plans, of at most so many steps.
SAMPLE = ("12", "4", "3")
FILES = 5
EXECUTOR = "CoarseGrainedExecutorBackend"


class Bench:
    """A cell with its servers, and its program as often as it is started."""

    def __init__(self, cell: Cell, folder: Path, cluster: Standalone | None) -> None:
        self.cell, self._folder, self._cluster = cell, folder, cluster
        folder.mkdir()

    def start(self) -> Program:
        arguments = [str(self._folder), self.cell.to_json(), *SAMPLE]
        module = "tests.runners.spark.lake.cell"
        return Program(module, *arguments, log=self._folder / "words.txt", patience=900)

    def check(self) -> None:
        """The driver is killed, on a cluster an executor after it; then the program comes to its end."""
        driver.write_inputs(self._folder, files=FILES, size=500 * FILES)
        luck = random.Random()
        program = self.start()
        self._wait(program, 2)
        time.sleep(luck.uniform(0, 2))
        program.kill()
        program = self.start()
        if self._cluster is not None:
            self._wait(program, 3)
            os.kill(luck.choice(self._executors()), signal.SIGKILL)
        program.finish()
        assert AGREED in program.said()

    def _wait(self, program: Program, batches: int) -> None:
        program.wait_for(lambda: program.said().count(DONE) >= batches)

    def _executors(self) -> list[int]:
        assert self._cluster is not None
        return [p.pid for p in family(*self._cluster.workers) if EXECUTOR in p.command]


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    form, store, session, machines = request.param
    if session == "connect" and find_spec("zstandard") is None:
        pytest.skip("a client of Connect needs zstandard")
    if store == "s3" and find_spec("moto") is None:
        pytest.skip("no S3 server: moto[server] is not installed")
    try:
        for group in {form, store} & {DELTA, ICEBERG, "s3"}:
            jars(group)
    except NoJarsError as why:
        pytest.skip(f"no jars: {why}")
    with ExitStack() as held:
        address = held.enter_context(running_s3()) if store == "s3" else ""
        cluster = held.enter_context(running_cluster(tmp_path / "cluster")) if machines == "cluster" else None
        master = "local[2,4]" if cluster is None else cluster.master
        yield Bench(Cell(form, address, session == "connect", master), tmp_path / "cell", cluster)


@pytest.mark.parametrize("bench", CELLS, indirect=True, ids=", ".join)
def test_recovery_and_agreement(bench: Bench) -> None:
    bench.check()


@pytest.mark.parametrize("bench", [(OURS, "s3", "classic", "one machine")], indirect=True)
def test_our_own_format_on_s3_is_refused(bench: Bench) -> None:
    program = bench.start()
    with pytest.raises(AssertionError, match="since a commit is an atomic rename"):
        program.finish()
