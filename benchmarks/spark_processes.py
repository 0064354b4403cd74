"""Spark's processes while a query runs: processor time and memory, looked at when a micro-batch is committed.

On a machine with other work the wall clock says little; processor time still says what a micro-batch costs.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Final, NamedTuple

TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAUSE: Final = 0.05


class Usage(NamedTuple):
    """Processor seconds of Spark's JVMs and of Python workers so far; the peak of the largest worker, MB."""

    jvm: float
    workers: float
    worker_mb: float


class ProcessWatch:
    """What the processes below the driver's JVM have used at each commit of a query."""

    def __init__(self, spark: Any, checkpoint: Path) -> None:
        self._jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
        self._commits, self._done = checkpoint / "commits", threading.Event()
        self.seen: list[Usage] = []
        """Before the first micro-batch, and after each."""

    def __enter__(self) -> ProcessWatch:
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        is_done = False
        while not is_done:
            is_done = self._done.wait(_PAUSE)
            commits = max((int(file.name) + 1 for file in self._commits.glob("[0-9]*")), default=0)
            if commits >= len(self.seen):
                self.seen += [usage(self._jvm)] * (commits + 1 - len(self.seen))


def usage(jvm: int) -> Usage:
    """Of a JVM, its executors' JVMs, and all Python processes below them."""
    parents, seconds, python = {}, {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            status = (folder / "status").read_text()
        except OSError:
            continue
        pid = int(folder.name)
        parents[pid] = int(fields[1])
        seconds[pid] = (int(fields[11]) + int(fields[12])) / TICKS
        if status.startswith("Name:\tpython") and "VmHWM:" in status:  # one that is ending has no memory
            python[pid] = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    family = [jvm]
    for pid in family:
        family += [child for child, parent in parents.items() if parent == pid]
    workers = [pid for pid in family if pid in python]
    rest = sum(seconds[pid] for pid in family if pid not in python)
    largest = max((python[pid] for pid in workers), default=0.0)
    return Usage(rest, sum(seconds[pid] for pid in workers), largest)
