"""Run all benchmarks, or those named."""

from __future__ import annotations

import argparse
import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks.harness import Suite, measure
from benchmarks.report import machine, save, show

_SUITES = (
    "history",
    "formats",
    "generate",
    "moving_window",
    "interval_join",
    "windows",
    "modules",
    "coalescing",
    "group_apply",
    "finalize",
    "spectrum",
    "lmerge",
    "history_sink",
)
_FOLDER = Path("bench-results")
_PLAIN_WIDTH = 150


def main() -> None:
    """Measure, print a table a suite, and save everything as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"any of: {', '.join(_SUITES)}")
    asked = parser.parse_args()
    if unknown := set(asked.suites) - set(_SUITES):
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(_SUITES)}")
    out, err = Console(), Console(stderr=True)
    if not out.is_terminal:
        out = Console(width=_PLAIN_WIDTH)
    out.print(", ".join(f"{key} {value}" for key, value in machine().items()), "— one core", style="dim")
    results = []
    for name in asked.suites or _SUITES:
        suite = _suite(name)
        with tempfile.TemporaryDirectory() as folder, err.status(name) as status:
            found = measure(suite, Path(folder), status.update)
        show(suite, found, out)
        for line in _notes(name):
            out.print(line, style="dim", highlight=False)
        results += found
    out.print(f"saved as {save(results, _FOLDER)}")


def _suite(name: str) -> Suite:
    suite: Suite = importlib.import_module(f"benchmarks.{name}").SUITE
    return suite


def _notes(name: str) -> list[str]:
    """What a suite has to say beyond its table."""
    notes: Callable[[], list[str]] | None = getattr(
        importlib.import_module(f"benchmarks.{name}"), "notes", None
    )
    return [] if notes is None else notes()


if __name__ == "__main__":
    main()
