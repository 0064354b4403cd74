"""Files given to child processes that may crash, hang or eat memory without doing harm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

SECONDS: Final = 5.0
# What a child may map, and what it may really use; Python and Arrow alone take 0.2 GiB of it.
MAPPED: Final = 4 << 30
USED: Final = 1 << 30
_ROOT: Final = Path(__file__).parents[2]
_HANGS: Final = (signal.SIGPROF, signal.SIGALRM)


@dataclass
class Sandbox:
    """Gives files to a child, and starts another one after a crash."""

    module: str = "tests.fuzz.child"
    seconds: float = SECONDS
    memory: int = USED
    counts: Counter[str] = field(default_factory=Counter)
    peak: int = 0
    _child: subprocess.Popen[str] | None = None

    def fault_of(self, path: Path) -> str | None:
        """What is wrong with how a file is handled; None if it is accepted or refused as it should be."""
        child = self._child = self._child or self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(f"{path}\n")
            child.stdin.flush()
            line = child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return self._death(child)
        answer: dict[str, Any] = json.loads(line)
        self.counts[answer["outcome"]] += 1
        self.peak = max(self.peak, answer["peak"])
        if answer["peak"] > self.memory:
            self.close()
            return f"took {answer['peak'] >> 20} MiB"
        detail: str | None = answer.get("detail")
        return detail

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _death(self, child: subprocess.Popen[str]) -> str:
        self._child = None
        code = child.wait()
        errors = child.communicate()[1]
        if -code in _HANGS:
            return f"hung for more than {self.seconds} s"
        return f"ended with {code}: {errors[-2000:]}"

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", self.module, str(self.seconds), str(MAPPED)],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@contextmanager
def sandbox(
    module: str = "tests.fuzz.child", seconds: float = SECONDS, memory: int = USED
) -> Iterator[Sandbox]:
    """A sandbox whose child does not outlive it."""
    box = Sandbox(module, seconds, memory)
    try:
        yield box
    finally:
        box.close()
