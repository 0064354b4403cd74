"""The measuring process: one measurement at one size, on one core, its result as JSON on stdout."""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import Measurement, Suite


def main(suite_name: str, name: str, size: str, directory: str, step: str) -> None:
    """Do one step of a measurement: its set-up, or the measuring."""
    use_one_core()
    suite: Suite = importlib.import_module(f"benchmarks.{suite_name}").SUITE
    measurement = suite.named(name)
    if step == "setup":
        assert measurement.setup is not None
        measurement.setup(int(size), Path(directory))
        found: dict[str, object] = {}
    else:
        found = {"suite": suite_name, "name": name} | _measure(measurement, int(size), Path(directory))
    json.dump(found, sys.stdout)


def use_one_core() -> None:
    """For all that this process does from now on."""
    if hasattr(os, "sched_setaffinity"):  # only Linux pins processes to a core
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def _measure(measurement: Measurement, size: int, directory: Path) -> dict[str, object]:
    data = measurement.load(size, directory)
    gc.collect()
    loaded = peak = peak_mb()
    answer, seconds, cpu_seconds = 0, list[float](), list[float]()
    for repeat in range(measurement.repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        answer = measurement.run(data)
        seconds.append(time.perf_counter() - wall)
        cpu_seconds.append(time.process_time() - cpu)
        if repeat == 0:
            peak = peak_mb()
    return {
        "size": size,
        "answer": answer,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "loaded_mb": loaded,
        "peak_mb": peak,
    }


def peak_mb() -> float:
    """The largest resident size of this program so far.

    `getrusage` would count what the process that started it had held; the kernel's own file does not.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        # Here in bytes, where there is no such file.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
