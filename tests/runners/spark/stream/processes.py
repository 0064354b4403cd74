"""Programs that tests start and kill, with the processes these start in turn. Found in ``/proc``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[4]
CRASHED = "Python worker exited unexpectedly"
_PATIENCE = 400.0


@dataclass(frozen=True)
class Process:
    """A process as it was seen."""

    pid: int
    parent: int
    ticks: int
    command: str


class Program:
    """A module of the tests, run as a program whose words go to a file."""

    def __init__(self, module: str, *arguments: str, log: Path, patience: float = _PATIENCE) -> None:
        self._log, self._patience = log, patience
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        with log.open("ab") as words:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env=environment,
                stdout=words,
                stderr=words,
            )

    def said(self) -> str:
        """Everything it and earlier runs wrote."""
        return self._log.read_text(errors="replace")

    def is_running(self) -> bool:
        return self._process.poll() is None

    def finish(self) -> None:
        """Wait for its end, which must be a good one."""
        code = self._process.wait(self._patience)
        assert code == 0, self.said()[-4000:]

    def wait_for_end(self) -> int:
        """Wait for its end, whatever that is; gives its exit code."""
        return self._process.wait(self._patience)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until it has come so far."""
        deadline = time.monotonic() + self._patience
        while not condition():
            assert self.is_running(), f"it ended too early: {self.said()[-4000:]}"
            assert time.monotonic() < deadline, f"it did not get so far: {self.said()[-4000:]}"
            time.sleep(0.01)

    def kill(self) -> None:
        """SIGKILL to it and all it has started, at once: nobody is left to tidy up."""
        for process in self.family():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        self._process.wait()

    def family(self) -> list[Process]:
        """It and all processes below it, from the top."""
        return family(self._process.pid)

    def kill_busy_worker(self) -> bool:
        """SIGKILL a Python worker at work, again until Spark says that it lost one in a task.

        False if the program came to its end before one was caught.
        """
        before, deadline = self.said().count(CRASHED), time.monotonic() + self._patience
        while self.is_running():
            if self._has_killed_one() and self._lost_one(before):
                return True
            assert time.monotonic() < deadline, f"no worker was at work: {self.said()[-4000:]}"
        return False

    def _has_killed_one(self) -> bool:
        before = {worker.pid: worker.ticks for worker in self._workers()}
        time.sleep(0.02)
        busy = [w.pid for w in self._workers() if w.ticks > before.get(w.pid, w.ticks)]
        for pid in busy[:1]:
            os.kill(pid, signal.SIGKILL)
        return bool(busy)

    def _lost_one(self, before: int) -> bool:
        """Did it hit a task? If not, no time is to be lost: the program goes on meanwhile."""
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            if self.said().count(CRASHED) > before:
                return True
            time.sleep(0.05)
        return False

    def _workers(self) -> list[Process]:
        return workers(self._process.pid)


def workers(pid: int) -> list[Process]:
    """The Python workers below a driver: children of a daemon of the same name, Spark's own or ours."""
    seen = family(pid)
    daemons = {process.pid for process in seen if "spark.daemon" in process.command}
    return [process for process in seen if process.pid in daemons and process.parent in daemons]


def family(*ids: int) -> list[Process]:
    """Processes and all below them, from the top."""
    seen = {process.pid: process for process in _processes()}
    found = list(ids)
    for pid in found:
        found += [process.pid for process in seen.values() if process.parent == pid]
    return [seen[pid] for pid in found if pid in seen]


def _processes() -> Iterator[Process]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name in brackets may itself hold spaces and brackets.
            values = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            yield Process(int(folder.name), int(values[1]), int(values[11]) + int(values[12]), command)
