"""Where the time of a measurement goes: by operator, and by stage of the way through the library.

    recension bench --profile                                   the default row of the matrix
    recension bench --profile --suite windows --events 200000   another suite, every measurement once

Each measurement runs in a process of its own, once to warm up and once under the profiler, which makes calls
dearer than arrays: read the shares, not the seconds. What NumPy and Arrow do counts for the caller.
"""

from __future__ import annotations

import argparse
import cProfile
import datetime as dt
import importlib
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from types import CodeType
from typing import Any

from rich.console import Console
from rich.table import Table

import recension
from benchmarks.__main__ import RUN_THEMSELVES, SUITES
from benchmarks.harness import Measurement, Suite, run_child
from benchmarks.report import machine

FOLDER, MOST = Path("bench-results"), 500_000
_LIBRARY = str(Path(recension.__file__).parent) + "/"
# The first that a file's name begins with is its stage; in the order in which an event meets them.
STAGES = {
    "core/formats": "reading and writing files",
    "gate": "the gate: rows into valid events",
    "core/frames": "the gate: rows into valid events",
    "runners": "sessions: engine, output",
    "core/validity": "checks of what comes in",
    "core/late_elements": "checks of what comes in",
    "plan": "expressions",
    "core/rowhash": "hashes",
    "operators/state": "state of operators",
    "core/sorted_runs": "state of operators",
    "operators": "operators themselves",
    "core": "batches",
}
OUTSIDE, OTHER = "the benchmark itself, files it reads included", "the rest of the library"
_STEPS = ("on_batch", "on_cti")
# Spark's own processes are not looked into.
PROFILED = [name for name in SUITES if name == "matrix" or name not in RUN_THEMSELVES]


@dataclass(frozen=True)
class Profile:
    """Seconds of one run: by stage, which add up to all; and by operator, with what it calls."""

    seconds: float
    stages: dict[str, float]
    operators: dict[str, float]


def profile(run: Callable[[], object]) -> Profile:
    """Run something once under the profiler."""
    profiler = cProfile.Profile()
    profiler.runcall(run)
    stages, operators = defaultdict[str, float](float), defaultdict[str, float](float)
    for entry in profiler.getstats():
        if not isinstance(entry.code, CodeType) or (stage := _stage(entry.code)) is None:
            continue
        called = [each for each in entry.calls or () if _is_elsewhere(each.code)]
        stages[stage] += entry.inlinetime + sum(each.totaltime for each in called)
        owner, _, method = entry.code.co_qualname.rpartition(".")
        if method in _STEPS and stage != OUTSIDE:
            operators[owner] += entry.totaltime
    return Profile(sum(stages.values()), _most_first(stages), _most_first(operators))


def _most_first(seconds: dict[str, float]) -> dict[str, float]:
    return dict(sorted(seconds.items(), key=itemgetter(1), reverse=True))


def _stage(code: CodeType) -> str | None:
    """The stage that a function belongs to; None for what others have written."""
    if not code.co_filename.startswith(_LIBRARY):
        return OUTSIDE if "/benchmarks/" in code.co_filename else None
    place = code.co_filename.removeprefix(_LIBRARY)
    return next((stage for start, stage in STAGES.items() if place.startswith(start)), OTHER)


def _is_elsewhere(code: object) -> bool:
    return not isinstance(code, CodeType) or _stage(code) is None


def profile_measurement(measurement: Measurement, size: int, folder: Path) -> Profile:
    """Once to warm up, once under the profiler."""
    data = measurement.load(size, folder)
    measurement.run(data)
    return profile(lambda: measurement.run(data))


def main(arguments: list[str] | None = None) -> None:
    """Profile, print the tables, save them as JSON."""
    parser = argparse.ArgumentParser(prog="recension bench --profile", description=__doc__)
    parser.add_argument("--suite", default="matrix", choices=PROFILED, metavar="SUITE")
    parser.add_argument("--events", type=int, help="at this size, instead of the smallest that a suite has")
    parser.add_argument("--only", default="", metavar="TEXT", help="measurements with this in their name")
    asked = parser.parse_args(arguments)
    out = Console() if sys.stdout.isatty() else Console(width=120)
    suite: Suite = importlib.import_module(f"benchmarks.{asked.suite}").SUITE
    found = {}
    for measurement in (m for m in chosen(suite) if asked.only in m.name):
        size = asked.events or min(*measurement.sizes, MOST)
        found[measurement.name] = one = _profile_apart(suite, measurement, size)
        if one.operators:  # a baseline has none
            out.print(_table(f"{measurement.name}, {size:,} elements", one))
    out.print(f"saved as {_save(asked.suite, found)}")


def chosen(suite: Suite) -> list[Measurement]:
    """All of a suite; of the matrix, which has hundreds, the default row."""
    return [m for m in suite.measurements if suite.name != "matrix" or m.target is not None]


def _profile_apart(suite: Suite, measurement: Measurement, size: int) -> Profile:
    with tempfile.TemporaryDirectory() as folder:
        if measurement.setup is not None:
            run_child(suite, measurement.name, size, Path(folder), "setup")
        return Profile(**run_child(suite, measurement.name, size, Path(folder), "profile"))


def _table(title: str, found: Profile) -> Table:
    table = Table("where", "share", "seconds", title=title, title_justify="left")
    for part in (found.stages, found.operators):
        for name, seconds in part.items():
            if seconds >= 0.005 * found.seconds:
                table.add_row(name, f"{seconds / found.seconds:.0%}", f"{seconds:.3f}")
        table.add_section()
    table.caption = "stages add up to all of the time; an operator counts with the state and hashes it needs"
    return table


def _save(suite: str, found: dict[str, Profile]) -> Path:
    FOLDER.mkdir(exist_ok=True)
    now = dt.datetime.now(dt.UTC)
    path = FOLDER / f"{now:%Y%m%dT%H%M%SZ}-profile.json"
    profiles: dict[str, Any] = {name: vars(each) for name, each in found.items()}
    document = {"when": f"{now:%FT%TZ}", "machine": machine(), "suite": suite, "profiles": profiles}
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


if __name__ == "__main__":
    main()
