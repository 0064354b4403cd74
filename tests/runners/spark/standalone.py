"""A standalone Spark cluster on loopback, a process each for its master and its workers, for tests.

Its processes know nothing of this one: no variable of ours that says where Python looks, no folder of ours.
What a query needs must be shipped to them. Each ends with the tests, also if these are killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from scripts.kafka_broker import ends_with_parent, free_ports, java

HOME = Path(pyspark.__file__).parent
_START = 90.0  # seconds; some four on a machine with nothing else to do
_LIGHT = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_DEPLOY = "org.apache.spark.deploy"


def settings_of(master: str) -> dict[str, str]:
    """For `rc.spark.session` in a program of the tests: executors look for Python where it does."""
    if not master.startswith("spark://"):
        return {}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return {
        "spark__executorEnv__PYTHONPATH": os.environ["PYTHONPATH"],
        "spark__executor__memory": "768m",
    }


class Standalone:
    """A master and its workers, each with one core."""

    def __init__(self, folder: Path, workers: int, memory: str) -> None:
        self._folder, self._memory, self._java = folder, memory, java()
        self._processes: list[subprocess.Popen[bytes]] = []
        (port,) = free_ports(1)
        self.master = f"spark://127.0.0.1:{port}"
        ports = ("--host", "127.0.0.1", "--webui-port", "0")
        self._run("master", f"{_DEPLOY}.master.Master", "--port", str(port), *ports)
        self._wait_for("master", "I have been elected leader")
        for number in range(workers):
            name = f"worker-{number}"
            room = ("--cores", "1", "--memory", memory, "--work-dir", str(folder / name))
            self._run(name, f"{_DEPLOY}.worker.Worker", *room, *ports, self.master)
        for number in range(workers):
            self._wait_for(f"worker-{number}", "Successfully registered with master")

    @property
    def workers(self) -> list[int]:
        """The processes of the workers."""
        return [process.pid for process in self._processes[1:]]

    def lose_worker(self, number: int) -> None:
        """SIGKILL a worker; its executors end themselves when they see it gone."""
        os.kill(self.workers[number], signal.SIGKILL)
        self._processes[1 + number].wait()

    def stop(self) -> None:
        """End all of it: workers first, who tell their executors."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _run(self, name: str, main: str, *arguments: str) -> None:
        kept = {
            key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "LANG", "JAVA_HOME")
        }
        # What Spark's own scripts set; without the last, a worker looks for the folders of a build.
        own = {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
        here = self._folder / name
        here.mkdir(parents=True)
        command = [*ends_with_parent(), self._java, *_LIGHT, "-cp", f"{HOME}/jars/*", main, *arguments]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    command,
                    cwd=here,
                    env=kept | own,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                )
            )

    def _wait_for(self, name: str, words: str) -> None:
        log, limit = self._folder / f"{name}.log", time.monotonic() + _START
        while words not in log.read_text(errors="replace"):
            ended = any(process.poll() is not None for process in self._processes)
            if ended or time.monotonic() > limit:
                said = log.read_text(errors="replace")[-2000:]
                self.stop()
                raise AssertionError(f"the {name} of the cluster {'ended' if ended else 'hangs'}: {said}")
            time.sleep(0.1)


@contextmanager
def running_cluster(folder: Path, workers: int = 2, memory: str = "1g") -> Iterator[Standalone]:
    """A cluster that runs meanwhile."""
    cluster = Standalone(folder, workers, memory)
    try:
        yield cluster
    finally:
        cluster.stop()
