"""Run all benchmarks, or those named."""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.harness import Result, measure
from benchmarks.report import machine, save, show

SUITES = (
    "matrix",
    "history",
    "formats",
    "generate",
    "moving_window",
    "interval_join",
    "patterns",
    "windows",
    "small_pushes",
    "workers",
    "aggregates",
    "sessions",
    "modules",
    "coalescing",
    "group_apply",
    "keyed",
    "partitions",
    "finalize",
    "due",
    "lifetimes",
    "spectrum",
    "why",
    "lmerge",
    "history_sink",
    "spark",
    "kafka",
    "nexmark",
)
RUN_THEMSELVES = {
    "matrix": "The user's path: W1, W2 and W3 by what a user may choose",
    "workers": "W1, W2 and W3 in one process and in two workers, by the wall clock",
    "spark": "Spark pipelines beside Spark's own operators, two cores, by the wall clock",
    "kafka": "the same off Kafka topics of 1, 12 and 200 partitions",
    "nexmark": "NEXMark's queries, final answers and answers at once",
}
HAVE_OPTIONS = ("matrix", "nexmark", "workers")
FOLDER = Path("bench-results")
_PLAIN_WIDTH = 150


def main() -> None:
    """Measure, print one table, and save everything as JSON."""
    if sys.argv[1:2] and sys.argv[1] in HAVE_OPTIONS:
        _module(sys.argv[1]).main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"any of: {', '.join(SUITES)}")
    parser.add_argument("--most", type=int, help="leave out sizes above so many elements: a quick look")
    asked = parser.parse_args()
    if unknown := set(asked.suites) - set(SUITES):
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    out, err = Console(), Console(stderr=True)
    if not out.is_terminal:
        out = Console(width=_PLAIN_WIDTH)
    out.print(", ".join(f"{key} {value}" for key, value in machine().items()), style="dim")
    results: dict[str, list[Result]] = {}
    for name in asked.suites or SUITES:
        results[_title(name)] = _measure_suite(name, asked.most, out, err)
        for line in _notes(name):
            out.print(line, style="dim", highlight=False)
    show(results, out)
    out.print(f"saved as {save(chain.from_iterable(results.values()), FOLDER)}")


def _measure_suite(name: str, most: int | None, out: Console, err: Console) -> list[Result]:
    """Most suites are run here; one that needs more than a core runs itself."""
    with tempfile.TemporaryDirectory() as folder, err.status(name) as status:
        if name in RUN_THEMSELVES:
            return list(_module(name).measured(Path(folder), out, quick=most is not None))
        return measure(_module(name).SUITE, Path(folder), status.update, most)


def _title(name: str) -> str:
    return RUN_THEMSELVES.get(name) or str(_module(name).SUITE.title)


def _module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.{name}")


def _notes(name: str) -> list[str]:
    """What a suite has to say beyond the table."""
    notes: Callable[[], list[str]] | None = getattr(_module(name), "notes", None)
    return [] if notes is None else notes()


if __name__ == "__main__":
    main()
