"""A process that answers for one file after another, within the limits that the kernel keeps it to.

Reads a path a line from standard input and answers each with one line of JSON. The kernel ends the process
when a file takes more than its processor time or its patience, and refuses it memory beyond a bound.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def serve(seconds: float, memory: int, handle: Callable[[Path], str]) -> None:
    """Answer until the input ends, each file with what ``handle`` makes of it."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = sys.stdout
    for line in sys.stdin:
        # Processor time, so that a busy machine is no hang; and real time for what waits for nothing.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, 20 * seconds)
        answer = _answer(Path(line.rstrip("\n")), handle)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answer["peak"] = _peak()
        print(json.dumps(answer), file=answers, flush=True)


def _answer(path: Path, handle: Callable[[Path], str]) -> dict[str, Any]:
    try:
        return {"outcome": handle(path)}
    except BaseException:
        return {"outcome": "failed", "detail": traceback.format_exc(limit=-12)[-3000:]}


def _peak() -> int:
    """The most memory this process has used; what getrusage says is the parent's, where that used more."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)
