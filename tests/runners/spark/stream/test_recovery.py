"""Whatever dies, and whenever: the query started again gives the history it would have given.

The long form kills five times each; ``make soak`` runs it.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.runners.spark.sinks import feeding
from tests.runners.spark.stream import driver
from tests.runners.spark.stream.processes import Program

import recension as rc
from recension.core.formats.manifest import current_manifest, manifest_numbers
from recension.core.history import History

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc"),
    pytest.mark.spark,
]


class Run:
    """A query that is killed and started again."""

    def __init__(self, folder: Path, master: str = "local[2,4]") -> None:
        self._folder, self._master = folder, master
        self.program = self._started()

    def _started(self) -> Program:
        module = "tests.runners.spark.stream.driver"
        return Program(module, str(self._folder), self._master, log=self._folder / "words.txt")

    def wait_for_batches(self, number: int) -> None:
        """Until so many micro-batches more are done."""
        wanted = self._done() + number
        self.program.wait_for(lambda: self._done() >= wanted)

    def _done(self) -> int:
        return len(list((self._folder / "ck" / "commits").glob("[0-9]*")))

    def kill_driver(self, rng: random.Random) -> None:
        """SIGKILL at any point of a micro-batch, and start again."""
        time.sleep(rng.uniform(0, 1.0))
        self._kill_driver()

    def kill_driver_between_commits(self) -> None:
        """The same, when a micro-batch is in the state and in the table, and Spark has not noted it.

        A moment after a micro-batch, as above, is never there: the rows of the next are still computed.
        """
        self.program.wait_for(self._is_between_commits)
        self._kill_driver()

    def _is_between_commits(self) -> bool:
        numbers = manifest_numbers(self._folder / "table")
        return max(numbers, default=0) > self._done()

    def _kill_driver(self) -> None:
        self.program.kill()
        self._check_table()
        self.program = self._started()

    def _check_table(self) -> None:
        """A reader meanwhile finds the answer to the files of the micro-batches that are done."""
        if (done := current_manifest(self._folder / "table")) is None:
            return
        files = sorted((self._folder / "in").iterdir())[: done.batch + 1]
        told = pa.concat_tables([pq.read_table(file) for file in files])
        feeding.assert_same(
            feeding.read(self._folder / "table"), rc.run(driver.query(), {"s": told}).history()
        )

    def check(self, expected: History) -> None:
        """Nothing twice, nothing missing, in either sink and in the recording."""
        self.program.finish()
        feeding.assert_same(feeding.read(self._folder / "table"), expected)
        feeding.assert_same(feeding.read(self._folder / "log"), expected)
        recording = rc.read_recording(self._folder / "recording")
        assert recording.is_whole
        assert recording.manifest["ended"] is None
        assert recording.steps()["step"].to_pylist() == list(range(1, self._done() + 1))
        feeding.assert_same(recording.stream("query").history(), expected)
        feeding.assert_same(recording.stream("s").history(), feeding.read(self._folder / "in"))


def test_a_killed_driver_and_a_killed_worker(tmp_path: Path) -> None:
    """A fast machine may be done before a worker is caught at work: then it is tried anew."""
    for attempt in range(4):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        expected = driver.write_inputs(folder, files=5, size=15_000)
        run = Run(folder)
        if not attempt:
            run.wait_for_batches(1)
            run.kill_driver_between_commits()
        run.wait_for_batches(1)
        was_caught = run.program.kill_busy_worker()
        run.check(expected)
        if was_caught:
            return
    pytest.fail("no worker was ever caught at work")


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
def test_six_killed_drivers(tmp_path: Path, seed: int) -> None:
    expected = driver.write_inputs(tmp_path, files=24, size=20_000, seed=seed)
    run, rng = Run(tmp_path), random.Random(seed)
    # Every other start reads what several attempts have left: a moment between the commits, twice in a row.
    for number in range(6):
        run.wait_for_batches(rng.randint(0, 3))
        if number % 3:
            run.kill_driver_between_commits()
        else:
            run.kill_driver(rng)
    run.check(expected)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [3, 4])
def test_five_killed_workers(tmp_path: Path, seed: int) -> None:
    expected = driver.write_inputs(tmp_path, files=40, size=60_000, seed=seed)
    run, rng = Run(tmp_path), random.Random(seed)
    for _ in range(5):
        run.wait_for_batches(rng.randint(1, 3))
        assert run.program.kill_busy_worker(), "it was done before a worker was caught"
    run.check(expected)
