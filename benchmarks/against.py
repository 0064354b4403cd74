"""This tree against another one: each measurement of both in turn, printed by `recension bench compare`.

    python -m benchmarks.against 0.1.0                   a revision, every suite
    python -m benchmarks.against ../other windows        a checkout, one suite
    python -m benchmarks.against HEAD modules --only overlap --rounds 9

A round measures the other tree and then this one, each in a process of its own, so that a machine that is
busy for a while slows both. The best repeat of a round counts, and the median of the rounds. Baselines that
neither tree has changed (plain Python, DuckDB) are measured too: they show the noise of the run. Freed memory
is kept by the process, in both.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from benchmarks.__main__ import FOLDER, RUN_THEMSELVES, SUITES
from benchmarks.harness import Result, Suite, run_child
from benchmarks.report import save
from recension.cli.bench import compare

_HERE = Path(__file__).parent.parent
_MOST, _ROUNDS = 1_000_000, 3
# Where a heap ends, and so what the C library gives back to the system and takes again with every batch, is
# luck: it can take a third of the time of a measurement in one tree and nothing in the other.
_KEEP_MEMORY = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), str(1 << 30))
_NAMES = "from benchmarks.{} import SUITE; print([m.name for m in SUITE.measurements])"


@dataclass(frozen=True, slots=True)
class Tree:
    """A checkout, and the folder for the files that its measurements need."""

    root: Path
    files: Path

    @property
    def environment(self) -> dict[str, str]:
        """For processes that run its code."""
        return _KEEP_MEMORY | {"PYTHONPATH": str(self.root / "src")}

    def names(self, suite: str) -> list[str]:
        """The measurements of a suite in this tree."""
        script = [sys.executable, "-c", _NAMES.format(suite)]
        done = subprocess.run(script, cwd=self.root, env=self.environment, capture_output=True, check=True)
        return list(ast.literal_eval(done.stdout.decode()))

    def prepare(self, suite: Suite, name: str, size: int) -> None:
        """Make the files of a measurement."""
        run_child(suite, name, size, self.files, "setup", self.root, self.environment)

    def measure(self, suite: Suite, name: str, size: int) -> Result:
        """One round of a measurement."""
        found = run_child(suite, name, size, self.files, "measure", self.root, self.environment)
        return Result(**found)


def main() -> None:
    """Measure both trees, save both runs, and print them side by side."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("other", metavar="REVISION|PATH")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"any of: {', '.join(_suites())}")
    parser.add_argument("--most", type=int, default=_MOST, help="leave out sizes above so many elements")
    parser.add_argument("--only", default="", metavar="TEXT", help="measurements with this in their name")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    asked = parser.parse_args()
    runs: tuple[list[Result], list[Result]] = ([], [])
    with tempfile.TemporaryDirectory() as folder:
        trees = Tree(_checkout(asked.other, Path(folder)), Path(folder)), Tree(_HERE, Path(folder, "here"))
        trees[1].files.mkdir()
        for suite in (
            importlib.import_module(f"benchmarks.{name}").SUITE for name in asked.suites or _suites()
        ):
            for name, size in _measurements(suite, trees, asked.most, asked.only):
                print(f"{suite.name}: {name}, {size:,} elements", file=sys.stderr, flush=True)
                rounds = [[tree.measure(suite, name, size) for tree in trees] for _ in range(asked.rounds)]
                for run, found in zip(runs, zip(*rounds, strict=True), strict=True):
                    run.append(_together(found))
    compare(*(save(run, FOLDER, tree) for run, tree in zip(runs, ("-other", "-this"), strict=True)))


def _suites() -> list[str]:
    """Those that need one core; the others go by the wall clock."""
    return [name for name in SUITES if name not in RUN_THEMSELVES]


def _checkout(other: str, folder: Path) -> Path:
    """The tree at a path, or that of a revision, unpacked."""
    if Path(other).is_dir():
        return Path(other).resolve()
    command = ["git", "archive", other, "src", "benchmarks"]
    archive = subprocess.run(command, cwd=_HERE, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder / "tree", filter="data")
    return folder / "tree"


def _measurements(suite: Suite, trees: tuple[Tree, Tree], most: int, text: str) -> Iterator[tuple[str, int]]:
    """What both trees can measure, with the files for it made."""
    names = set(trees[0].names(suite.name))
    prepared = set[tuple[str, int]]()
    for m in suite.measurements:
        for size in [size for size in m.sizes if size <= most or size == min(m.sizes)]:
            if m.name not in names or text not in m.name:
                continue
            if m.setup is not None and (m.setup.__name__, size) not in prepared:
                prepared.add((m.setup.__name__, size))
                for tree in trees:
                    tree.prepare(suite, m.name, size)
            yield m.name, size


def _together(rounds: tuple[Result, ...]) -> Result:
    """Several rounds as one result: of each its best."""
    first = rounds[0]
    return Result(
        first.suite,
        first.name,
        first.size,
        first.answer,
        [min(found.seconds) for found in rounds],
        [min(found.cpu_seconds) for found in rounds],
        min(found.loaded_mb for found in rounds),
        min(found.peak_mb for found in rounds),
    )


if __name__ == "__main__":
    main()
