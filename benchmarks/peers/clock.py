"""What a peer's script does around its answers: small runs first, the clock, the answer to a file.

`python PEER.py WORKLOAD FOLDER OUT` prints seconds, processor seconds and peak memory as JSON, those of
processes that it started (Flink's) included, and beside them what it takes with next to no rows. Only the
standard library and pyarrow: it runs in every peer's environment.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

_TICKS = os.sysconf("SC_CLK_TCK")
Answer = Callable[[str, Path, Path], Any]
"""Of a workload over a folder; a table, or nothing if it wrote the files itself."""


def run(answer: Answer) -> None:
    """Warm up, measure what it takes with next to no rows and with all, write, print."""
    workload, folder, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    with tempfile.TemporaryDirectory() as place:
        answer(workload, folder / "small", Path(place, "warm-up"))
        _, fixed = timed(lambda: answer(workload, folder / "small", Path(place, "out")))
    shutil.rmtree(out, ignore_errors=True)
    found, took = timed(lambda: answer(workload, folder, out))
    if found is not None:
        out.mkdir(parents=True)
        pq.write_table(found, out / "answer.parquet")
    print(json.dumps({**took, "fixed": fixed, "peak_mb": _peak_mb()}))


def timed(act: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What it gives, and the seconds that it takes: by the wall clock, and of processors."""
    wall, cpu = time.perf_counter(), processor_seconds()
    found = act()
    return found, {"seconds": time.perf_counter() - wall, "cpu_seconds": processor_seconds() - cpu}


def net(took: dict[str, Any], seconds: str = "cpu_seconds") -> float:
    """What the rows take: all less what it takes without them, and at least a tick."""
    return max(float(took[seconds] - took["fixed"][seconds]), 1 / _TICKS)


def _family() -> list[Path]:
    """This process and all that came of it and live."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    family = [os.getpid()]
    for pid in family:
        family += [child for child, parent in parents.items() if parent == pid]
    return [Path("/proc", str(pid)) for pid in family]


def processor_seconds() -> float:
    """Of this process and of all that it started and that live; those of the others come in ticks."""
    _, *others = _family()
    fields = [(process / "stat").read_text().rsplit(")", 1)[1].split() for process in others]
    return time.process_time() + sum(int(field[11]) + int(field[12]) for field in fields) / _TICKS


def _peak_mb() -> float:
    lines = [line for process in _family() for line in (process / "status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
