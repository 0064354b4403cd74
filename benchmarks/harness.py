"""Measures a function in a fresh process, pinned to one core, and knows what to compare it with.

A measurement runs in a process of its own, so that its peak memory is its own too. What counts is the
processor time of that one core, which a busy machine disturbs least; where the wall clock shows clearly
more, the process waited (for another process, or for the disk) and both are shown. Nothing here asserts a
timing.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_WAITED = 1.1


@dataclass(frozen=True, slots=True)
class Measurement:
    """One thing to measure.

    setup    makes files in a directory, in a process of its own
    load     gets the input ready, untimed, in the measuring process
    run      is timed; gives the number of results, which must be that of its baselines
    sizes    how many elements; several doublings show how the time grows
    against  the baselines to compare with, measured in the same run
    target   elements a second to aim for
    repeats  how often it is timed; the median counts
    """

    name: str
    load: Callable[[int, Path], Any]
    run: Callable[[Any], int]
    sizes: tuple[int, ...]
    setup: Callable[[int, Path], None] | None = None
    against: tuple[str, ...] = ()
    target: float | None = None
    repeats: int = 5


@dataclass(frozen=True, slots=True)
class Suite:
    """The measurements of one topic, baselines included."""

    name: str
    title: str
    measurements: tuple[Measurement, ...]

    def named(self, name: str) -> Measurement:
        """The measurement of that name."""
        return next(m for m in self.measurements if m.name == name)


@dataclass(frozen=True, slots=True)
class Result:
    """What one measuring process found."""

    suite: str
    name: str
    size: int
    answer: int
    seconds: list[float]
    cpu_seconds: list[float]
    loaded_mb: float
    peak_mb: float
    target: float | None = None
    against: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Elements a second of the core's time."""
        return self.size / self.time

    @property
    def time(self) -> float:
        """Seconds of the core's time, the median of all repeats."""
        return statistics.median(self.cpu_seconds)

    @property
    def wall_rate(self) -> float | None:
        """Elements a second by the wall clock, if that differs."""
        wall = statistics.median(self.seconds)
        return self.size / wall if wall > _WAITED * self.time else None


def measure(
    suite: Suite, directory: Path, notify: Callable[[str], None], most: int | None = None
) -> list[Result]:
    """Every measurement of a suite at every size, baselines beside what is compared with them."""
    results: list[Result] = []
    sizes = sorted({size for m in suite.measurements for size in m.sizes})
    for size in [size for size in sizes if most is None or size <= most] or sizes[:1]:
        due = [m for m in suite.measurements if size in m.sizes]
        for step in {m.setup.__name__: m for m in due if m.setup}.values():
            notify(f"{suite.name}: preparing {size:,} elements")
            run_child(suite, step.name, size, directory, "setup")
        found: dict[str, Result] = {}
        for m in due:
            notify(f"{suite.name}: {m.name}, {size:,} elements")
            found[m.name] = Result(**run_child(suite, m.name, size, directory, "measure"))
        results += _add_ratios(suite, found)
    return results


def _add_ratios(suite: Suite, found: dict[str, Result]) -> Iterable[Result]:
    """The results with their ratio to each baseline; an answer that differs from a baseline's is an error."""
    for name, result in found.items():
        measurement = suite.named(name)
        for other in measurement.against:
            if other in found and found[other].answer != result.answer:
                raise SystemExit(f"{name} found {result.answer}, but {other} found {found[other].answer}")
        ratios = {other: result.rate / found[other].rate for other in measurement.against if other in found}
        yield Result(**asdict(result) | {"against": ratios, "target": measurement.target})


def run_child(
    suite: Suite,
    name: str,
    size: int,
    directory: Path,
    step: str,
    tree: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """One step of a measurement in a process of its own; in another checkout, if one is given."""
    arguments = [suite.name, name, str(size), str(directory), step]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", *arguments],
        env=os.environ | ONE_THREAD | dict(environment or {}),
        cwd=tree,
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{suite.name}: {name} at {size:,} elements failed (exit code {done.returncode})")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
