"""The measuring process: one measurement at one size, on one core, its result as JSON on stdout.

Asked to `serve`, it loads once and then runs once for each line on stdin, so that two such processes, of two
trees, can be timed in turn.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import Measurement, Suite


def main(suite_name: str, name: str, size: str, directory: str, step: str) -> None:
    """Do one step of a measurement: its set-up, a profile, or the measuring, by itself or as it is asked."""
    use_one_core()
    suite: Suite = importlib.import_module(f"benchmarks.{suite_name}").SUITE
    measurement = suite.named(name)
    if step == "setup":
        assert measurement.setup is not None
        measurement.setup(int(size), Path(directory))
        json.dump({}, sys.stdout)
        return
    named = {"suite": suite_name, "name": name}
    if step == "profile":
        from benchmarks.profile import profile_measurement

        json.dump(vars(profile_measurement(measurement, int(size), Path(directory))), sys.stdout)
        return
    if step == "measure":
        found = _measure(measurement, int(size), Path(directory), range(measurement.repeats))
        json.dump(named | list(found)[-1], sys.stdout)
        return
    for found_so_far in _measure(measurement, int(size), Path(directory), sys.stdin):
        print(json.dumps(named | found_so_far), flush=True)


def use_one_core() -> None:
    """For all that this process does from now on."""
    if hasattr(os, "sched_setaffinity"):  # only Linux pins processes to a core
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def _measure(
    measurement: Measurement, size: int, directory: Path, turns: Iterable[object]
) -> Iterator[dict[str, object]]:
    """All that was found so far, after each turn."""
    data = measurement.load(size, directory)
    gc.collect()
    loaded = peak = peak_mb()
    seconds, cpu_seconds = list[float](), list[float]()
    for _ in turns:
        wall, cpu = time.perf_counter(), time.process_time()
        answer = measurement.run(data)
        seconds.append(time.perf_counter() - wall)
        cpu_seconds.append(time.process_time() - cpu)
        if len(seconds) == 1:
            peak = peak_mb()
        yield {
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
